//! Settings for our own emitter, and the parsing of Rust fragments in settings.
//!
//! prost and tonic unwrap what they cannot parse. A build script deserves the name of the setting.

use std::collections::HashSet;

use proc_macro2::{Span, TokenStream};
use quote::ToTokens;
use syn::parse::Parser;

use crate::mod_cfg::ModCfg;
use crate::tonic_paths::TonicPaths;

/// A builder setting that is not valid Rust.
#[derive(Debug, Clone)]
pub(crate) struct InvalidSetting {
    /// The builder's method.
    pub(crate) setting: &'static str,
    /// The value.
    pub(crate) value: String,
    /// The parser's message.
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
    /// True if generated code reaches tonic, tonic-prost and prost through the runtime.
    pub(crate) reexports: bool,
}

impl RpcSettings {
    /// Returns the defaults.
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
    /// Returns the path of `krate` in the runtime, or `None` if it is the user's own dependency.
    pub(crate) fn reexported(&self, krate: &str) -> Option<String> {
        let runtime = self.runtime.to_string().replace(' ', "");
        self.reexports.then(|| format!("{runtime}::{krate}"))
    }
}

/// Parses a path such as `::farcall::codegen`.
pub(crate) fn path(setting: &'static str, value: &str) -> Result<TokenStream, InvalidSetting> {
    syn::parse_str(value)
        .map(syn::Path::into_token_stream)
        .map_err(|reason| invalid(setting, value, reason))
}

/// Parses a type such as `::prost_wkt_types::Timestamp`.
pub(crate) fn rust_type(setting: &'static str, value: &str) -> Result<syn::Type, InvalidSetting> {
    syn::parse_str(value).map_err(|reason| invalid(setting, value, reason))
}

/// Checks the path of a module outside the generated code.
pub(crate) fn outside_path(setting: &'static str, value: &str) -> Result<(), InvalidSetting> {
    path(setting, value)?;
    if value.starts_with("::") || value.starts_with("crate::") {
        return Ok(());
    }
    let reason = "it must begin with `::` or `crate::`";
    Err(invalid(setting, value, syn::Error::new(Span::call_site(), reason)))
}

/// Parses attributes such as `#[derive(Hash)] #[serde(default)]`.
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
