//! The builder: tonic-prost-build's settings under their own names, and three of ours.
//!
//! Each setter hands its value to prost's configuration or to tonic's generator at once; what
//! cannot be parsed is remembered and reported when compiling starts. Absent are
//! `emit_package(false)`, which tonic ignores, and what only concerns protoc.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use prost_build::ServiceGenerator;

use crate::bytes_fields::BytesFields;
use crate::error::CodegenError;
use crate::generator::Generator;
use crate::mod_cfg::ModCfg;
use crate::settings::{self, RpcSettings};

/// Settings for generating code; made by [`configure`](crate::configure).
///
/// The methods that tonic-prost-build has too mean what they mean there. One default differs:
/// tonic's clients have no `connect()` without [`build_transport`](Self::build_transport). No
/// protoc is needed.
#[derive(Debug)]
pub struct Builder {
    pub(crate) prost: prost_build::Config,
    tonic: tonic_prost_build::Builder,
    rpc: RpcSettings,
    build_rpc: bool,
    build_transport: bool,
    bytes: Vec<String>,
    btree_map: Vec<String>,
    pub(crate) out_dir: Option<PathBuf>,
    pub(crate) file_descriptor_set_path: Option<PathBuf>,
    pub(crate) emit_rerun_if_changed: bool,
    /// What the generator of services has to know of messages; set when they are known.
    pub(crate) bytes_fields: Arc<OnceLock<BytesFields>>,
    /// The first setting that could not be parsed.
    rejected: Option<CodegenError>,
}

impl Builder {
    pub(crate) fn new() -> Self {
        let mut prost = prost_build::Config::new();
        prost.type_attribute(".", "#[allow(clippy::all)]");
        Self {
            prost,
            tonic: tonic_prost_build::configure(),
            rpc: RpcSettings {
                build_client: true,
                build_server: true,
                use_arc_self: false,
                proto_path: "super".to_owned(),
                disable_comments: HashSet::new(),
                server_cfg: ModCfg::default(),
                client_cfg: ModCfg::default(),
                runtime: quote::quote!(::farcall::codegen),
            },
            build_rpc: true,
            build_transport: false,
            bytes: Vec::new(),
            btree_map: Vec::new(),
            out_dir: None,
            file_descriptor_set_path: None,
            emit_rerun_if_changed: std::env::var_os("CARGO").is_some(),
            bytes_fields: Arc::default(),
            rejected: None,
        }
    }

    /// Whether to generate the farcall module (`greeter_rpc`); on by default.
    #[must_use]
    pub fn build_rpc(mut self, enable: bool) -> Self {
        self.build_rpc = enable;
        self
    }

