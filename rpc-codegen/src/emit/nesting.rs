//! Functions that count the levels of a message before it is encoded, if its type can contain
//! itself.
//!
//! Each message on such a path gets a private function that calls those of its fields. Each message
//! of a method gets one more, for the descriptor to name.

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote};

use super::model::{LevelWalker, ServiceModel, WalkedAccess, WalkedField};
use crate::names;
use crate::settings::RpcSettings;

/// Emits the functions of a service.
pub(crate) fn items(service: &ServiceModel, settings: &RpcSettings) -> TokenStream {
    service.walkers.iter().map(|walker| functions(walker, settings)).collect()
}

/// Returns the name of the function that a descriptor names for messages with this walker.
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

/// Emits a condition that is true if the field's message has more levels than are left.
fn field(WalkedField { name, access, walker }: &WalkedField) -> TokenStream {
    let (name, levels) = (names::prost_snake(name), levels(*walker));
    match access {
        WalkedAccess::Required => quote!(#levels(&message.#name, left - 1)),
        WalkedAccess::Several => {
            quote!(message.#name.iter().any(|inner| #levels(inner, left - 1)))
        }
        // prost counts a map's entry as a level.
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
