//! The stub: one async function per method, over any caller.

use proc_macro2::TokenStream;
use quote::quote;

use super::limits::{self, Side};
use super::model::{MethodModel, ServiceModel};
use crate::settings::RpcSettings;

/// Emits `GreeterStub<C>` and its methods.
pub(crate) fn items(service: &ServiceModel, settings: &RpcSettings) -> TokenStream {
    let runtime = &settings.runtime;
    let cfg = settings.client_cfg.of(&service.package);
    let name = &service.stub;
    let doc = format!(" Calls `{}` over farcall.", service.full_name);
    let methods = service.methods.iter().enumerate();
    let methods = methods.map(|(index, method)| stub_method(index, method, settings));
    let limits = limits::setters(&LIMITED);
    let connect = connect(service, settings);
    quote! {
        #(#cfg)*
        #[doc = #doc]
        #[derive(Clone, Debug)]
        pub struct #name<C = #runtime::Channel> {
            caller: C,
            options: #runtime::CallOptions,
        }
        #(#cfg)*
        impl<C: #runtime::Caller> #name<C> {
            /// Makes the calls through `caller`.
            pub fn new(caller: C) -> Self {
                Self { caller, options: #runtime::CallOptions::NONE }
            }

            /// Shows each request to one of tonic's interceptors before the call is made.
            pub fn with_interceptor<F: #runtime::Interceptor>(
                self,
                interceptor: F,
            ) -> #name<#runtime::Intercepted<C, F>> {
                let caller = #runtime::Intercepted::new(self.caller, interceptor);
                #name { caller, options: self.options }
            }

            #limits

            /// Sets a timeout for calls whose request sets none, in place of the channel's. A
            /// stream that is still open then ends, too.
            #[must_use]
            pub fn with_timeout(mut self, timeout: ::core::time::Duration) -> Self {
                self.options = self.options.with_timeout(timeout);
                self
            }

            /// Sets whether calls wait while the channel cannot connect, or fail at once, in place
            /// of what the channel says.
            #[must_use]
            pub fn with_wait_for_ready(mut self, waits: bool) -> Self {
                self.options = self.options.with_wait_for_ready(waits);
                self
            }

            #(#methods)*
        }
        #connect
    }
}

const LIMITED: Side = Side {
    field: "options",
    name: "stub",
    takes: ("response", "channel"),
    sends: ("request", "server"),
};

/// Emits `connect`, as tonic's clients have it, unless a method has that name.
fn connect(service: &ServiceModel, settings: &RpcSettings) -> Option<TokenStream> {
    let (runtime, name) = (&settings.runtime, &service.stub);
    let cfg = settings.client_cfg.of(&service.package);
    let is_free = service.methods.iter().all(|method| method.stub_method != "connect");
    is_free.then(|| {
        quote! {
            #(#cfg)*
            impl #name<#runtime::Channel> {
                /// Connects to a server, and makes the calls over that channel: what
                /// `Channel::connect` and `new` do.
                pub async fn connect(
                    address: impl #runtime::IntoAddress,
                ) -> ::core::result::Result<Self, #runtime::ConnectError> {
                    let channel = #runtime::connect(address).await?;
                    ::core::result::Result::Ok(Self::new(channel))
                }
            }
        }
    })
}

fn stub_method(index: usize, method: &MethodModel, settings: &RpcSettings) -> TokenStream {
    let runtime = &settings.runtime;
    let index = proc_macro2::Literal::usize_unsuffixed(index);
    let (docs, name, kind) = (&method.docs, &method.stub_method, method.kind());
    let deprecated = method.deprecated.then(|| quote!(#[deprecated]));
    let (argument, conversion) = argument(method, settings);
    let reply = reply(method, settings);
    quote! {
        #(#[doc = #docs])*
        #deprecated
        pub async fn #name(
            &self,
            request: #argument,
        ) -> ::core::result::Result<#runtime::Response<#reply>, #runtime::Status> {
            let mut request = #conversion(request);
            self.options.apply(&mut request);
            #runtime::#kind(&self.caller, &SERVICE.methods[#index], request).await
        }
    }
}

/// Returns the type of the argument, and the function that turns it into a request.
fn argument(method: &MethodModel, settings: &RpcSettings) -> (TokenStream, TokenStream) {
    let (runtime, request) = (&settings.runtime, &method.request.path);
    if method.client_streaming {
        let argument = quote!(impl #runtime::IntoStreamingRequest<Message = #request>);
        (argument, quote!(#runtime::IntoStreamingRequest::into_streaming_request))
    } else {
        let argument = quote!(impl #runtime::IntoRequest<#request>);
        (argument, quote!(#runtime::IntoRequest::into_request))
    }
}

fn reply(method: &MethodModel, settings: &RpcSettings) -> TokenStream {
    let (runtime, response) = (&settings.runtime, &method.response.path);
    if method.server_streaming { quote!(#runtime::Streaming<#response>) } else { response.clone() }
}
