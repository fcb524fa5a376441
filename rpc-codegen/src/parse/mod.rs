//! Parsing of `.proto` files: import folders, the choice of a parser, and errors with locations.
//!
//! The feature `protoc` is an explicit choice. `protox` is a default, which another build script
//! can enable. If both are on, `protoc` wins.

#[cfg(any(feature = "protoc", feature = "protox", test))]
mod editions;
#[cfg(any(feature = "protoc", feature = "protox", test))]
mod input;
#[cfg(any(feature = "protoc", feature = "protox", test))]
mod place;
#[cfg(any(feature = "protoc", test))]
mod protoc;
#[cfg(all(feature = "protox", any(not(feature = "protoc"), test)))]
mod protox;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use prost_build::Config;
use prost_types::FileDescriptorSet;

use crate::error::CodegenError;

/// The environment variable with one more import folder, as in prost-build.
pub(crate) const PROTOC_INCLUDE: &str = "PROTOC_INCLUDE";

/// The descriptors of parsed files.
#[derive(Debug)]
pub(crate) struct Parsed {
    pub(crate) set: FileDescriptorSet,
    /// The encoded set, with the custom options that prost's descriptor types lose.
    pub(crate) encoded: Vec<u8>,
    /// Paths of the files that were read, including imports.
    pub(crate) files: Vec<PathBuf>,
}

/// Parses `protos` and their imports. protoc takes its arguments from `config`.
///
/// # Errors
///
/// Returns an error if a file is missing or does not parse, or if there is no protoc.
#[cfg(feature = "protoc")]
pub(crate) fn parse(
    config: &mut Config,
    protos: &[impl AsRef<Path>],
    includes: &[PathBuf],
) -> Result<Parsed, CodegenError> {
    protoc::parse(config, &input::below_includes(protos, includes)?, includes)
}

/// Parses `protos` and their imports.
///
/// # Errors
///
/// Returns an error if a file is missing or does not parse.
#[cfg(all(feature = "protox", not(feature = "protoc")))]
pub(crate) fn parse(
    _: &mut Config,
    protos: &[impl AsRef<Path>],
    includes: &[PathBuf],
) -> Result<Parsed, CodegenError> {
    protox::parse(&input::below_includes(protos, includes)?, includes)
}

/// Refuses to parse: this build has no parser.
#[cfg(not(any(feature = "protoc", feature = "protox")))]
pub(crate) fn parse(
    _: &mut Config,
    _: &[impl AsRef<Path>],
    _: &[PathBuf],
) -> Result<Parsed, CodegenError> {
    Err(CodegenError::NoParser)
}

/// Returns the import folders: the caller's, then that of `PROTOC_INCLUDE`.
///
/// # Errors
///
/// Returns an error if the variable does not name a folder.
pub(crate) fn includes(
    given: &[impl AsRef<Path>],
    protoc_include: Option<OsString>,
) -> Result<Vec<PathBuf>, CodegenError> {
    let mut includes: Vec<PathBuf> = given.iter().map(|path| path.as_ref().to_owned()).collect();
    if let Some(include) = protoc_include.map(PathBuf::from) {
        if !include.is_dir() {
            return Err(CodegenError::ProtocInclude { path: include });
        }
        includes.push(include);
    }
    Ok(includes)
}

/// Finds the file with this import name in the import folders.
pub(crate) fn find(name: impl AsRef<Path>, includes: &[PathBuf]) -> Option<PathBuf> {
    includes.iter().map(|include| include.join(&name)).find(|path| path.exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variables_folder_comes_last() {
        let dir = tempfile::tempdir().unwrap();
        let includes = includes(&["a", "b"], Some(dir.path().into())).unwrap();
        assert_eq!(includes, [Path::new("a"), Path::new("b"), dir.path()]);
    }

    #[test]
    fn a_variable_without_a_folder_is_an_error() {
        let error = includes(&["a"], Some("/nowhere/at/all".into())).unwrap_err();
        assert_eq!(error.to_string(), "PROTOC_INCLUDE is not a directory: /nowhere/at/all");
    }
}
