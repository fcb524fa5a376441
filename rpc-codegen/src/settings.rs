//! What our own emitter has to know of the builder's settings, and reading pieces of Rust in them.
//!
//! prost and tonic unwrap what they cannot parse; a build script deserves the name of the setting.

use std::collections::HashSet;

use proc_macro2::{Span, TokenStream};
use quote::ToTokens;
use syn::parse::Parser;

use crate::mod_cfg::ModCfg;
use crate::tonic_paths::TonicPaths;

/// A builder setting that is not the piece of Rust that it has to be.
#[derive(Debug, Clone)]
pub(crate) struct InvalidSetting {
    /// The builder's method.
    pub(crate) setting: &'static str,
    /// What it was given.
    pub(crate) value: String,
    /// Why it does not parse.
    pub(crate) reason: syn::Error,
}

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
    pub(crate) tonic_paths: TonicPaths,
    pub(crate) runtime: TokenStream,
    /// Whether generated code finds tonic, tonic-prost and prost in the runtime.
    pub(crate) reexports: bool,
}

impl RpcSettings {
    /// The defaults.
    pub(crate) fn new() -> Self {
        Self {
            build_client: true,
            build_server: true,
            use_arc_self: false,
            proto_path: "super".to_owned(),
            disable_comments: HashSet::new(),
            server_cfg: ModCfg::default(),
            client_cfg: ModCfg::default(),
            tonic_paths: TonicPaths::default(),
            runtime: quote::quote!(::farcall::codegen),
            reexports: true,
        }
    }
}

impl RpcSettings {
    /// Where generated code finds `krate`; nothing where it is the user's own dependency.
    pub(crate) fn reexported(&self, krate: &str) -> Option<String> {
        let runtime = self.runtime.to_string().replace(' ', "");
        self.reexports.then(|| format!("{runtime}::{krate}"))
    }
}

/// Reads a path such as `::farcall::codegen`.
pub(crate) fn path(setting: &'static str, value: &str) -> Result<TokenStream, InvalidSetting> {
    syn::parse_str(value)
        .map(syn::Path::into_token_stream)
        .map_err(|reason| invalid(setting, value, reason))
}

/// Reads a type such as `::prost_wkt_types::Timestamp`.
pub(crate) fn rust_type(setting: &'static str, value: &str) -> Result<syn::Type, InvalidSetting> {
    syn::parse_str(value).map_err(|reason| invalid(setting, value, reason))
}

/// Reads the path of a module that is outside of what is generated.
pub(crate) fn outside_path(setting: &'static str, value: &str) -> Result<(), InvalidSetting> {
    path(setting, value)?;
    if value.starts_with("::") || value.starts_with("crate::") {
        return Ok(());
    }
    let reason = "it begins with neither `::` nor `crate::`";
    Err(invalid(setting, value, syn::Error::new(Span::call_site(), reason)))
}

/// Reads attributes such as `#[derive(Hash)] #[serde(default)]`.
pub(crate) fn attributes(
    setting: &'static str,
    value: &str,
) -> Result<Vec<syn::Attribute>, InvalidSetting> {
    let parser = syn::Attribute::parse_outer;
    parser.parse_str(value).map_err(|reason| invalid(setting, value, reason))
}

fn invalid(setting: &'static str, value: &str, reason: syn::Error) -> InvalidSetting {
    InvalidSetting { setting, value: value.to_owned(), reason }
}
