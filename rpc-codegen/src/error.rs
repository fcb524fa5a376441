//! What can go wrong in a build script, said so that the reader knows which file or setting to
//! mend.
//!
//! A build script's `main` prints its error with `{:?}`, so [`CodegenError`]'s `Debug` is the
//! readable message with its causes and not a dump of fields.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::settings::InvalidSetting;

/// Where in a `.proto` file something is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProtoLocation {
    /// The file: its path where it was found in an include directory, else its import name.
    pub file: PathBuf,
    /// Line and column, both counted from 1, where the parser knows them.
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

/// Why code could not be generated.
///
/// Its text has the reason, so that it has no source: a report with causes would say it twice.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum CodegenError {
    /// A `.proto` file does not parse, or names something that is not defined or not found.
    #[error("{at}: {message}")]
    Proto {
        /// Where.
        at: ProtoLocation,
        /// What the parser says about it.
        message: String,
    },

    /// A file that was asked for is in none of the include directories.
    #[error("{message}")]
    Input {
        /// Which file, and which directories were searched.
        message: String,
    },

    /// A file is written in a protobuf edition, which neither the parser nor prost knows.
    #[error(
        "{}: protobuf editions are not supported ({}): write syntax = \"proto3\" or \"proto2\"",
        file.display(),
        edition.as_deref().map_or("an edition".to_owned(), |name| format!("edition = {name:?}"))
    )]
    Editions {
        /// The file: its path where it was found in an include directory, else its import name.
        file: PathBuf,
        /// Its edition, where that is known: descriptors do not tell it.
        edition: Option<String>,
    },

    /// The environment variable `PROTOC_INCLUDE` names no directory.
    #[error("PROTOC_INCLUDE is no directory: {}", path.display())]
    ProtocInclude {
        /// What it says.
        path: PathBuf,
    },

    /// The feature `protoc` is on, and the machine has no protoc.
    #[error(
        "`{}` is not there, which rpc-codegen's feature `protoc` runs: install it (`apt-get \
         install protobuf-compiler`, `brew install protobuf`), set the environment variable PROTOC \
         to its path, or choose the feature `protox` instead, which needs no program",
        program.display()
    )]
    ProtocNotFound {
        /// The program that was looked for.
        program: PathBuf,
    },

    /// protoc could not be run, or its output could not be read.
    #[error("{message}")]
    Protoc {
        /// The system's reason.
        message: String,
    },

    /// A build without a parser was asked to parse.
    #[error(
        "parsing .proto files needs rpc-codegen's feature `protox` (a default) or `protoc`; \
         compile_fds takes descriptors without either"
    )]
    NoParser,

    /// The file descriptor set contradicts itself or lacks the files that it imports.
    #[error("file descriptor set: {message}")]
    DescriptorSet {
        /// What is wrong with it.
        message: String,
    },

    /// A builder setting is not the piece of Rust that it has to be.
    #[error("{setting}({value:?}) is not valid Rust: {reason}")]
    Setting {
        /// The builder's method.
        setting: &'static str,
        /// What it was given.
        value: String,
        /// Why it does not parse.
        reason: syn::Error,
    },

    /// `build_transport(true)` without the feature that it needs.
    #[error(
        "build_transport(true) needs rpc-codegen's feature: \
         rpc-codegen = {{ version = \"...\", features = [\"transport\"] }}"
    )]
    TransportFeature,

    /// `package_dir` without the feature that it needs.
    #[error(
        "package_dir({name:?}) needs rpc-codegen's feature: \
         rpc-codegen = {{ version = \"...\", features = [\"package-dir\"] }}"
    )]
    PackageDirFeature {
        /// The package that was looked for.
        name: String,
    },

    /// `skip_protoc_run()` without the file that is to be read.
    #[error("skip_protoc_run() needs file_descriptor_set_path(), the file that it reads")]
    NoDescriptorSet,

    /// The descriptor set of `skip_protoc_run()` could not be read.
    #[error("reading {}: {reason}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason, or that it is no descriptor set.
        reason: io::Error,
    },

    /// A `prost_build::Config` asks for a descriptor set, and does not tell where.
    #[error(
        "Config::file_descriptor_set_path cannot be honoured: \
         call Builder::file_descriptor_set_path"
    )]
    ConfigDescriptorSetPath,

    /// There is no directory to write to.
    #[error("no output directory: OUT_DIR is not set (not a build script?), so call out_dir()")]
    OutDir,

    /// prost-build refused the descriptors or settings, or could not write its output.
    #[error("generating code{}: {reason}", into(out_dir.as_deref()))]
    Generate {
        /// Where the output goes; `None` when that was a `prost_build::Config`'s to say.
        out_dir: Option<PathBuf>,
        /// prost-build's reason.
        reason: io::Error,
    },

    /// A file could not be written.
    #[error("writing {}: {reason}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        reason: io::Error,
    },

    /// `cargo metadata` could not be started.
    #[error("starting `{command}`: {reason}")]
    CargoStart {
        /// The command line.
        command: String,
        /// The system's reason.
        reason: io::Error,
    },

    /// `cargo metadata` failed or printed something unexpected.
    #[error("`{command}` failed: {message}")]
    CargoMetadata {
        /// The command line.
        command: String,
        /// What cargo said.
        message: String,
    },

    /// The package is not among the dependencies of the package that asks for it.
    #[error("{name} is not a dependency of {}", manifest.display())]
    PackageNotFound {
        /// The package that was looked for.
        name: String,
        /// The manifest whose dependencies were searched.
        manifest: PathBuf,
    },

    /// The package has several versions among the dependencies.
    #[error("{} depends on {name} in versions {}", manifest.display(), versions.join(", "))]
    PackageAmbiguous {
        /// The package that was looked for.
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

/// For build scripts whose `main` returns the error of tonic-prost-build.
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
