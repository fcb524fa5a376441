//! The static description of a service: names, call kinds, idempotency.

use proc_macro2::TokenStream;
use quote::quote;

use super::detach;
use super::model::{MethodModel, ServiceModel};
use crate::settings::RpcSettings;

/// Emits `SERVICE`. The service and the stub index it by the method's position in the `.proto`
/// file.
pub(crate) fn items(service: &ServiceModel, settings: &RpcSettings) -> TokenStream {
    let runtime = &settings.runtime;
    let name = &service.full_name;
    let methods = service.methods.iter().map(|method| method_descriptor(method, settings));
    quote! {
        /// Name and methods, in the order of the `.proto` file.
        pub static SERVICE: #runtime::ServiceDescriptor = #runtime::ServiceDescriptor {
            name: #name,
            methods: &[#(#methods),*],
        };
    }
}

fn method_descriptor(method: &MethodModel, settings: &RpcSettings) -> TokenStream {
    let runtime = &settings.runtime;
    let (path, kind, idempotency) = (&method.path, method.kind_variant(), &method.idempotency);
    let descriptor = quote! {
        #runtime::MethodDescriptor::new(
            #path,
            #runtime::CallKind::#kind,
            #runtime::Idempotency::#idempotency,
        )
    };
    match detach::value(method, settings) {
        Some(detach) => quote!(#runtime::with_detach(#descriptor, #detach)),
        None => descriptor,
    }
}
