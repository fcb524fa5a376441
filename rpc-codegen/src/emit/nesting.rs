//! Counting the levels of a message before it is encoded, where its type can hold itself.
//!
//! One private function for each message of the way, which calls the functions of its fields, and
//! one for each message of a method, which a descriptor can name.

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote};

use super::model::{LevelWalker, ServiceModel, WalkedAccess, WalkedField};
use crate::names;
use crate::settings::RpcSettings;

/// The functions of a service.
pub(crate) fn items(service: &ServiceModel, settings: &RpcSettings) -> TokenStream {
    service.walkers.iter().map(|walker| functions(walker, settings)).collect()
}

/// The function that a descriptor names for the messages with that walker.
pub(crate) fn check(walker: usize) -> Ident {
    format_ident!("nests_too_deep_{walker}")
}

fn functions(walker: &LevelWalker, settings: &RpcSettings) -> TokenStream {
    let (runtime, path) = (&settings.runtime, &walker.path);
    let (check, levels) = (check(walker.number), levels(walker.number));
    let fields = walker.fields.iter().map(field);
    quote! {
        fn #check(message: &dyn ::core::any::Any) -> bool {
            let message = message.downcast_ref::<#path>();
            message.is_some_and(|message| #levels(message, #runtime::NESTING_MAX))
        }
        fn #levels(message: &#path, left: i32) -> bool {
            left < 0 #(|| #fields)*
        }
    }
}

fn levels(walker: usize) -> Ident {
    format_ident!("has_more_levels_{walker}")
}

/// True if what a field holds has more levels than are left.
fn field(WalkedField { name, access, walker }: &WalkedField) -> TokenStream {
    let (name, levels) = (names::prost_snake(name), levels(*walker));
    match access {
        WalkedAccess::Required => quote!(#levels(&message.#name, left - 1)),
        WalkedAccess::Several => {
            quote!(message.#name.iter().any(|inner| #levels(inner, left - 1)))
        }
        // prost counts an entry of a map, too.
        WalkedAccess::MapValue => {
            quote!(message.#name.values().any(|inner| #levels(inner, left - 2)))
        }
        WalkedAccess::Variant { oneof, path } => {
            let oneof = names::prost_snake(oneof);
            quote! {
                match &message.#oneof {
                    ::core::option::Option::Some(#path(inner)) => #levels(inner, left - 1),
                    _ => false,
                }
            }
        }
    }
}
