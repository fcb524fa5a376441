//! Rust names of services and methods: tonic's rules, and the exceptions for collisions.
//!
//! tonic names its modules `snake(Name)_client` and `snake(Name)_server` with its own snake case,
//! and puts methods next to its own inherent ones. A method `New` would give a client two `new`,
//! and the trait of a service `Option` would hide the `Option` that its module uses. Neither
//! compiles. Such a method gets an underscore, like prost's `self_`. Such a trait becomes
//! `OptionRpc`, since rustc warns about a module `option__server`.

use heck::{ToSnakeCase, ToUpperCamelCase};
use proc_macro2::{Ident, Span};

/// Names that cannot be raw identifiers. prost appends an underscore.
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

/// Names that tonic's server module uses without a path. A trait of the same name in the module
/// would hide them.
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

/// Returns the stem of tonic's server module, server and trait.
pub(crate) fn tonic_server(service: &str) -> String {
    let taken = TONIC_SERVER_NAMES.contains(&service);
    format!("{service}{}", if taken { "Rpc" } else { "" })
}

/// Returns the method's name in tonic's client.
pub(crate) fn tonic_client_method(name: &str, has_connect: bool) -> String {
    let taken = TONIC_CLIENT_FUNCTIONS.contains(&name) || (has_connect && name == "connect");
    suffixed(name, taken)
}

/// Returns the method's name in our stub.
pub(crate) fn stub_method(name: &str) -> String {
    suffixed(name, STUB_FUNCTIONS.contains(&name))
}

fn suffixed(name: &str, taken: bool) -> String {
    format!("{name}{}", if taken { "_" } else { "" })
}

/// Converts to the snake case of tonic's module names: an underscore before every upper-case letter
/// but the first. `ABCService` becomes `a_b_c_service`.
///
/// prost's snake case differs (`abc_service`), and our module must find tonic's.
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

/// Returns prost's name for a field or a module.
pub(crate) fn prost_snake(name: &str) -> Ident {
    let snake = name.to_snake_case();
    if NEVER_RAW.contains(&snake.as_str()) {
        return Ident::new(&format!("{snake}_"), Span::call_site());
    }
    if snake.starts_with(char::is_numeric) {
        return Ident::new(&format!("_{snake}"), Span::call_site());
    }
    // Keywords of this or a later edition are raw. Raw form would not change any other name, only
    // make it harder to read.
    match syn::parse_str::<Ident>(&snake) {
        Ok(ident) if snake != "gen" => ident,
        _ => Ident::new_raw(&snake, Span::call_site()),
    }
}

/// Returns prost's name for a type or a variant.
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
    fn fields_follow_prosts_names() {
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
    fn types_follow_prosts_names() {
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
