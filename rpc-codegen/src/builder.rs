//! The builder: tonic-prost-build's settings under their own names, and three of ours.
//!
//! Each setter hands its value to tonic's generator or keeps it for prost's configuration; what
//! cannot be parsed is remembered and reported when compiling starts, as is what has no effect.

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

/// Settings for generating code; made by [`configure`](crate::configure).
///
/// The methods that tonic-prost-build has too mean what they mean there. One default differs:
/// tonic's clients have no `connect()` without [`build_transport`](Self::build_transport). A
/// protoc runs with the feature `protoc` alone.
#[derive(Debug, Clone)]
pub struct Builder {
    prost: ProstSettings,
    tonic: tonic_prost_build::Builder,
    rpc: RpcSettings,
    build_rpc: bool,
    /// The codec of tonic's modules, when it was chosen.
    codec: Option<String>,
    build_transport: bool,
    pub(crate) out_dir: Option<PathBuf>,
    pub(crate) descriptor_set: DescriptorSet,
    /// More arguments for protoc, where one runs.
    pub(crate) protoc_args: Vec<String>,
    pub(crate) emit_rerun_if_changed: bool,
    /// What cargo is to tell of settings that have no effect.
    pub(crate) warnings: Vec<String>,
    /// The messages that a configuration of the caller's takes from elsewhere.
    pub(crate) foreign: Elsewhere,
    /// The first setting that could not be parsed.
    rejected: Option<InvalidSetting>,
}

