//! The builder: tonic-prost-build's settings under their own names, and three of ours.
//!
//! Each setter passes its value to tonic's generator or keeps it for prost's configuration. Invalid
//! values and settings without effect are recorded, and reported when compiling starts.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use prost_build::ServiceGenerator;

use crate::error::CodegenError;
use crate::generator::Generator;
use crate::messages::Messages;
use crate::nesting::Elsewhere;
use crate::prost_settings::{ProstSetting, ProstSettings};
use crate::protoc_arg;
use crate::settings::{self, InvalidSetting, RpcSettings};

/// A builder for code generation, created by [`configure`](crate::configure).
///
/// Methods that tonic-prost-build also has mean the same here. One default differs: tonic's clients
/// have no `connect()` without [`build_transport`](Self::build_transport). protoc runs only with
/// the feature `protoc`.
#[derive(Debug, Clone)]
pub struct Builder {
    prost: ProstSettings,
    tonic: tonic_prost_build::Builder,
    rpc: RpcSettings,
    build_rpc: bool,
    /// The codec of tonic's modules, if it was chosen.
    codec: Option<String>,
    build_transport: bool,
    pub(crate) out_dir: Option<PathBuf>,
    pub(crate) descriptor_set: DescriptorSet,
    /// Further arguments for protoc, if it runs.
    pub(crate) protoc_args: Vec<String>,
    pub(crate) emit_rerun_if_changed: bool,
    /// Warnings about settings without effect, which cargo shows.
    pub(crate) warnings: Vec<String>,
    /// The messages that a configuration of the caller takes from elsewhere.
    pub(crate) foreign: Elsewhere,
    /// The first invalid setting.
    rejected: Option<InvalidSetting>,
}

/// The use of the descriptor set's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DescriptorSet {
    /// Not used.
    Unused,
    /// Written to the path.
    Written(PathBuf),
    /// Read instead of `.proto` files (`skip_protoc_run`). An error if there is no path.
    Read(Option<PathBuf>),
}

impl Builder {
    pub(crate) fn new() -> Self {
        Self {
            prost: ProstSettings::default(),
            tonic: tonic_prost_build::configure(),
            rpc: RpcSettings::new(),
            build_rpc: true,
            codec: None,
            build_transport: false,
            out_dir: None,
            descriptor_set: DescriptorSet::Unused,
            protoc_args: Vec::new(),
            emit_rerun_if_changed: std::env::var_os("CARGO").is_some(),
            warnings: Vec::new(),
            foreign: Elsewhere::default(),
            rejected: None,
        }
        .type_attribute(".", "#[allow(clippy::all)]")
    }

    /// Enables or disables generation of the farcall module (`greeter_rpc`). On by default.
    #[must_use]
    pub fn build_rpc(mut self, enable: bool) -> Self {
        self.build_rpc = enable;
        self
    }

    /// Sets the module through which generated code reaches the runtime. Defaults to
    /// `::farcall::codegen`.
    #[must_use]
    pub fn runtime_path(mut self, path: impl AsRef<str>) -> Self {
        match settings::path("runtime_path", path.as_ref()) {
            Ok(path) => self.rpc.runtime = path,
            Err(error) => self.reject(error),
        }
        self
    }

