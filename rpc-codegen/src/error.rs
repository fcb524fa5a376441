//! Errors of a build script, which tell the reader which file or setting to fix.
//!
//! A build script's `main` prints its error with `{:?}`, so the `Debug` of [`CodegenError`] is the
//! readable message with its causes instead of a dump of fields.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::settings::InvalidSetting;

/// The location of a fault in a `.proto` file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProtoLocation {
    /// The file: its path in the include directory that has it, or its import name.
    pub file: PathBuf,
    /// Line and column, both counted from 1, if the parser knows them.
    pub line_column: Option<(usize, usize)>,
}

impl fmt::Display for ProtoLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        match self.line_column {
            Some((line, column)) => write!(f, ":{line}:{column}"),
            None => Ok(()),
        }
    }
}

/// The reason why code generation failed.
///
/// The message includes the cause, so the error has no source. A report that prints causes would
/// repeat it.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum CodegenError {
    /// A `.proto` file does not parse, or refers to something that is missing.
    #[error("{at}: {message}")]
    Proto {
        /// Location of the fault.
        at: ProtoLocation,
        /// The parser's message.
        message: String,
    },

    /// No include directory has the requested file.
    #[error("{message}")]
    Input {
        /// The file, and the directories that were searched.
        message: String,
    },

    /// A file uses a protobuf edition, which neither the parser nor prost supports.
    #[error(
        "{}: protobuf editions are not supported ({}): write syntax = \"proto3\" or \"proto2\"",
        file.display(),
        edition.as_deref().map_or("an edition".to_owned(), |name| format!("edition = {name:?}"))
    )]
    Editions {
        /// The file: its path in the include directory that has it, or its import name.
        file: PathBuf,
        /// The edition, if known: descriptors do not carry it.
        edition: Option<String>,
    },

    /// The environment variable `PROTOC_INCLUDE` does not name a directory.
    #[error("PROTOC_INCLUDE is not a directory: {}", path.display())]
    ProtocInclude {
        /// The variable's value.
        path: PathBuf,
    },

    /// The feature `protoc` is on, and the machine has no protoc.
    #[error(
        "rpc-codegen's feature `protoc` runs `{}`, which is not installed: install it (`apt-get \
         install protobuf-compiler`, `brew install protobuf`), set the environment variable PROTOC \
         to its path, or use the feature `protox`, which needs no program",
        program.display()
    )]
    ProtocNotFound {
        /// The program that was searched for.
        program: PathBuf,
    },

    /// protoc failed to start, or its output could not be read.
    #[error("{message}")]
    Protoc {
        /// The system's message.
        message: String,
    },

    /// The build has no parser.
    #[error(
        "parsing .proto files needs rpc-codegen's feature `protox` (a default) or `protoc`; \
         compile_fds takes descriptors without either"
    )]
    NoParser,

    /// The file descriptor set is inconsistent, or lacks files that it imports.
    #[error("file descriptor set: {message}")]
    DescriptorSet {
        /// The fault.
        message: String,
    },

    /// A builder setting is not valid Rust.
    #[error("{setting}({value:?}) is not valid Rust: {reason}")]
    Setting {
        /// The builder's method.
        setting: &'static str,
        /// The value.
        value: String,
        /// The parser's message.
        reason: syn::Error,
    },

    /// `build_transport(true)` without its feature.
    #[error(
        "build_transport(true) needs rpc-codegen's feature: \
         rpc-codegen = {{ version = \"...\", features = [\"transport\"] }}"
    )]
    TransportFeature,

    /// `package_dir` without its feature.
    #[error(
        "package_dir({name:?}) needs rpc-codegen's feature: \
         rpc-codegen = {{ version = \"...\", features = [\"package-dir\"] }}"
    )]
    PackageDirFeature {
        /// The package that was searched for.
        name: String,
    },

    /// `skip_protoc_run()` without a file to read.
    #[error("skip_protoc_run() needs file_descriptor_set_path(), the file that it reads")]
    NoDescriptorSet,

    /// The descriptor set of `skip_protoc_run()` could not be read.
    #[error("reading {}: {reason}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's message, or a note that the file is not a descriptor set.
        reason: io::Error,
    },

    /// A `prost_build::Config` requests a descriptor set, and its path is unknown.
    #[error(
        "Config::file_descriptor_set_path has no effect: call Builder::file_descriptor_set_path"
    )]
    ConfigDescriptorSetPath,

    /// There is no output directory.
    #[error("OUT_DIR is not set: run this in a build script, or call out_dir()")]
    OutDir,

    /// prost-build refused the descriptors or settings, or could not write its output.
    #[error("generating code{}: {reason}", into(out_dir.as_deref()))]
    Generate {
        /// The output directory; `None` if a `prost_build::Config` decides.
        out_dir: Option<PathBuf>,
        /// prost-build's message.
        reason: io::Error,
    },

    /// A file could not be written.
    #[error("writing {}: {reason}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's message.
        reason: io::Error,
    },

    /// `cargo metadata` could not be started.
    #[error("starting `{command}`: {reason}")]
    CargoStart {
        /// The command line.
        command: String,
        /// The system's message.
        reason: io::Error,
    },

    /// `cargo metadata` failed or printed something unexpected.
    #[error("`{command}` failed: {message}")]
    CargoMetadata {
        /// The command line.
        command: String,
        /// cargo's message.
        message: String,
    },

    /// The package is not a dependency of the package that asks for it.
    #[error("{name} is not a dependency of {}", manifest.display())]
    PackageNotFound {
        /// The package that was searched for.
        name: String,
        /// The manifest whose dependencies were searched.
        manifest: PathBuf,
    },

    /// Several versions of the package are dependencies.
    #[error("{} depends on {name} in versions {}", manifest.display(), versions.join(", "))]
    PackageAmbiguous {
        /// The package that was searched for.
        name: String,
        /// The manifest whose dependencies were searched.
        manifest: PathBuf,
        /// The versions found.
        versions: Vec<String>,
    },
}

impl fmt::Debug for CodegenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn into(out_dir: Option<&Path>) -> String {
    out_dir.map_or_else(String::new, |path| format!(" into {}", path.display()))
}

impl From<InvalidSetting> for CodegenError {
    fn from(InvalidSetting { setting, value, reason }: InvalidSetting) -> Self {
        Self::Setting { setting, value, reason }
    }
}

/// Supports build scripts whose `main` returns tonic-prost-build's error.
impl From<CodegenError> for io::Error {
    fn from(error: CodegenError) -> Self {
        Self::other(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_is_the_message_because_build_scripts_print_it() {
        let at = ProtoLocation { file: "a.proto".into(), line_column: Some((3, 7)) };
        let error = CodegenError::Proto { at, message: "name 'X' is not defined".into() };
        assert_eq!(format!("{error:?}"), "a.proto:3:7: name 'X' is not defined");
    }
}