    /// The module that our generated code takes the runtime from; `::farcall::codegen` by default.
    #[must_use]
    pub fn runtime_path(mut self, path: impl AsRef<str>) -> Self {
        match settings::path("runtime_path", path.as_ref()) {
            Ok(path) => self.rpc.runtime = path,
            Err(error) => self.reject(error),
        }
        self
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

    /// Whether tonic's clients get `connect()`; off by default, unlike in tonic-prost-build.
    ///
    /// A crate that includes such clients needs tonic's feature `transport`, and its build script
    /// this crate's feature of the same name. The feature alone generates nothing: cargo turns it
    /// on for every build script of a workspace as soon as one asks for it.
    #[must_use]
    pub fn build_transport(mut self, enable: bool) -> Self {
        self.build_transport = enable;
        self
    }

    /// Where to write; `OUT_DIR` by default.
    #[must_use]
    pub fn out_dir(mut self, out_dir: impl AsRef<Path>) -> Self {
        self.out_dir = Some(out_dir.as_ref().to_owned());
        self
    }

    /// Takes a package or a message from elsewhere: `.extern_path(".pkg", "::other_crate::pkg")`.
    #[must_use]
    pub fn extern_path(mut self, proto_path: impl AsRef<str>, rust_path: impl AsRef<str>) -> Self {
        match settings::rust_type("extern_path", rust_path.as_ref()) {
            Ok(_) => {
                self.prost.extern_path(proto_path.as_ref(), rust_path.as_ref());
            }
            Err(error) => self.reject(error),
        }
        self
    }

    /// Generates `google.protobuf` from its `.proto` files instead of using prost-types.
    #[must_use]
    pub fn compile_well_known_types(mut self, enable: bool) -> Self {
        if enable {
            self.prost.compile_well_known_types();
        }
        self.tonic = self.tonic.compile_well_known_types(enable);
        self
    }

    /// Where the message types are, seen from the service modules; `super` by default.
    #[must_use]
    pub fn proto_path(mut self, path: impl AsRef<str>) -> Self {
        match settings::path("proto_path", path.as_ref()) {
            Ok(_) => {
                self.rpc.proto_path = path.as_ref().to_owned();
                self.tonic = self.tonic.proto_path(path);
            }
            Err(error) => self.reject(error),
        }
        self
    }

    /// The codec that tonic's modules use; `tonic_prost::ProstCodec` by default.
    #[must_use]
    pub fn codec_path(mut self, path: impl AsRef<str>) -> Self {
        match settings::path("codec_path", path.as_ref()) {
            Ok(_) => self.tonic = self.tonic.codec_path(path),
            Err(error) => self.reject(error),
        }
        self
    }

    /// Makes `bytes` fields that match `path` [`bytes::Bytes`](https://docs.rs/bytes); without it
    /// they are `Vec<u8>`.
    ///
    /// `bytes(".")` is for all fields. A `Bytes` that arrives is a part of the memory that the
    /// transport received it into, and one that leaves may travel from where it lies: a `Vec<u8>` is
    /// copied on either side.
    #[must_use]
    pub fn bytes(mut self, path: impl AsRef<str>) -> Self {
        self.bytes.push(path.as_ref().to_owned());
        self
    }

    /// Makes map fields that match `path` `BTreeMap`s.
    #[must_use]
    pub fn btree_map(mut self, path: impl AsRef<str>) -> Self {
        self.btree_map.push(path.as_ref().to_owned());
        self
    }

    /// Boxes the fields that match `path`.
    #[must_use]
    pub fn boxed(mut self, path: impl AsRef<str>) -> Self {
        self.prost.boxed(path);
        self
    }

    /// Leaves `Debug` out of the messages and enums that match `paths`.
    #[must_use]
    pub fn skip_debug<I, S>(mut self, paths: I) -> Self
    where
        I: IntoIterator<Item = S>,
        S: AsRef<str>,
    {
        self.prost.skip_debug(paths);
        self
    }

    /// Adds an attribute to matching messages, enums and oneofs.
    #[must_use]
    pub fn type_attribute(mut self, path: impl AsRef<str>, attribute: impl AsRef<str>) -> Self {
        if self.accepts("type_attribute", attribute.as_ref()) {
            self.prost.type_attribute(path, attribute);
        }
        self
    }

    /// Adds an attribute to matching messages.
    #[must_use]
    pub fn message_attribute(mut self, path: impl AsRef<str>, attribute: impl AsRef<str>) -> Self {
        if self.accepts("message_attribute", attribute.as_ref()) {
            self.prost.message_attribute(path, attribute);
        }
        self
    }

    /// Adds an attribute to matching enums and oneofs.
    #[must_use]
    pub fn enum_attribute(mut self, path: impl AsRef<str>, attribute: impl AsRef<str>) -> Self {
        if self.accepts("enum_attribute", attribute.as_ref()) {
            self.prost.enum_attribute(path, attribute);
        }
        self
    }

    /// Adds an attribute to matching fields.
    #[must_use]
    pub fn field_attribute(mut self, path: impl AsRef<str>, attribute: impl AsRef<str>) -> Self {
        if self.accepts("field_attribute", attribute.as_ref()) {
            self.prost.field_attribute(path, attribute);
        }
        self
    }

    /// Adds an attribute to tonic's client of matching services.
    #[must_use]
    pub fn client_attribute(mut self, path: impl AsRef<str>, attribute: impl AsRef<str>) -> Self {
        if self.accepts("client_attribute", attribute.as_ref()) {
            self.tonic = self.tonic.client_attribute(path, attribute);
        }
        self
    }

    /// Adds an attribute to tonic's server of matching services.
    #[must_use]
    pub fn server_attribute(mut self, path: impl AsRef<str>, attribute: impl AsRef<str>) -> Self {
        if self.accepts("server_attribute", attribute.as_ref()) {
            self.tonic = self.tonic.server_attribute(path, attribute);
        }
        self
    }

    /// Adds an attribute to tonic's trait of matching services.
    #[must_use]
    pub fn trait_attribute(mut self, path: impl AsRef<str>, attribute: impl AsRef<str>) -> Self {
        if self.accepts("trait_attribute", attribute.as_ref()) {
            self.tonic = self.tonic.trait_attribute(path, attribute);
        }
        self
    }

    /// Adds an attribute to tonic's client modules of matching packages; a `#[cfg]` also to our
    /// stubs.
    #[must_use]
    pub fn client_mod_attribute(
        mut self,
        path: impl AsRef<str>,
        attribute: impl AsRef<str>,
    ) -> Self {
        match settings::attributes("client_mod_attribute", attribute.as_ref()) {
            Ok(attributes) => {
                self.rpc.client_cfg.push(path.as_ref(), attributes);
                self.tonic = self.tonic.client_mod_attribute(path, attribute);
            }
            Err(error) => self.reject(error),
        }
        self
    }

    /// Adds an attribute to tonic's server modules of matching packages; a `#[cfg]` also to our
    /// services.
    #[must_use]
    pub fn server_mod_attribute(
        mut self,
        path: impl AsRef<str>,
        attribute: impl AsRef<str>,
    ) -> Self {
        match settings::attributes("server_mod_attribute", attribute.as_ref()) {
            Ok(attributes) => {
                self.rpc.server_cfg.push(path.as_ref(), attributes);
                self.tonic = self.tonic.server_mod_attribute(path, attribute);
            }
            Err(error) => self.reject(error),
        }
        self
    }

    /// Leaves out the comments of the services, methods and messages named by `paths`.
    #[must_use]
    pub fn disable_comments<I, S>(mut self, paths: I) -> Self
    where
        I: IntoIterator<Item = S>,
        S: AsRef<str>,
    {
        let paths = paths.into_iter().map(|path| path.as_ref().to_owned());
        self.rpc.disable_comments.extend(paths);
        self
    }

    /// Makes the methods of tonic's traits take `self: Arc<Self>`.
    #[must_use]
    pub fn use_arc_self(mut self, enable: bool) -> Self {
        self.rpc.use_arc_self = enable;
        self.tonic = self.tonic.use_arc_self(enable);
        self
    }

    /// Gives the methods of tonic's traits a body that answers `Unimplemented`.
    #[must_use]
    pub fn generate_default_stubs(mut self, enable: bool) -> Self {
        self.tonic = self.tonic.generate_default_stubs(enable);
        self
    }

    /// Where to write the encoded file descriptor set, for reflection for one.
    #[must_use]
    pub fn file_descriptor_set_path(mut self, path: impl AsRef<Path>) -> Self {
        self.file_descriptor_set_path = Some(path.as_ref().to_owned());
        self
    }

    /// A file, relative to the output directory, that includes all others in nested modules.
    #[must_use]
    pub fn include_file(mut self, path: impl AsRef<Path>) -> Self {
        self.prost.include_file(path.as_ref());
        self
    }

    /// Whether to tell cargo which `.proto` files were read; on in build scripts by default.
    #[must_use]
    pub fn emit_rerun_if_changed(mut self, enable: bool) -> Self {
        self.emit_rerun_if_changed = enable;
        self
    }

    /// Changes prost's configuration where this builder has no setting for it.
    ///
    /// The output directory, the service generator, `bytes`, `btree_map` and `disable_comments`
    /// stay this builder's.
    #[must_use]
    pub fn with_prost_config(mut self, change: impl FnOnce(&mut prost_build::Config)) -> Self {
        change(&mut self.prost);
        self
    }

    /// The generator of service code alone, for a `prost_build::Config` of one's own.
    ///
    /// # Errors
    ///
    /// When a setting is wrong.
    pub fn service_generator(mut self) -> Result<Box<dyn ServiceGenerator>, CodegenError> {
        self.check()?;
        Ok(self.generator())
    }

    /// Moves what was collected into prost's configuration.
    ///
    /// # Errors
    ///
    /// When a setting is wrong.
    pub(crate) fn seal(&mut self) -> Result<(), CodegenError> {
        self.check()?;
        self.prost.bytes(&self.bytes);
        self.prost.btree_map(&self.btree_map);
        self.prost.disable_comments(&self.rpc.disable_comments);
        if self.rpc.build_client || self.rpc.build_server {
            let generator = self.generator();
            self.prost.service_generator(generator);
        }
        Ok(())
    }

    /// The first setting that could not be parsed, or that this build cannot honour.
    fn check(&mut self) -> Result<(), CodegenError> {
        self.rejected.take().map_or(Ok(()), Err)?;
        if self.build_transport && !cfg!(feature = "transport") {
            return Err(CodegenError::TransportFeature);
        }
        Ok(())
    }

    fn generator(&self) -> Box<dyn ServiceGenerator> {
        let has_connect = self.build_transport;
        let tonic = self.tonic.clone().build_transport(has_connect);
        let tonic = tonic.disable_comments(&self.rpc.disable_comments);
        let (client, server) = (self.rpc.build_client, self.rpc.build_server);
        Box::new(Generator {
            client: client.then(|| tonic.clone().build_server(false).service_generator()),
            server: server.then(|| tonic.clone().build_client(false).service_generator()),
            has_connect,
            rpc: self.build_rpc.then(|| self.rpc.clone()),
            bytes_fields: Arc::clone(&self.bytes_fields),
        })
    }

    fn accepts(&mut self, knob: &'static str, attribute: &str) -> bool {
        match settings::attributes(knob, attribute) {
            Ok(_) => true,
            Err(error) => {
                self.reject(error);
                false
            }
        }
    }

    fn reject(&mut self, error: CodegenError) {
        self.rejected.get_or_insert(error);
    }
}
