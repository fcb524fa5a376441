//! The path from `.proto` files or descriptors to Rust files: parse, check, generate, tell cargo.
//!
//! The content of the generated code is decided elsewhere.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use prost::Message;
use prost_build::Config;
use prost_types::FileDescriptorSet;

use crate::builder::{Builder, DescriptorSet};
use crate::error::CodegenError;
use crate::foreign_config::{self, Builders, has_prost_path};
use crate::messages::Messages;
use crate::parse::{self, PROTOC_INCLUDE, Parsed};
use crate::{descriptor_set, message_graph};

/// Descriptors in two forms: as prost knows them, and complete.
struct Descriptors {
    set: FileDescriptorSet,
    encoded: Vec<u8>,
}

impl Builder {
    /// Compiles `protos`, with imports from `includes`.
    ///
    /// After `includes`, imports are searched in the folder of the environment variable
    /// `PROTOC_INCLUDE`. Files of `google/protobuf` come with this crate, or from the machine's
    /// protoc with the feature `protoc`. Writes one file per package, named after the package, as
    /// prost does.
    ///
    /// # Errors
    ///
    /// Returns an error if a file is missing or does not parse, a setting is invalid, or the output
    /// cannot be written. Without the features `protox` and `protoc` there is no parser, which is
    /// also an error.
    pub fn compile_protos<P: AsRef<Path>>(
        mut self,
        protos: &[P],
        includes: &[P],
    ) -> Result<(), CodegenError> {
        let mut config = self.own_config()?;
        let descriptors = self.read(&mut config, protos, includes)?;
        self.generate(config, descriptors)
    }

    /// Compiles like [`compile_protos`](Self::compile_protos), with the settings of `config` and
    /// then this builder's.
    ///
    /// This builder's `disable_comments` then applies to services and methods, and the
    /// configuration's applies to messages. The configuration's `protoc_executable`, `protoc_arg`
    /// and `skip_source_info` only work with the feature `protoc`. Its `service_generator` never
    /// does. Cargo shows a warning for a `protoc_arg` or `service_generator` without effect.
    ///
    /// # Errors
    ///
    /// Returns the errors of `compile_protos`, and an error if `config` has a
    /// `file_descriptor_set_path`: set it on this builder.
    pub fn compile_with_config<P: AsRef<Path>>(
        mut self,
        config: Config,
        protos: &[P],
        includes: &[P],
    ) -> Result<(), CodegenError> {
        let mut config = self.foreign_config(config)?;
        let descriptors = self.read(&mut config, protos, includes)?;
        self.generate(config, descriptors)
    }

    /// Generates code from descriptors that another tool has parsed.
    ///
    /// The set must contain everything that its files import, as with protoc's `--include_imports`.
    ///
    /// # Errors
    ///
    /// Returns an error if the set is inconsistent, a setting is invalid, or the output cannot be
    /// written.
    pub fn compile_fds(mut self, fds: FileDescriptorSet) -> Result<(), CodegenError> {
        let config = self.own_config()?;
        self.generate(config, Descriptors::resolved(fds)?)
    }

    /// Generates code like [`compile_fds`](Self::compile_fds), with the settings of `config`, as in
    /// [`compile_with_config`](Self::compile_with_config).
    ///
    /// # Errors
    ///
    /// Returns the errors of both.
    pub fn compile_fds_with_config(
        mut self,
        fds: FileDescriptorSet,
        config: Config,
    ) -> Result<(), CodegenError> {
        let config = self.foreign_config(config)?;
        self.generate(config, Descriptors::resolved(fds)?)
    }

    /// Checks the settings, and creates a configuration.
    fn own_config(&mut self) -> Result<Config, CodegenError> {
        self.check()?;
        let from_env = || std::env::var_os("OUT_DIR").map(PathBuf::from);
        self.out_dir = Some(self.out_dir.take().or_else(from_env).ok_or(CodegenError::OutDir)?);
        let mut config = Config::new();
        config.disable_comments(self.disabled_comments());
        Ok(config)
    }

    /// Checks the settings of the builder and of the caller's configuration.
    fn foreign_config(&mut self, config: Config) -> Result<Config, CodegenError> {
        self.check()?;
        let builders = Builders {
            has_descriptor_set_path: self.descriptor_set != DescriptorSet::Unused,
            has_services: self.has_services(),
        };
        self.warnings.extend(foreign_config::check(&config, builders)?);
        self.foreign = foreign_config::elsewhere(&config);
        Ok(config)
    }

    /// Parses the files, or reads their descriptor set.
    fn read<P: AsRef<Path>>(
        &self,
        config: &mut Config,
        protos: &[P],
        includes: &[P],
    ) -> Result<Descriptors, CodegenError> {
        if let DescriptorSet::Read(path) = &self.descriptor_set {
            return Descriptors::read(path.as_ref().ok_or(CodegenError::NoDescriptorSet)?);
        }
        let includes = parse::includes(includes, std::env::var_os(PROTOC_INCLUDE))?;
        for argument in &self.protoc_args {
            config.protoc_arg(argument);
        }
        let Parsed { set, encoded, files } = parse::parse(config, protos, &includes)?;
        message_graph::refuse_endless(&set, &includes)?;
        if self.emit_rerun_if_changed {
            println!("cargo:rerun-if-env-changed={PROTOC_INCLUDE}");
            if cfg!(feature = "protoc") {
                println!("cargo:rerun-if-env-changed=PROTOC");
            }
            for path in files {
                println!("cargo:rerun-if-changed={}", path.display());
            }
        }
        Ok(Descriptors { set, encoded })
    }

    fn generate(self, mut config: Config, descriptors: Descriptors) -> Result<(), CodegenError> {
        let Descriptors { set, encoded } = descriptors;
        for warning in self.warnings() {
            println!("cargo:warning={warning}");
        }
        if let DescriptorSet::Written(path) = &self.descriptor_set {
            fs::write(path, encoded)
                .map_err(|reason| CodegenError::Write { path: path.clone(), reason })?;
        }
        self.apply_to(&mut config);
        if let Some(prost) = self.reexported("prost").filter(|_| !has_prost_path(&config)) {
            config.prost_path(prost);
        }
        if self.has_services() {
            config.service_generator(self.generator(Messages::new(&set, &self.elsewhere())));
        }
        if let Some(out_dir) = &self.out_dir {
            config.out_dir(out_dir);
        }
        let generated = config.compile_fds(set);
        generated.map_err(|reason| CodegenError::Generate { out_dir: self.out_dir, reason })
    }
}

impl Descriptors {
    /// Takes a set that another tool has parsed.
    fn resolved(set: FileDescriptorSet) -> Result<Self, CodegenError> {
        let encoded = set.encode_to_vec();
        Self::checked(set, encoded)
    }

    fn checked(set: FileDescriptorSet, encoded: Vec<u8>) -> Result<Self, CodegenError> {
        let set = descriptor_set::resolve(set)?;
        message_graph::refuse_endless(&set, &[])?;
        Ok(Self { set, encoded })
    }

    fn read(path: &Path) -> Result<Self, CodegenError> {
        let failed = |reason| CodegenError::Read { path: path.to_owned(), reason };
        let encoded = fs::read(path).map_err(failed)?;
        let set = FileDescriptorSet::decode(&*encoded)
            .map_err(|error| failed(io::Error::new(io::ErrorKind::InvalidData, error)))?;
        Self::checked(set, encoded)
    }
}
