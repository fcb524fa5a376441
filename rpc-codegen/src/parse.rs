//! Parsing `.proto` files with protox: where files are looked for, and errors with their places.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use miette::Diagnostic;
use protox::Compiler;
use protox::file::{ChainFileResolver, GoogleFileResolver, IncludeFileResolver};

use crate::editions;
use crate::error::{CodegenError, ProtoLocation};

/// The environment variable that names one more folder, as for prost-build.
pub(crate) const PROTOC_INCLUDE: &str = "PROTOC_INCLUDE";

/// The folders that imports are looked for in: the caller's, then that of `PROTOC_INCLUDE`.
///
/// # Errors
///
/// When the variable names no folder.
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

/// Parses `protos` and what they import.
///
/// # Errors
///
/// When a file does not parse or is missing.
pub(crate) fn parse(
    protos: &[impl AsRef<Path>],
    includes: &[PathBuf],
) -> Result<Compiler, CodegenError> {
    let mut compiler = Compiler::with_file_resolver(resolver(includes));
    compiler.include_source_info(true).include_imports(true);
    match compiler.open_files(protos) {
        Ok(_) => Ok(compiler),
        Err(error) => Err(proto_error(&error, includes)),
    }
}

/// Protobuf's own files as protox carries them, then what is in `includes`.
///
/// In this order, since those that are installed beside a protoc of version 30 or later have a
/// syntax that protox does not know.
fn resolver(includes: &[PathBuf]) -> ChainFileResolver {
    let mut resolver = ChainFileResolver::new();
    resolver.add(GoogleFileResolver::new());
    for include in includes {
        resolver.add(IncludeFileResolver::new(include.clone()));
    }
    resolver
}

/// protox's error with its place, the file by the path where it was found.
fn proto_error(error: &protox::Error, includes: &[PathBuf]) -> CodegenError {
    let message = message(error, includes);
    let Some(name) = error.file() else {
        return CodegenError::Input { message };
    };
    let found = includes.iter().map(|include| include.join(name)).find(|path| path.exists());
    let file = found.unwrap_or_else(|| PathBuf::from(name));
    let source = fs::read_to_string(&file).unwrap_or_default();
    if let Some(edition) = editions::edition(&source) {
        return CodegenError::Editions { file, edition: Some(edition.to_owned()) };
    }
    CodegenError::Proto { at: ProtoLocation { file, line_column: line_column(error) }, message }
}

/// What protox says, what lies beneath it, and where it looked if it did not find something.
fn message(error: &protox::Error, includes: &[PathBuf]) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variables_folder_is_the_last_one() {
        let dir = tempfile::tempdir().unwrap();
        let includes = includes(&["a", "b"], Some(dir.path().into())).unwrap();
        assert_eq!(includes, [Path::new("a"), Path::new("b"), dir.path()]);
    }

    #[test]
    fn a_variable_that_names_no_folder_is_an_error_that_names_it() {
        let error = includes(&["a"], Some("/nowhere/at/all".into())).unwrap_err();
        assert_eq!(error.to_string(), "PROTOC_INCLUDE is no directory: /nowhere/at/all");
    }
}
