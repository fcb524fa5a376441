//! The service: serves an implementation of tonic's trait through farcall's runtime.

use proc_macro2::TokenStream;
use quote::quote;

use super::limits::{self, Side};
use super::model::{MethodModel, ServiceModel};
use crate::settings::RpcSettings;

/// Emits `GreeterService<T>` and its implementations.
pub(crate) fn items(service: &ServiceModel, settings: &RpcSettings) -> TokenStream {
    let cfg = settings.server_cfg.of(&service.package);
    let definition = definition(service, settings);
    let dispatch = dispatch(service, settings);
    let (name, runtime) = (&service.service, &settings.runtime);
    let (name_text, full_name) = (name.to_string(), &service.full_name);
    quote! {
        #(#cfg)*
        #definition
        #(#cfg)*
        #dispatch
        #(#cfg)*
        impl<T> #runtime::NamedService for #name<T> {
            const NAME: &'static str = #full_name;
        }
        #(#cfg)*
        impl<T> ::core::clone::Clone for #name<T> {
            fn clone(&self) -> Self {
                Self { inner: ::core::clone::Clone::clone(&self.inner), limits: self.limits }
            }
        }
        #(#cfg)*
        impl<T> ::core::fmt::Debug for #name<T> {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                f.debug_struct(#name_text).finish_non_exhaustive()
            }
        }
    }
}

/// Emits the struct and its constructors, under the same conditions as everything else here.
fn definition(service: &ServiceModel, settings: &RpcSettings) -> TokenStream {
    let runtime = &settings.runtime;
    let cfg = settings.server_cfg.of(&service.package);
    let (name, tonic_trait) = (&service.service, &service.tonic_trait);
    let doc = format!(" Serves an implementation of `{}` over farcall.", service.full_name);
    let limits = limits::setters(&LIMITED);
    quote! {
        #[doc = #doc]
        pub struct #name<T> {
            inner: #runtime::Arc<T>,
            limits: #runtime::MessageLimits,
        }
        #(#cfg)*
        impl<T: #tonic_trait> #name<T> {
            /// Serves `inner`.
            pub fn new(inner: T) -> Self {
                Self::from_arc(#runtime::Arc::new(inner))
            }

            /// Serves an implementation that is shared, with tonic's server for one.
            pub fn from_arc(inner: #runtime::Arc<T>) -> Self {
                Self { inner, limits: #runtime::MessageLimits::NONE }
            }

            #limits
        }
    }
}

const LIMITED: Side = Side {
    field: "limits",
    name: "service",
    takes: ("request", "server"),
    sends: ("response", "client"),
};

fn dispatch(service: &ServiceModel, settings: &RpcSettings) -> TokenStream {
    let runtime = &settings.runtime;
    let (name, tonic_trait) = (&service.service, &service.tonic_trait);
    let arms = service.methods.iter().enumerate();
    let arms = arms.map(|(index, method)| arm(index, method, service, settings));
    quote! {
        impl<T: #tonic_trait> #runtime::Service for #name<T> {
            fn descriptor(&self) -> &'static #runtime::ServiceDescriptor {
                &SERVICE
            }

            fn call(
                &self,
                method: usize,
                mut call: #runtime::ServerCall,
            ) -> #runtime::HandlerFuture {
                let inner = #runtime::Arc::clone(&self.inner);
                call.limit(self.limits);
                match method {
                    #(#arms)*
                    _ => call.unimplemented(),
                }
            }
        }
    }
}

fn arm(
    index: usize,
    method: &MethodModel,
    service: &ServiceModel,
    settings: &RpcSettings,
) -> TokenStream {
    let index = proc_macro2::Literal::usize_unsuffixed(index);
    let (kind, tonic_trait) = (method.kind(), &service.tonic_trait);
    let trait_method = &method.trait_method;
    let receiver = if settings.use_arc_self { quote!(inner) } else { quote!(&inner) };
    quote! {
        #index => call.#kind(move |request| async move {
            <T as #tonic_trait>::#trait_method(#receiver, request).await
        }),
    }
}
