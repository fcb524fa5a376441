//! From `.proto` files or descriptors to files of Rust: parse, check, generate, tell cargo.
//!
//! What the generated code looks like is not decided here.

use std::fs;
use std::path::{Path, PathBuf};

use prost::Message;
use prost_types::FileDescriptorSet;
use protox::file::FileMetadata;

use crate::builder::Builder;
use crate::bytes_fields::BytesFields;
use crate::descriptor_set;
use crate::error::CodegenError;
use crate::parse::{self, PROTOC_INCLUDE};

impl Builder {
    /// Compiles `protos`, whose imports are looked for in `includes`, without protoc.
    ///
    /// Behind `includes`, imports are looked for in the folder that the environment variable
    /// `PROTOC_INCLUDE` names. Files of `google/protobuf` are those that this crate carries, if it
    /// has them. One file a package is written, named after the package, as prost does.
    ///
    /// # Errors
    ///
    /// When a file does not parse or is missing, when a setting is wrong, when the output cannot
    /// be written.
    pub fn compile_protos(
        mut self,
        protos: &[impl AsRef<Path>],
        includes: &[impl AsRef<Path>],
    ) -> Result<(), CodegenError> {
        self.seal()?;
        let includes = parse::includes(includes, std::env::var_os(PROTOC_INCLUDE))?;
        let compiler = parse::parse(protos, &includes)?;
        if self.emit_rerun_if_changed {
            println!("cargo:rerun-if-env-changed={PROTOC_INCLUDE}");
            for path in compiler.files().filter_map(FileMetadata::path) {
                println!("cargo:rerun-if-changed={}", path.display());
            }
        }
        // protox's own encoding keeps the custom options that prost's descriptor types lose.
        self.generate(compiler.file_descriptor_set(), || compiler.encode_file_descriptor_set())
    }

    /// Generates code from descriptors that something else has parsed.
    ///
    /// The set must hold everything that its files import, as with protoc's `--include_imports`.
    ///
    /// # Errors
    ///
    /// When the set contradicts itself, when a setting is wrong, when the output cannot be written.
    pub fn compile_fds(mut self, fds: FileDescriptorSet) -> Result<(), CodegenError> {
        self.seal()?;
        let encoded = fds.encode_to_vec();
        let fds = descriptor_set::resolve(fds)?;
        self.generate(fds, || encoded)
    }

    fn generate(
        mut self,
        fds: FileDescriptorSet,
        encode: impl FnOnce() -> Vec<u8>,
    ) -> Result<(), CodegenError> {
        if let Some(path) = &self.file_descriptor_set_path {
            fs::write(path, encode())
                .map_err(|source| CodegenError::Write { path: path.clone(), source })?;
        }
        let from_env = || std::env::var_os("OUT_DIR").map(PathBuf::from);
        let out_dir = self.out_dir.take().or_else(from_env).ok_or(CodegenError::OutDir)?;
        self.bytes_fields.get_or_init(|| BytesFields::new(&fds));
        self.prost.out_dir(&out_dir);
        self.prost.compile_fds(fds).map_err(|source| CodegenError::Generate { out_dir, source })
    }
}
