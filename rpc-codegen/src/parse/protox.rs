//! The parser in Rust, protox, and its errors with locations.

use std::fs;
use std::path::{Path, PathBuf};

use miette::Diagnostic;
use protox::Compiler;
use protox::file::{
    ChainFileResolver, File, FileMetadata, FileResolver, GoogleFileResolver, IncludeFileResolver,
};

use super::input::plain_text;
use super::place::located;
use super::{Parsed, find};
use crate::error::CodegenError;

/// Parses `protos` and their imports.
///
/// # Errors
///
/// Returns an error if a file is missing or does not parse.
pub(super) fn parse(
    protos: &[impl AsRef<Path>],
    includes: &[PathBuf],
) -> Result<Parsed, CodegenError> {
    let mut compiler = Compiler::with_file_resolver(resolver(includes));
    compiler.include_source_info(true).include_imports(true);
    compiler.open_files(protos).map_err(|error| proto_error(&error, includes))?;
    // protox knows no path for a file that it parsed from text.
    let path =
        |file: &FileMetadata| file.path().map(Path::to_owned).or(find(file.name(), includes));
    let files = compiler.files().filter_map(path);
    Ok(Parsed {
        files: files.collect(),
        set: compiler.file_descriptor_set(),
        encoded: compiler.encode_file_descriptor_set(),
    })
}

/// Returns a resolver that tries protobuf's own files as protox carries them, then `includes`.
///
/// The order matters: files installed with protoc 30 or later use syntax that protox does not know.
fn resolver(includes: &[PathBuf]) -> ChainFileResolver {
    let mut resolver = ChainFileResolver::new();
    resolver.add(GoogleFileResolver::new());
    for include in includes {
        let files = IncludeFileResolver::new(include.clone());
        resolver.add(PlainTextResolver { include: include.clone(), files });
    }
    resolver
}

/// Resolves files in an include directory, without byte order marks and Windows line ends. protox
/// reports a mark as a syntax error.
struct PlainTextResolver {
    include: PathBuf,
    files: IncludeFileResolver,
}

impl FileResolver for PlainTextResolver {
    fn resolve_path(&self, path: &Path) -> Option<String> {
        self.files.resolve_path(path)
    }

    fn open_file(&self, name: &str) -> Result<File, protox::Error> {
        match fs::read_to_string(self.include.join(name)) {
            Ok(source) if plain_text(&source) != source => {
                File::from_source(name, &plain_text(&source))
            }
            _ => self.files.open_file(name),
        }
    }
}

fn proto_error(error: &protox::Error, includes: &[PathBuf]) -> CodegenError {
    let message = message(error, includes);
    match error.file() {
        Some(name) => located(name, line_column(error), message, includes),
        None => CodegenError::Input { message },
    }
}

/// Returns protox's message, its cause, and the searched directories if a file was not found.
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

/// Returns the location of the first label, counted from 1.
fn line_column(error: &protox::Error) -> Option<(usize, usize)> {
    let label = error.labels()?.next()?;
    let contents = error.source_code()?.read_span(label.inner(), 0, 0).ok()?;
    Some((contents.line() + 1, contents.column() + 1))
}
