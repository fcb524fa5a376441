//! prost-build's hook for services: tonic's text, then ours.
//!
//! Two of tonic's generators produce its client and server, because different names collide: a
//! method `New` only affects the client, a service `Option` only the server.

use prost_build::{Service, ServiceGenerator};

use crate::emit::{self, ServiceModel};
use crate::messages::Messages;
use crate::settings::RpcSettings;
use crate::tonic_paths::TonicPaths;
use crate::{message_type, names};

/// A generator of tonic's modules and the farcall module.
pub(crate) struct Generator {
    /// tonic's generator of clients, if clients are wanted.
    pub(crate) client: Option<Box<dyn ServiceGenerator>>,
    /// tonic's generator of servers, if servers are wanted.
    pub(crate) server: Option<Box<dyn ServiceGenerator>>,
    /// True if tonic's clients have a `connect`.
    pub(crate) has_connect: bool,
    /// The packages whose services come from other crates.
    pub(crate) tonic_paths: TonicPaths,
    /// The settings of our module, if it is wanted.
    pub(crate) rpc: Option<RpcSettings>,
    pub(crate) messages: Messages,
}

impl ServiceGenerator for Generator {
    fn generate(&mut self, mut service: Service, buf: &mut String) {
        for method in &mut service.methods {
            message_type::make_absolute(&mut method.input_type);
            message_type::make_absolute(&mut method.output_type);
        }
        let module = self.rpc.as_ref();
        let module = module.map(|settings| farcall_module(&service, settings, &self.messages));
        match module.transpose() {
            Ok(module) => {
                if !self.is_outside(&service) {
                    let mut tonic = String::new();
                    self.generate_tonic(&service, &mut tonic);
                    buf.push_str(&self.with_imports(tonic));
                } else if module.is_none() {
                    // prost panics if a service has no text at all.
                    buf.push('\n');
                }
                buf.push_str(&module.unwrap_or_default());
            }
            // tonic would panic on the same type. rustc shows this error to the user instead.
            Err(error) => buf.push_str(&error.to_compile_error().to_string()),
        }
    }

    fn finalize(&mut self, buf: &mut String) {
        for tonic in [&mut self.client, &mut self.server].into_iter().flatten() {
            tonic.finalize(buf);
        }
    }

    fn finalize_package(&mut self, package: &str, buf: &mut String) {
        for tonic in [&mut self.client, &mut self.server].into_iter().flatten() {
            tonic.finalize_package(package, buf);
        }
    }
}

impl Generator {
    /// Returns true if another crate has the service's tonic modules.
    fn is_outside(&self, service: &Service) -> bool {
        self.tonic_paths.module(&service.package).is_some()
    }

    /// Adds an import of tonic to the text of tonic's modules if the runtime re-exports it. The
    /// text names tonic like a dependency of the user's crate.
    fn with_imports(&self, text: String) -> String {
        match &self.rpc {
            Some(settings) if settings.reexports => import_tonic(&text, settings)
                .unwrap_or_else(|error| error.to_compile_error().to_string()),
            _ => text,
        }
    }

    fn generate_tonic(&mut self, service: &Service, buf: &mut String) {
        if let Some(client) = &mut self.client {
            let mut service = service.clone();
            for method in &mut service.methods {
                method.name = names::tonic_client_method(&method.name, self.has_connect);
            }
            client.generate(service, buf);
        }
        if let Some(server) = &mut self.server {
            let mut service = service.clone();
            service.name = names::tonic_server(&service.name);
            server.generate(service, buf);
        }
    }
}

/// Makes each module of `text` import tonic from the runtime.
///
/// # Errors
///
/// Returns an error if the text is not valid Rust.
pub(crate) fn import_tonic(text: &str, settings: &RpcSettings) -> Result<String, syn::Error> {
    let mut file = syn::parse_file(text)?;
    let runtime = &settings.runtime;
    for item in &mut file.items {
        if let syn::Item::Mod(syn::ItemMod { content: Some((_, items)), .. }) = item {
            items.insert(0, syn::parse_quote!(use #runtime::tonic;));
        }
    }
    Ok(prettyplease::unparse(&file))
}

/// Returns the text of our module.
///
/// # Errors
///
/// Returns an error if a message's path is not valid Rust.
pub(crate) fn farcall_module(
    service: &Service,
    settings: &RpcSettings,
    messages: &Messages,
) -> Result<String, syn::Error> {
    let model = ServiceModel::new(service, settings, messages)?;
    let file = syn::parse2(emit::module(&model, settings))?;
    Ok(prettyplease::unparse(&file))
}
