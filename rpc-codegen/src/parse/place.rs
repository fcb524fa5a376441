//! Errors with their location in a file.

use std::fs;
use std::path::PathBuf;

use super::{editions, find, input};
use crate::error::{CodegenError, ProtoLocation};

/// Builds the error for a location in the file `name`, under the path where the file was found. A
/// file with an edition gets its own error, since parsers report the edition as a syntax error.
pub(super) fn located(
    name: &str,
    line_column: Option<(usize, usize)>,
    message: String,
    includes: &[PathBuf],
) -> CodegenError {
    let file = find(name, includes).unwrap_or_else(|| PathBuf::from(name));
    let source = fs::read(&file).unwrap_or_default();
    let message = match source[..] {
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => "the file is UTF-16: save it as UTF-8".to_owned(),
        _ => message,
    };
    let source = String::from_utf8(source).unwrap_or_default();
    if let Some(edition) = editions::edition(input::without_mark(&source)) {
        return CodegenError::Editions { file, edition: Some(edition.to_owned()) };
    }
    CodegenError::Proto { at: ProtoLocation { file, line_column }, message }
}
