//! The Rust path of a message, seen from inside a generated service module.
//!
//! prost's path is valid where the messages are. tonic's modules and ours are one level deeper.
//! Types outside the generated tree stay as they are: absolute paths (well-known types, external
//! types) and `()`, which stands for `google.protobuf.Empty`.

use proc_macro2::TokenStream;

/// The types that prost uses for the wrapper messages, apart from absolute paths.
const PRIMITIVES: &[&str] = &["bool", "i32", "i64", "u32", "u64", "f32", "f64"];

/// Gives a primitive its absolute path.
///
/// prost maps `google.protobuf.BoolValue` to `bool`, which tonic turns into `super::bool`. tonic's
/// own switch for this tests the *end* of the name, so a message `Foobool` would lose its path
/// instead. All of tonic's rules leave an absolute path alone.
pub(crate) fn make_absolute(prost_type: &mut String) {
    if PRIMITIVES.contains(&prost_type.as_str()) {
        prost_type.insert_str(0, "::core::primitive::");
    }
}

/// Returns true if prost generates the type in this run.
pub(crate) fn is_generated(prost_type: &str) -> bool {
    !(prost_type.starts_with("::") || prost_type.starts_with("crate::") || prost_type == "()")
}

/// Returns the type's path from inside a service module. `proto_path` leads out of it, usually
/// `super`.
///
/// # Errors
///
/// Returns an error if prost's type or `proto_path` is not valid Rust, which an odd `extern_path`
/// can cause.
pub(crate) fn from_service_module(
    prost_type: &str,
    proto_path: &str,
) -> Result<TokenStream, syn::Error> {
    let path = if is_generated(prost_type) {
        format!("{proto_path}::{prost_type}")
    } else {
        prost_type.to_owned()
    };
    syn::parse_str::<syn::Type>(&path).map(|parsed| quote::quote!(#parsed))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(prost_type: &str) -> String {
        from_service_module(prost_type, "super").unwrap().to_string().replace(' ', "")
    }

    #[test]
    fn generated_types_are_one_level_up() {
        assert_eq!(path("HelloRequest"), "super::HelloRequest");
        assert_eq!(path("super::other::Thing"), "super::super::other::Thing");
        assert_eq!(path("outer::Inner"), "super::outer::Inner");
        assert_eq!(path("Foobool"), "super::Foobool");
    }

    #[test]
    fn types_from_elsewhere_stay() {
        assert_eq!(path("()"), "()");
        assert_eq!(path("::prost_types::Timestamp"), "::prost_types::Timestamp");
        assert_eq!(path("::prost::alloc::vec::Vec<u8>"), "::prost::alloc::vec::Vec<u8>");
        assert_eq!(path("crate::wkt::Any"), "crate::wkt::Any");
    }

    #[test]
    fn primitives_get_an_absolute_path() {
        let absolute = |name: &str| {
            let mut name = name.to_owned();
            make_absolute(&mut name);
            name
        };
        assert_eq!(absolute("bool"), "::core::primitive::bool");
        assert_eq!(absolute("Foobool"), "Foobool");
        assert_eq!(absolute("()"), "()");
    }

    #[test]
    fn nonsense_is_an_error() {
        assert!(from_service_module("not rust", "super").is_err());
    }
}
