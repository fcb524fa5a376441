//! The hook in prost-build: tonic's text for a service, then ours.
//!
//! tonic's client and server come from two generators of tonic's, because the names that have to
//! give way differ: a method `New` only disturbs the client, a service `Option` only the server.

use prost_build::{Service, ServiceGenerator};

use crate::emit::{self, ServiceModel};
use crate::messages::Messages;
use crate::settings::RpcSettings;
use crate::tonic_paths::TonicPaths;
use crate::{message_type, names};

/// Generates tonic's modules and appends the farcall module.
pub(crate) struct Generator {
    /// tonic's generator of clients, unless clients are not wanted.
    pub(crate) client: Option<Box<dyn ServiceGenerator>>,
    /// tonic's generator of servers, unless servers are not wanted.
    pub(crate) server: Option<Box<dyn ServiceGenerator>>,
    /// Whether tonic's clients get a `connect`.
    pub(crate) has_connect: bool,
    /// The packages whose services other crates have.
    pub(crate) tonic_paths: TonicPaths,
    /// How our module should look, unless it is not wanted.
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
                    // prost takes services to have some text, and panics otherwise.
                    buf.push('\n');
                }
                buf.push_str(&module.unwrap_or_default());
            }
            // tonic would panic on the same type; rustc shows this to the user with its reason.
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
    /// Whether another crate has the service's tonic modules.
    fn is_outside(&self, service: &Service) -> bool {
        self.tonic_paths.module(&service.package).is_some()
    }

    /// The text of tonic's modules, which name tonic as a dependency of the user's crate, with an
    /// import of it where it is one of the runtime's.
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

/// Has each module of `text` import tonic from the runtime.
///
/// # Errors
///
/// When the text is not Rust.
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

/// The text of our module.
///
/// # Errors
///
/// When a message's path is not Rust.
pub(crate) fn farcall_module(
    service: &Service,
    settings: &RpcSettings,
    messages: &Messages,
) -> Result<String, syn::Error> {
    let model = ServiceModel::new(service, settings, messages)?;
    let file = syn::parse2(emit::module(&model, settings))?;
    Ok(prettyplease::unparse(&file))
}
