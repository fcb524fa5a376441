//! Services that are described in Rust, without a `.proto` file.
//!
//! Works like `tonic_prost_build::manual`, with farcall's module after tonic's in the same file.
//! Messages are existing types, and farcall encodes them with prost: a type that is no
//! `prost::Message` does not compile with farcall's module.
//!
//! Their fields are unknown here, so their levels are not counted before sending. A message of more
//! than 100 levels is an error at its receiver, and encoding one of thousands can overflow the
//! sender's stack.
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

/// The end of every path to the codec that farcall's encoding matches.
const PROST_CODEC: &str = "tonic_prost::ProstCodec";

/// A builder for such services.
#[derive(Debug, Clone)]
pub struct Builder {
    rpc: RpcSettings,
    build_transport: bool,
    out_dir: Option<PathBuf>,
    /// An invalid setting.
    rejected: Option<InvalidSetting>,
}

impl Default for Builder {
    fn default() -> Self {
        Self::new()
    }
}

impl Builder {
    /// Returns a builder with the default settings.
    #[must_use]
    pub fn new() -> Self {
        // Like tonic, resolves message paths from inside a module.
        let rpc = RpcSettings { proto_path: "self".to_owned(), ..RpcSettings::new() };
        Self { rpc, build_transport: false, out_dir: None, rejected: None }
    }

    /// Enables or disables generation of tonic's clients and our stubs. On by default.
    #[must_use]
    pub fn build_client(mut self, enable: bool) -> Self {
        self.rpc.build_client = enable;
        self
    }

    /// Enables or disables generation of tonic's traits and servers and our services. On by
    /// default.
    #[must_use]
    pub fn build_server(mut self, enable: bool) -> Self {
        self.rpc.build_server = enable;
        self
    }

    /// Works like [`crate::Builder::build_transport`].
    #[must_use]
    pub fn build_transport(mut self, enable: bool) -> Self {
        self.build_transport = enable;
        self
    }

    /// Sets the module through which generated code reaches the runtime. Defaults to
    /// `::farcall::codegen`.
    #[must_use]
    pub fn runtime_path(mut self, path: impl AsRef<str>) -> Self {
        match settings::path("runtime_path", path.as_ref()) {
            Ok(path) => self.rpc.runtime = path,
            Err(error) => self.rejected = Some(error),
        }
        self
    }

    /// Works like [`crate::Builder::use_reexports`]. The caller names the codec of each method.
    #[must_use]
    pub fn use_reexports(mut self, enable: bool) -> Self {
        self.rpc.reexports = enable;
        self
    }

    /// Takes the services of a package from a crate that already has them, like
    /// [`crate::Builder::tonic_path`]. Only farcall's module is generated.
    ///
    /// Use it for crates that ship no `.proto` file. The methods name the paths of their messages.
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

    /// Sets the output directory. Defaults to `OUT_DIR`.
    #[must_use]
    pub fn out_dir(mut self, out_dir: impl AsRef<Path>) -> Self {
        self.out_dir = Some(out_dir.as_ref().to_owned());
        self
    }

    /// Writes one file per service, `package.Service.rs`.
    ///
    /// # Errors
    ///
    /// Returns an error if a setting or a codec is invalid, or if a file cannot be written.
    ///
    /// # Panics
    ///
    /// Panics, in tonic's code, if the type of a message is not a Rust path.
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
        // tonic's generator panics if it cannot write the file, so this finds out first.
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

/// Checks a method for values on which tonic's generator panics.
fn check(method: &Method) -> Result<(), CodegenError> {
    let codec = method.codec_path();
    settings::path("codec_path", codec)?;
    if !codec.ends_with(PROST_CODEC) {
        let name = method.name();
        println!("cargo:warning=codec {codec:?} of {name} is tonic's: farcall encodes with prost");
    }
    Ok(())
}

/// Describes the service the way prost does.
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
    // Restores the original spelling: the start of a path tells its kind.
    let [input_type, output_type] = [input, output].map(|path| path.to_string().replace(' ', ""));
    let deprecated = method.deprecated().then_some(true);
    prost_build::Method {
        name: method.name().to_owned(),
        proto_name: method.identifier().to_owned(),
        comments: comments(method.comment()),
        input_type,
        output_type,
        // The types have no known fields.
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
