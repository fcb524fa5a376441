//! From `.proto` files or descriptors to files of Rust: parse, check, generate, tell cargo.
//!
//! What the generated code looks like is not decided here.

use std::fs;
use std::path::{Path, PathBuf};

use miette::Diagnostic;
use prost::Message;
use prost_types::FileDescriptorSet;

use crate::builder::Builder;
use crate::bytes_fields::BytesFields;
use crate::descriptor_set;
use crate::error::{CodegenError, ProtoLocation};

impl Builder {
    /// Compiles `protos`, whose imports are looked for in `includes`, without protoc.
    ///
    /// One file a package is written, named after the package, as prost does.
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
        let includes: Vec<&Path> = includes.iter().map(AsRef::as_ref).collect();
        let compiler = parse(protos, &includes).map_err(|error| proto_error(&error, &includes))?;
        if self.emit_rerun_if_changed {
            for path in compiler.files().filter_map(protox::file::FileMetadata::path) {
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

fn parse(
    protos: &[impl AsRef<Path>],
    includes: &[&Path],
) -> Result<protox::Compiler, protox::Error> {
    let mut compiler = protox::Compiler::new(includes)?;
    compiler.include_source_info(true).include_imports(true).open_files(protos)?;
    Ok(compiler)
}

/// protox's error with its place, the file by the path where it was found.
fn proto_error(error: &protox::Error, includes: &[&Path]) -> CodegenError {
    let message = message(error, includes);
    match error.file() {
        Some(name) => {
            let found =
                includes.iter().map(|include| include.join(name)).find(|path| path.exists());
            let file = found.unwrap_or_else(|| PathBuf::from(name));
            let at = ProtoLocation { file, line_column: line_column(error) };
            CodegenError::Proto { at, message }
        }
        None => CodegenError::Input { message },
    }
}

/// What protox says, what lies beneath it, and where it looked if it did not find something.
fn message(error: &protox::Error, includes: &[&Path]) -> String {
    let mut message = error.to_string();
    if let Some(cause) = std::error::Error::source(error) {
        message = format!("{message}: {cause}");
    }
    if let Some(help) = error.help() {
        message = format!("{message} ({help})");
    }
    if error.is_file_not_found() {
        let searched: Vec<_> = includes.iter().map(|path| path.display().to_string()).collect();
        message = format!("{message} (include directories: {})", searched.join(", "));
    }
    message
}

/// The place of the first label, counted from 1.
fn line_column(error: &protox::Error) -> Option<(usize, usize)> {
    let label = error.labels()?.next()?;
    let contents = error.source_code()?.read_span(label.inner(), 0, 0).ok()?;
    Some((contents.line() + 1, contents.column() + 1))
}