    /// Enables or disables the use of the runtime's re-exports of tonic, tonic-prost and prost in
    /// generated code. On by default.
    ///
    /// With them, a crate that includes the code depends on farcall alone. With `false`, the crate
    /// depends on all three itself, for example because farcall is optional in it. Without
    /// [`build_rpc`](Self::build_rpc) there is no runtime to re-export them.
    ///
    /// A `Config` passed to [`compile_with_config`](Self::compile_with_config) keeps its own
    /// `prost_path`.
    #[must_use]
    pub fn use_reexports(mut self, enable: bool) -> Self {
        self.rpc.reexports = enable;
        self
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

    /// Enables or disables generation of `connect()` in tonic's clients. Off by default, unlike in
    /// tonic-prost-build.
    ///
    /// A crate that includes such clients needs tonic's feature `transport`, and its build script
    /// needs this crate's feature of the same name. The feature alone generates nothing, because
    /// cargo enables it for every build script of a workspace as soon as one needs it.
    #[must_use]
    pub fn build_transport(mut self, enable: bool) -> Self {
        self.build_transport = enable;
        self
    }

    /// Sets the output directory. Defaults to `OUT_DIR`.
    #[must_use]
    pub fn out_dir(mut self, out_dir: impl AsRef<Path>) -> Self {
        self.out_dir = Some(out_dir.as_ref().to_owned());
        self
    }

    /// Takes a package or a message from elsewhere: `.extern_path(".pkg", "::other_crate::pkg")`.
    ///
    /// Generated code does not know the fields of such a message, so it cannot count its levels
    /// before sending. A message of more than 100 levels is an error at its receiver, and encoding
    /// one of thousands can overflow the sender's stack.
    #[must_use]
    pub fn extern_path(mut self, proto_path: impl AsRef<str>, rust_path: impl AsRef<str>) -> Self {
        let (proto, rust) = (proto_path.as_ref().to_owned(), rust_path.as_ref().to_owned());
        match settings::rust_type("extern_path", &rust) {
            Ok(_) => self.prost.single.push(ProstSetting::ExternPath { proto, rust }),
            Err(error) => self.reject(error),
        }
        self
    }

    /// Takes the services of a package from a crate that already has them: tonic's trait, and the
    /// messages, as with [`extern_path`](Self::extern_path).
    ///
    /// Only the farcall module is generated, which serves and calls the existing code. `module` is
    /// the module that includes the package's code, such as `tonic_health::pb` for
    /// `grpc.health.v1`:
    ///
    /// ```no_run
    /// let root = rpc_codegen::package_dir("tonic-health")?.join("proto");
    /// rpc_codegen::configure()
    ///     .tonic_path(".grpc.health.v1", "::tonic_health::pb")
    ///     .compile_protos(&[root.join("health.proto")], &[root])?;
    /// # Ok::<(), rpc_codegen::CodegenError>(())
    /// ```
    ///
    /// Packages below the path are modules below the module. If the messages are elsewhere, add an
    /// `extern_path` for the same package.
    #[must_use]
    pub fn tonic_path(mut self, package: impl AsRef<str>, module: impl AsRef<str>) -> Self {
        match settings::outside_path("tonic_path", module.as_ref()) {
            Ok(()) => self.rpc.tonic_paths.push(package.as_ref(), module.as_ref()),
            Err(error) => self.reject(error),
        }
        self
    }

    /// Generates `google.protobuf` from its `.proto` files instead of using prost-types.
    #[must_use]
    pub fn compile_well_known_types(mut self, enable: bool) -> Self {
        if enable {
            self.prost.single.push(ProstSetting::CompileWellKnownTypes);
        }
        self.tonic = self.tonic.compile_well_known_types(enable);
        self
    }

    /// Sets the path to the message types, seen from the service modules. Defaults to `super`.
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

    /// Sets the codec of tonic's modules. Defaults to `tonic_prost::ProstCodec`.
    ///
    /// farcall's module always encodes its messages with prost. If both modules are generated,
    /// cargo shows a warning.
    #[must_use]
    pub fn codec_path(mut self, path: impl AsRef<str>) -> Self {
        match settings::path("codec_path", path.as_ref()) {
            Ok(_) => {
                self.codec = Some(path.as_ref().to_owned());
                self.tonic = self.tonic.codec_path(path);
            }
            Err(error) => self.reject(error),
        }
        self
    }

    /// Makes `bytes` fields that match `path` [`bytes::Bytes`](https://docs.rs/bytes). Without it
    /// they are `Vec<u8>`.
    ///
    /// `bytes(".")` matches all fields. A received `Bytes` is part of the memory that the transport
    /// read into, and a sent one may leave without a copy. A `Vec<u8>` is copied on both sides.
    #[must_use]
    pub fn bytes(mut self, path: impl AsRef<str>) -> Self {
        self.prost.bytes.push(path.as_ref().to_owned());
        self
    }

    /// Makes map fields that match `path` `BTreeMap`s.
    #[must_use]
    pub fn btree_map(mut self, path: impl AsRef<str>) -> Self {
        self.prost.btree_map.push(path.as_ref().to_owned());
        self
    }

    /// Boxes the fields that match `path`.
    #[must_use]
    pub fn boxed(mut self, path: impl AsRef<str>) -> Self {
        self.prost.single.push(ProstSetting::Boxed(path.as_ref().to_owned()));
        self
    }

    /// Omits `Debug` from the messages and enums that match `paths`.
    #[must_use]
    pub fn skip_debug<I, S>(mut self, paths: I) -> Self
    where
        I: IntoIterator<Item = S>,
        S: AsRef<str>,
    {
        let paths = paths.into_iter().map(|path| path.as_ref().to_owned());
        self.prost.skip_debug.extend(paths);
        self
    }

    /// Adds an attribute to matching messages, enums and oneofs.
    #[must_use]
    pub fn type_attribute(mut self, path: impl AsRef<str>, attribute: impl AsRef<str>) -> Self {
        let (path, attribute) = (path.as_ref().to_owned(), attribute.as_ref().to_owned());
        if self.accepts("type_attribute", &attribute) {
            self.prost.single.push(ProstSetting::TypeAttribute { path, attribute });
        }
        self
    }

    /// Adds an attribute to matching messages.
    #[must_use]
    pub fn message_attribute(mut self, path: impl AsRef<str>, attribute: impl AsRef<str>) -> Self {
        let (path, attribute) = (path.as_ref().to_owned(), attribute.as_ref().to_owned());
        if self.accepts("message_attribute", &attribute) {
            self.prost.single.push(ProstSetting::MessageAttribute { path, attribute });
        }
        self
    }

    /// Adds an attribute to matching enums and oneofs.
    #[must_use]
    pub fn enum_attribute(mut self, path: impl AsRef<str>, attribute: impl AsRef<str>) -> Self {
        let (path, attribute) = (path.as_ref().to_owned(), attribute.as_ref().to_owned());
        if self.accepts("enum_attribute", &attribute) {
            self.prost.single.push(ProstSetting::EnumAttribute { path, attribute });
        }
        self
    }

    /// Adds an attribute to matching fields.
    #[must_use]
    pub fn field_attribute(mut self, path: impl AsRef<str>, attribute: impl AsRef<str>) -> Self {
        let (path, attribute) = (path.as_ref().to_owned(), attribute.as_ref().to_owned());
        if self.accepts("field_attribute", &attribute) {
            self.prost.single.push(ProstSetting::FieldAttribute { path, attribute });
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

    /// Adds an attribute to tonic's client modules of matching packages. A `#[cfg]` also applies to
    /// our stubs.
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

    /// Adds an attribute to tonic's server modules of matching packages. A `#[cfg]` also applies to
    /// our services.
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

    /// Omits the comments of the services, methods and messages in `paths`.
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

    /// Gives the methods of tonic's traits a default body that answers `Unimplemented`.
    #[must_use]
    pub fn generate_default_stubs(mut self, enable: bool) -> Self {
        self.tonic = self.tonic.generate_default_stubs(enable);
        self
    }

    /// Writes the encoded file descriptor set to `path`, for example for reflection.
    #[must_use]
    pub fn file_descriptor_set_path(mut self, path: impl AsRef<Path>) -> Self {
        let path = path.as_ref().to_owned();
        self.descriptor_set = match self.descriptor_set {
            DescriptorSet::Read(_) => DescriptorSet::Read(Some(path)),
            DescriptorSet::Unused | DescriptorSet::Written(_) => DescriptorSet::Written(path),
        };
        self
    }

    /// Reads the file at [`file_descriptor_set_path`](Self::file_descriptor_set_path) instead of
    /// `.proto` files.
    #[must_use]
    pub fn skip_protoc_run(mut self) -> Self {
        self.descriptor_set = match self.descriptor_set {
            DescriptorSet::Unused => DescriptorSet::Read(None),
            DescriptorSet::Written(path) => DescriptorSet::Read(Some(path)),
            read @ DescriptorSet::Read(_) => read,
        };
        self
    }

    /// Adds an argument for protoc, which runs with the feature `protoc`. In other builds, cargo
    /// shows a warning that names the setting with the same effect.
    #[must_use]
    pub fn protoc_arg(mut self, argument: impl AsRef<str>) -> Self {
        let argument = argument.as_ref();
        match cfg!(feature = "protoc") {
            true => self.protoc_args.push(argument.to_owned()),
            false => self.warnings.push(protoc_arg::warning(argument)),
        }
        self
    }

    /// Does nothing, as in tonic-prost-build: the paths of methods always name their package.
    #[must_use]
    pub fn emit_package(mut self, enable: bool) -> Self {
        if !enable {
            self.warnings.push("emit_package(false) has no effect, as with tonic".to_owned());
        }
        self
    }

    /// Does nothing: `google.protobuf.BoolValue` and similar types can always be requests and
    /// responses.
    #[must_use]
    pub fn with_extended_rust_types(self, _enable: bool) -> Self {
        self
    }

    /// Writes a file, relative to the output directory, that includes all others in nested modules.
    #[must_use]
    pub fn include_file(mut self, path: impl AsRef<Path>) -> Self {
        self.prost.single.push(ProstSetting::IncludeFile(path.as_ref().to_owned()));
        self
    }

    /// Enables or disables telling cargo which `.proto` files were read. On by default in build
    /// scripts.
    #[must_use]
    pub fn emit_rerun_if_changed(mut self, enable: bool) -> Self {
        self.emit_rerun_if_changed = enable;
        self
    }

    /// Returns the service generator alone, for a `prost_build::Config` of your own.
    ///
    /// It does not know the messages, so it cannot tell which fields can leave without a copy.
    /// [`compile_with_config`](Self::compile_with_config) can.
    ///
    /// # Errors
    ///
    /// Returns an error if a setting is invalid.
    pub fn service_generator(mut self) -> Result<Box<dyn ServiceGenerator>, CodegenError> {
        self.check()?;
        Ok(self.generator(Messages::default()))
    }

    /// Returns the warnings about settings with no effect, or less effect than expected.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let mut warnings = self.warnings.clone();
        if let Some(codec) = self.codec.as_ref().filter(|_| self.build_rpc) {
            warnings.push(format!(
                "codec_path({codec:?}) is for tonic's modules: farcall's encode with prost"
            ));
        }
        warnings
    }

    /// Returns true if services are generated.
    pub(crate) fn has_services(&self) -> bool {
        self.rpc.build_client || self.rpc.build_server
    }

    /// Returns the services, methods and messages without comments.
    pub(crate) fn disabled_comments(&self) -> &HashSet<String> {
        &self.rpc.disable_comments
    }

    /// Adds the settings for messages to `config`.
    pub(crate) fn apply_to(&self, config: &mut prost_build::Config) {
        self.prost.apply(config);
        for (package, module) in self.rpc.tonic_paths.iter() {
            if !self.prost.has_extern_path(package) {
                config.extern_path(package, module);
            }
        }
    }

    /// Returns the first setting that is invalid or that this build does not support.
    pub(crate) fn check(&mut self) -> Result<(), CodegenError> {
        if let Some(invalid) = self.rejected.take() {
            return Err(invalid.into());
        }
        if self.build_transport && !cfg!(feature = "transport") {
            return Err(CodegenError::TransportFeature);
        }
        Ok(())
    }

    /// Returns the path of `krate` in the runtime, or `None` if it is the user's own dependency.
    pub(crate) fn reexported(&self, krate: &str) -> Option<String> {
        self.rpc.reexported(krate).filter(|_| self.build_rpc)
    }

    /// Returns the messages that settings take from elsewhere.
    pub(crate) fn elsewhere(&self) -> Elsewhere {
        let mut elsewhere = self.foreign.clone();
        self.prost.add_to(&mut elsewhere);
        let outside = self.rpc.tonic_paths.iter().map(|(package, _)| package.clone());
        elsewhere.extern_paths.extend(outside);
        elsewhere
    }

    /// Returns a generator of services with these messages.
    pub(crate) fn generator(&self, messages: Messages) -> Box<dyn ServiceGenerator> {
        let has_connect = self.build_transport;
        let tonic = self.tonic.clone().build_transport(has_connect);
        let tonic = tonic.disable_comments(&self.rpc.disable_comments);
        let tonic = match self.reexported("tonic_prost").filter(|_| self.codec.is_none()) {
            Some(tonic_prost) => tonic.codec_path(format!("{tonic_prost}::ProstCodec")),
            None => tonic,
        };
        let (client, server) = (self.rpc.build_client, self.rpc.build_server);
        Box::new(Generator {
            client: client.then(|| tonic.clone().build_server(false).service_generator()),
            server: server.then(|| tonic.clone().build_client(false).service_generator()),
            has_connect,
            tonic_paths: self.rpc.tonic_paths.clone(),
            rpc: self.build_rpc.then(|| self.rpc.clone()),
            messages,
        })
    }

    fn accepts(&mut self, setting: &'static str, attribute: &str) -> bool {
        match settings::attributes(setting, attribute) {
            Ok(_) => true,
            Err(error) => {
                self.reject(error);
                false
            }
        }
    }

    fn reject(&mut self, error: InvalidSetting) {
        self.rejected.get_or_insert(error);
    }
}
