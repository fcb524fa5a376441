//! The text of our module: `greeter_rpc` with the descriptor, the service and the stub.
//!
//! Every outside name is a full path, so that no message, service or method name of the user can
//! change the meaning of the text. Messages, tonic's trait and its modules come from prost and
//! tonic. Nothing here knows `.proto` syntax.

mod client;
mod descriptor;
mod detach;
mod limits;
mod model;
mod nesting;
mod server;

use proc_macro2::TokenStream;
use quote::quote;

pub(crate) use self::model::ServiceModel;
use crate::settings::RpcSettings;

/// Emits the module of one service.
pub(crate) fn module(service: &ServiceModel, settings: &RpcSettings) -> TokenStream {
    let name = &service.module;
    let title = format!(" farcall glue for `{}`.", service.full_name);
    let docs = &service.docs;
    let gap = (!docs.is_empty()).then(|| quote!(#[doc = ""]));
    let descriptor = descriptor::items(service, settings);
    let detach = detach::items(service, settings);
    let nesting = nesting::items(service, settings);
    let server = settings.build_server.then(|| server::items(service, settings));
    let client = settings.build_client.then(|| client::items(service, settings));
    quote! {
        #[doc = #title]
        #gap
        #(#[doc = #docs])*
        pub mod #name {
            #![allow(
                dead_code,
                deprecated,
                missing_docs,
                unused_variables,
                clippy::all,
                clippy::pedantic,
            )]
            #descriptor
            #detach
            #nesting
            #server
            #client
        }
    }
}
