//! What our own emitter has to know of the builder's settings, and reading pieces of Rust in them.
//!
//! prost and tonic unwrap what they cannot parse; a build script deserves the name of the setting.

use std::collections::HashSet;

use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::parse::Parser;

use crate::error::CodegenError;
use crate::mod_cfg::ModCfg;

/// Settings of the farcall module.
#[derive(Debug, Clone)]
pub(crate) struct RpcSettings {
    pub(crate) build_client: bool,
    pub(crate) build_server: bool,
    pub(crate) use_arc_self: bool,
    pub(crate) proto_path: String,
    pub(crate) disable_comments: HashSet<String>,
    pub(crate) server_cfg: ModCfg,
    pub(crate) client_cfg: ModCfg,
    pub(crate) runtime: TokenStream,
}

/// Reads a path such as `::farcall::codegen`.
pub(crate) fn path(knob: &'static str, value: &str) -> Result<TokenStream, CodegenError> {
    syn::parse_str(value)
        .map(syn::Path::into_token_stream)
        .map_err(|source| invalid(knob, value, source))
}

/// Reads a type such as `::prost_wkt_types::Timestamp`.
pub(crate) fn rust_type(knob: &'static str, value: &str) -> Result<syn::Type, CodegenError> {
    syn::parse_str(value).map_err(|source| invalid(knob, value, source))
}

/// Reads attributes such as `#[derive(Hash)] #[serde(default)]`.
pub(crate) fn attributes(
    knob: &'static str,
    value: &str,
) -> Result<Vec<syn::Attribute>, CodegenError> {
    let parser = syn::Attribute::parse_outer;
    parser.parse_str(value).map_err(|source| invalid(knob, value, source))
}

fn invalid(knob: &'static str, value: &str, source: syn::Error) -> CodegenError {
    CodegenError::Setting { knob, value: value.to_owned(), source }
}
