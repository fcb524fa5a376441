//! Services that are described in Rust, without a `.proto` file.
//!
//! As `tonic_prost_build::manual`, with farcall's module behind tonic's in the same file. Messages
//! are types that exist already, and farcall has prost encode them: a type that is no
//! `prost::Message` does not compile beside farcall's module. Their fields are not known here, so
//! the levels of a message are not counted before it is sent: one of more than 100 levels is an
//! error of its receiver, and encoding one of thousands can overflow the sender's stack.
//!
//! ```no_run
//! use rpc_codegen::manual::{Builder, Method, Service};
//!
//! // build.rs
//! let say_hello = Method::builder()
//!     .name("say_hello")
//!     .route_name("SayHello")
//!     .input_type("crate::HelloRequest")
//!     .output_type("crate::HelloReply")
//!     .codec_path("::farcall::codegen::tonic_prost::ProstCodec")
//!     .build();
//! let greeter =
//! Service::builder().name("Greeter").package("helloworld").method(say_hello).build();
//! Builder::new().compile(&[greeter])?;
//! # Ok::<(), rpc_codegen::CodegenError>(())
//! ```

use std::fs;
use std::path::{Path, PathBuf};

use prost_build::Comments;
use prost_types::MethodOptions;
use tonic_prost_build::{TonicMethod, TonicService};

pub use tonic_prost_build::manual::{Method, MethodBuilder, Service, ServiceBuilder};

use crate::error::CodegenError;
use crate::generator;
use crate::messages::Messages;
use crate::settings::{self, InvalidSetting, RpcSettings};

/// The end of the path to the codec whose encoding is farcall's, wherever it is found.
const PROST_CODEC: &str = "tonic_prost::ProstCodec";

/// Settings for generating the code of such services.
#[derive(Debug, Clone)]
pub struct Builder {
    rpc: RpcSettings,
    build_transport: bool,
    out_dir: Option<PathBuf>,
    /// A setting that could not be parsed.
    rejected: Option<InvalidSetting>,
}

impl Default for Builder {
    fn default() -> Self {
        Self::new()
    }
}

impl Builder {
    /// Starts with the default settings.
    #[must_use]
    pub fn new() -> Self {
        // Paths of messages are as tonic takes them: seen from inside of a module.
        let rpc = RpcSettings { proto_path: "self".to_owned(), ..RpcSettings::new() };
        Self { rpc, build_transport: false, out_dir: None, rejected: None }
    }

    /// Whether to generate tonic's clients and our stubs; on by default.
    #[must_use]
    pub fn build_client(mut self, enable: bool) -> Self {
        self.rpc.build_client = enable;
        self
    }

    /// Whether to generate tonic's traits and servers and our services; on by default.
    #[must_use]
    pub fn build_server(mut self, enable: bool) -> Self {
        self.rpc.build_server = enable;
        self
    }

    /// As [`crate::Builder::build_transport`].
    #[must_use]
    pub fn build_transport(mut self, enable: bool) -> Self {
        self.build_transport = enable;
        self
    }

    /// The module that our generated code takes the runtime from; `::farcall::codegen` by default.
    #[must_use]
    pub fn runtime_path(mut self, path: impl AsRef<str>) -> Self {
        match settings::path("runtime_path", path.as_ref()) {
            Ok(path) => self.rpc.runtime = path,
            Err(error) => self.rejected = Some(error),
        }
        self
    }

    /// As [`crate::Builder::use_reexports`]. The codec of a method is the user's to name.
    #[must_use]
    pub fn use_reexports(mut self, enable: bool) -> Self {
        self.rpc.reexports = enable;
        self
    }

    /// Takes the services of a package from a crate that has them already, as
    /// [`crate::Builder::tonic_path`]: of them only farcall's module is generated. It is for crates
    /// that carry no `.proto` file. The paths of messages are those that the methods name.
    ///
    /// ```no_run
    /// use rpc_codegen::manual::{Builder, Method, Service};
    ///
    /// // build.rs
    /// let get = Method::builder()
    ///     .name("do_get")
    ///     .route_name("DoGet")
    ///     .input_type("::arrow_flight::Ticket")
    ///     .output_type("::arrow_flight::FlightData")
    ///     .codec_path("tonic_prost::ProstCodec")
    ///     .server_streaming()
    ///     .build();
    /// let package = "arrow.flight.protocol";
    /// let flight = Service::builder().name("FlightService").package(package).method(get).build();
    /// Builder::new().tonic_path(".arrow.flight.protocol", "::arrow_flight").compile(&[flight])?;
    /// # Ok::<(), rpc_codegen::CodegenError>(())
    /// ```
    #[must_use]
    pub fn tonic_path(mut self, package: impl AsRef<str>, module: impl AsRef<str>) -> Self {
        match settings::outside_path("tonic_path", module.as_ref()) {
            Ok(()) => self.rpc.tonic_paths.push(package.as_ref(), module.as_ref()),
            Err(error) => self.rejected = Some(error),
        }
        self
    }

