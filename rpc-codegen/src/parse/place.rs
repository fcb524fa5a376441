//! Errors with their place in a file.

use std::fs;
use std::path::PathBuf;

use super::editions;
use crate::error::{CodegenError, ProtoLocation};

/// Makes the error for a place in the file `name`, by the path where the file was found. A file of
/// an edition gets its own error: parsers call the edition a syntax error.
pub(super) fn located(
    name: &str,
    line_column: Option<(usize, usize)>,
    message: String,
    includes: &[PathBuf],
) -> CodegenError {
    let file = find(name, includes).unwrap_or_else(|| PathBuf::from(name));
    let source = fs::read_to_string(&file).unwrap_or_default();
    if let Some(edition) = editions::edition(&source) {
        return CodegenError::Editions { file, edition: Some(edition.to_owned()) };
    }
    CodegenError::Proto { at: ProtoLocation { file, line_column }, message }
}

/// Finds the file of an import name.
pub(super) fn find(name: &str, includes: &[PathBuf]) -> Option<PathBuf> {
    includes.iter().map(|include| include.join(name)).find(|path| path.exists())
}
