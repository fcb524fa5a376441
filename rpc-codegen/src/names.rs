//! Rust names of services and methods: tonic's rules, and what to do where they collide.
//!
//! tonic names its modules `snake(Name)_client` and `snake(Name)_server` with a snake case of its
//! own and puts methods beside its own inherent ones, so that a method `New` gives a client with
//! two `new` and a service `Option` a trait that hides the `Option` its module uses: code that
//! does not compile. Such a method gets an underscore, the way prost turns `self` into `self_`;
//! such a trait becomes `OptionRpc`, since rustc warns about a module `option__server`.

use heck::{ToSnakeCase, ToUpperCamelCase};
use proc_macro2::{Ident, Span};

/// Names that cannot be raw identifiers; prost appends an underscore.
const NEVER_RAW: &[&str] = &["_", "super", "self", "Self", "extern", "crate"];

/// Inherent functions of every client that tonic generates.
const TONIC_CLIENT_FUNCTIONS: &[&str] = &[
    "new",
    "with_origin",
    "with_interceptor",
    "send_compressed",
    "accept_compressed",
    "max_decoding_message_size",
    "max_encoding_message_size",
];

/// Inherent functions of every stub.
const STUB_FUNCTIONS: &[&str] = &[
    "new",
    "with_interceptor",
    "max_decoding_message_len",
    "max_encoding_message_len",
    "compress_from",
    "with_timeout",
    "with_wait_for_ready",
];

/// Names that the text of tonic's server module uses without a path, so that a trait of that name
/// in the module hides them.
const TONIC_SERVER_NAMES: &[&str] = &[
    "Arc",
    "B",
    "Body",
    "Box",
    "BoxFuture",
    "BoxStream",
    "Clone",
    "CompressionEncoding",
    "Context",
    "Default",
    "EnabledCompressionEncodings",
    "InterceptedService",
    "Into",
    "Option",
    "Poll",
    "StdError",
    "T",
];

/// The stem of tonic's server module, server and trait.
pub(crate) fn tonic_server(service: &str) -> String {
    let taken = TONIC_SERVER_NAMES.contains(&service);
    format!("{service}{}", if taken { "Rpc" } else { "" })
}

/// The method's name in tonic's client.
pub(crate) fn tonic_client_method(name: &str, has_connect: bool) -> String {
    let taken = TONIC_CLIENT_FUNCTIONS.contains(&name) || (has_connect && name == "connect");
    suffixed(name, taken)
}

/// The method's name in our stub.
pub(crate) fn stub_method(name: &str) -> String {
    suffixed(name, STUB_FUNCTIONS.contains(&name))
}

fn suffixed(name: &str, taken: bool) -> String {
    format!("{name}{}", if taken { "_" } else { "" })
}

/// The snake case of tonic's module names: an underscore before every upper-case letter but the
/// first, so that `ABCService` is `a_b_c_service`.
///
/// It differs from prost's (`abc_service`), and our module has to find tonic's beside it.
pub(crate) fn tonic_snake_case(name: &str) -> String {
    let mut snake = String::new();
    for (index, letter) in name.char_indices() {
        if index > 0 && letter.is_uppercase() {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}

/// prost's name for a field or a module.
pub(crate) fn prost_snake(name: &str) -> Ident {
    let snake = name.to_snake_case();
    if NEVER_RAW.contains(&snake.as_str()) {
        return Ident::new(&format!("{snake}_"), Span::call_site());
    }
    if snake.starts_with(char::is_numeric) {
        return Ident::new(&format!("_{snake}"), Span::call_site());
    }
    // A keyword of this or of a later edition is raw; any other raw identifier would be the same
    // name, and harder to read.
    match syn::parse_str::<Ident>(&snake) {
        Ok(ident) if snake != "gen" => ident,
        _ => Ident::new_raw(&snake, Span::call_site()),
    }
}

/// prost's name for a type or a variant.
pub(crate) fn prost_upper_camel(name: &str) -> String {
    let camel = name.to_upper_camel_case();
    match camel.as_str() {
        "Self" => "Self_".to_owned(),
        _ if camel.starts_with(char::is_numeric) => format!("_{camel}"),
        _ => camel,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_named_as_prost_does() {
        for (proto, rust) in [
            ("payload", "payload"),
            ("rawData", "raw_data"),
            ("type", "r#type"),
            ("gen", "r#gen"),
            ("self", "self_"),
            ("_1st", "_1st"),
        ] {
            assert_eq!(prost_snake(proto).to_string(), rust);
        }
    }

    #[test]
    fn types_are_named_as_prost_does() {
        for (proto, rust) in [("list_value", "ListValue"), ("self", "Self_"), ("_1st", "_1st")] {
            assert_eq!(prost_upper_camel(proto), rust);
        }
    }

    #[test]
    fn module_names_follow_tonic_and_not_prost() {
        assert_eq!(tonic_snake_case("ABCServiceX"), "a_b_c_service_x");
        assert_eq!(tonic_snake_case("greeter"), "greeter");
        assert_eq!(tonic_snake_case("V3Lock"), "v3_lock");
    }

    #[test]
    fn only_colliding_names_change() {
        assert_eq!(tonic_client_method("new", true), "new_");
        assert_eq!(tonic_client_method("connect", true), "connect_");
        assert_eq!(tonic_client_method("connect", false), "connect");
        assert_eq!(stub_method("connect"), "connect");
        assert_eq!(stub_method("new"), "new_");
        assert_eq!(stub_method("with_timeout"), "with_timeout_");
        assert_eq!(stub_method("with_wait_for_ready"), "with_wait_for_ready_");
        assert_eq!(stub_method("r#type"), "r#type");
        assert_eq!(tonic_server("Option"), "OptionRpc");
        assert_eq!(tonic_server("Channel"), "Channel");
    }
}
