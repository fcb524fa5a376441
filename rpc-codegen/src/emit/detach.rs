//! The functions that show the runtime the `bytes` fields of a method's message.
//!
//! Each message of each method gets one private function, named in the method's descriptor. No
//! trait is implemented for a message, so messages from elsewhere need nothing, and two services
//! may share a message.

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote};

use super::model::{MessageModel, MethodModel, ServiceModel};
use super::nesting;
use crate::settings::RpcSettings;

/// Emits the functions of a service.
pub(crate) fn items(service: &ServiceModel, settings: &RpcSettings) -> TokenStream {
    let functions = service.methods.iter().flat_map(|method| {
        let sides = [("request", &method.request), ("response", &method.response)];
        sides.map(|(side, message)| function(&name(method, side), message, settings))
    });
    functions.collect()
}

/// Returns the accessors of a method's messages; `None` where no message needs any.
pub(crate) fn value(method: &MethodModel, settings: &RpcSettings) -> Option<TokenStream> {
    let runtime = &settings.runtime;
    if !has_detacher(&method.request) && !has_detacher(&method.response) {
        return None;
    }
    let side = |side: &str, message: &MessageModel| {
        if !has_detacher(message) {
            return quote!(::core::option::Option::None);
        }
        let name = name(method, side);
        let check = message.walker.map(nesting::check);
        let check = check.map(|check| quote!(.with_nesting_check(#check)));
        quote!(::core::option::Option::Some(#runtime::Detacher::new(#name) #check))
    };
    let request = side("request", &method.request);
    let response = side("response", &method.response);
    Some(quote!(#runtime::Detach { request: #request, response: #response }))
}

/// Returns true if a message of this type needs work before it is encoded.
fn has_detacher(message: &MessageModel) -> bool {
    !message.bytes_fields.is_empty() || message.walker.is_some()
}

fn name(method: &MethodModel, side: &str) -> Ident {
    format_ident!("fields_of_{}_{side}", method.trait_method)
}

fn function(name: &Ident, message: &MessageModel, settings: &RpcSettings) -> TokenStream {
    if !has_detacher(message) {
        return TokenStream::new();
    }
    let (runtime, path) = (&settings.runtime, &message.path);
    let fields = message.bytes_fields.iter().map(|field| {
        let (number, name) = (field.number, &field.name);
        let number = proc_macro2::Literal::u32_unsuffixed(number);
        quote!((#number, &mut message.#name))
    });
    let parameter = if message.bytes_fields.is_empty() { quote!(_) } else { quote!(message) };
    quote! {
        fn #name(
            message: ::core::option::Option<&mut dyn ::core::any::Any>,
            visit: #runtime::FieldVisitor<'_>,
        ) {
            #runtime::with_fields::<#path>(message, |#parameter| visit(&mut [#(#fields),*]));
        }
    }
}