/// What the file of the descriptor set is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DescriptorSet {
    /// Nothing.
    Unused,
    /// It is written.
    Written(PathBuf),
    /// It is read in place of `.proto` files, by `skip_protoc_run`; without a path, an error.
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

    /// Whether generated code takes tonic, tonic-prost and prost from the runtime, which re-exports
    /// them; on by default. A crate that includes the code then depends on farcall alone. With
    /// `false` it depends on them itself, for example because farcall is optional in it. Without
    /// [`build_rpc`](Self::build_rpc) there is no runtime to take them from.
    ///
    /// A `Config` that is given to [`compile_with_config`](Self::compile_with_config) keeps its
    /// own `prost_path`.
    #[must_use]
    pub fn use_reexports(mut self, enable: bool) -> Self {
        self.rpc.reexports = enable;
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
    ///
    /// Generated code does not know the fields of such a message. So it does not count the levels
    /// below it before the message is sent: a message of more than 100 levels is an error of its
    /// receiver, and encoding one of thousands can overflow the sender's stack.
    #[must_use]
    pub fn extern_path(mut self, proto_path: impl AsRef<str>, rust_path: impl AsRef<str>) -> Self {
        let (proto, rust) = (proto_path.as_ref().to_owned(), rust_path.as_ref().to_owned());
        match settings::rust_type("extern_path", &rust) {
            Ok(_) => self.prost.single.push(ProstSetting::ExternPath { proto, rust }),
            Err(error) => self.reject(error),
        }
        self
    }

    /// Takes the services of a package from a crate that has them already: tonic's trait, and the
    /// messages, as with [`extern_path`](Self::extern_path).
    ///
    /// Only the farcall module is generated, which serves and calls what is there. The module is
    /// the one that the package's code is included in, `tonic_health::pb` for `grpc.health.v1`:
    ///
    /// ```no_run
    /// let root = rpc_codegen::package_dir("tonic-health")?.join("proto");
    /// rpc_codegen::configure()
    ///     .tonic_path(".grpc.health.v1", "::tonic_health::pb")
    ///     .compile_protos(&[root.join("health.proto")], &[root])?;
    /// # Ok::<(), rpc_codegen::CodegenError>(())
    /// ```
    ///
    /// Packages below the path are modules below the module. Where messages are elsewhere than
    /// services, an `extern_path` of the same package says so.
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
    ///
    /// farcall's module has prost encode its messages whatever is said here: beside such a module,
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

    /// Makes `bytes` fields that match `path` [`bytes::Bytes`](https://docs.rs/bytes); without it
    /// they are `Vec<u8>`.
    ///
    /// `bytes(".")` is for all fields. A `Bytes` that arrives is a part of the memory that the
    /// transport received it into, and one that leaves may travel from where it lies: a `Vec<u8>`
    /// is copied on either side.
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

    /// Leaves `Debug` out of the messages and enums that match `paths`.
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
        let path = path.as_ref().to_owned();
        self.descriptor_set = match self.descriptor_set {
            DescriptorSet::Read(_) => DescriptorSet::Read(Some(path)),
            DescriptorSet::Unused | DescriptorSet::Written(_) => DescriptorSet::Written(path),
        };
        self
    }

    /// Reads the file of [`file_descriptor_set_path`](Self::file_descriptor_set_path) in place of
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

    /// Adds an argument for protoc, which runs with the feature `protoc`. In other builds cargo
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

    /// Has no effect, as in tonic-prost-build: paths of methods name their package.
    #[must_use]
    pub fn emit_package(mut self, enable: bool) -> Self {
        if !enable {
            self.warnings.push("emit_package(false) has no effect, as with tonic".to_owned());
        }
        self
    }

    /// Has no effect: `google.protobuf.BoolValue` and its like may always be requests and
    /// responses.
    #[must_use]
    pub fn with_extended_rust_types(self, _enable: bool) -> Self {
        self
    }

    /// A file, relative to the output directory, that includes all others in nested modules.
    #[must_use]
    pub fn include_file(mut self, path: impl AsRef<Path>) -> Self {
        self.prost.single.push(ProstSetting::IncludeFile(path.as_ref().to_owned()));
        self
    }

    /// Whether to tell cargo which `.proto` files were read; on in build scripts by default.
    #[must_use]
    pub fn emit_rerun_if_changed(mut self, enable: bool) -> Self {
        self.emit_rerun_if_changed = enable;
        self
    }

    /// The generator of service code alone, for a `prost_build::Config` of one's own.
    ///
    /// It knows nothing of messages, and cannot tell which fields may travel from where they lie:
    /// [`compile_with_config`](Self::compile_with_config) does.
    ///
    /// # Errors
    ///
    /// When a setting is wrong.
    pub fn service_generator(mut self) -> Result<Box<dyn ServiceGenerator>, CodegenError> {
        self.check()?;
        Ok(self.generator(Messages::default()))
    }

    /// What cargo is to tell of settings that have no effect, or less than they seem to have.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let mut warnings = self.warnings.clone();
        if let Some(codec) = self.codec.as_ref().filter(|_| self.build_rpc) {
            warnings.push(format!(
                "codec_path({codec:?}) is for tonic's modules: farcall's encode with prost"
            ));
        }
        warnings
    }

    /// Whether services are generated.
    pub(crate) fn has_services(&self) -> bool {
        self.rpc.build_client || self.rpc.build_server
    }

    /// Services, methods and messages without comments.
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

    /// The first setting that could not be parsed, or that this build cannot honour.
    pub(crate) fn check(&mut self) -> Result<(), CodegenError> {
        if let Some(invalid) = self.rejected.take() {
            return Err(invalid.into());
        }
        if self.build_transport && !cfg!(feature = "transport") {
            return Err(CodegenError::TransportFeature);
        }
        Ok(())
    }

    /// Where generated code finds `krate`, unless that is the user's own dependency.
    pub(crate) fn reexported(&self, krate: &str) -> Option<String> {
        self.rpc.reexported(krate).filter(|_| self.build_rpc)
    }

    /// The messages that settings take from elsewhere.
    pub(crate) fn elsewhere(&self) -> Elsewhere {
        let mut elsewhere = self.foreign.clone();
        self.prost.add_to(&mut elsewhere);
        let outside = self.rpc.tonic_paths.iter().map(|(package, _)| package.clone());
        elsewhere.extern_paths.extend(outside);
        elsewhere
    }

    /// The generator of services with these messages.
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