    /// Where to write; `OUT_DIR` by default.
    #[must_use]
    pub fn out_dir(mut self, out_dir: impl AsRef<Path>) -> Self {
        self.out_dir = Some(out_dir.as_ref().to_owned());
        self
    }

    /// Writes a file for each service, `package.Service.rs`.
    ///
    /// # Errors
    ///
    /// When a setting or a codec is wrong, or a file cannot be written.
    ///
    /// # Panics
    ///
    /// As tonic's, when the type of a message is no path of Rust.
    pub fn compile(mut self, services: &[Service]) -> Result<(), CodegenError> {
        if let Some(invalid) = self.rejected.take() {
            return Err(invalid.into());
        }
        if self.build_transport && !cfg!(feature = "transport") {
            return Err(CodegenError::TransportFeature);
        }
        let from_env = || std::env::var_os("OUT_DIR").map(PathBuf::from);
        let out_dir = self.out_dir.clone().or_else(from_env).ok_or(CodegenError::OutDir)?;
        services.iter().try_for_each(|service| self.compile_one(service, &out_dir))
    }

    fn compile_one(&self, service: &Service, out_dir: &Path) -> Result<(), CodegenError> {
        let path = out_dir.join(format!("{}.{}.rs", service.package(), service.name()));
        let failed = |reason| CodegenError::Write { path: path.clone(), reason };
        for method in service.methods() {
            check(method)?;
        }
        let module =
            generator::farcall_module(&described(service), &self.rpc, &Messages::default());
        let invalid = |reason| CodegenError::Setting {
            setting: "manual::Service",
            value: service.name().to_owned(),
            reason,
        };
        let module = module.map_err(invalid)?;
        if self.rpc.tonic_paths.module(service.package()).is_some() {
            return fs::write(&path, module).map_err(failed);
        }
        // tonic's generator panics when it cannot write.
        fs::write(&path, "").map_err(failed)?;
        tonic_prost_build::manual::Builder::new()
            .build_client(self.rpc.build_client)
            .build_server(self.rpc.build_server)
            .build_transport(self.build_transport)
            .out_dir(out_dir)
            .compile(std::slice::from_ref(service));
        let mut text = fs::read_to_string(&path).map_err(failed)?;
        if self.rpc.reexports {
            text = generator::import_tonic(&text, &self.rpc).map_err(invalid)?;
        }
        text.push_str(&module);
        fs::write(&path, text).map_err(failed)
    }
}

/// Sees that tonic's generator, which panics on it, is given no nonsense.
fn check(method: &Method) -> Result<(), CodegenError> {
    let codec = method.codec_path();
    settings::path("codec_path", codec)?;
    if !codec.ends_with(PROST_CODEC) {
        let name = method.name();
        println!("cargo:warning=codec {codec:?} of {name} is tonic's: farcall encodes with prost");
    }
    Ok(())
}

/// The service as prost would describe it.
fn described(service: &Service) -> prost_build::Service {
    prost_build::Service {
        name: service.name().to_owned(),
        proto_name: service.identifier().to_owned(),
        package: service.package().to_owned(),
        comments: comments(service.comment()),
        methods: service.methods().iter().map(described_method).collect(),
        options: prost_types::ServiceOptions::default(),
    }
}

fn described_method(method: &Method) -> prost_build::Method {
    let (input, output) = method.request_response_name("", false);
    // As it was written: a path is told from another by how it begins.
    let [input_type, output_type] = [input, output].map(|path| path.to_string().replace(' ', ""));
    let deprecated = method.deprecated().then_some(true);
    prost_build::Method {
        name: method.name().to_owned(),
        proto_name: method.identifier().to_owned(),
        comments: comments(method.comment()),
        input_type,
        output_type,
        // Whose fields are not known.
        input_proto_type: String::new(),
        output_proto_type: String::new(),
        options: MethodOptions { deprecated, ..MethodOptions::default() },
        client_streaming: method.client_streaming(),
        server_streaming: method.server_streaming(),
    }
}

fn comments(leading: &[String]) -> Comments {
    Comments { leading_detached: Vec::new(), leading: leading.to_vec(), trailing: Vec::new() }
}
