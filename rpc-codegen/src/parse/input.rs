//! Input files: their paths below include directories, and their text as parsers accept it.
//!
//! Parsers compare paths as text. A file and an include directory that reach the same place through
//! different symbolic links, or through `..`, have no common prefix.

#[cfg(all(feature = "protox", any(not(feature = "protoc"), test)))]
use std::borrow::Cow;
use std::path::{Path, PathBuf};

use super::find;
use crate::error::CodegenError;

/// Returns `protos` as paths that begin with the include directory where each file is found.
///
/// A file outside all include directories stays as it is. The parser searches for it like for an
/// import.
///
/// # Errors
///
/// Returns an error if an earlier include directory has another file with the same import name.
pub(super) fn below_includes(
    protos: &[impl AsRef<Path>],
    includes: &[PathBuf],
) -> Result<Vec<PathBuf>, CodegenError> {
    protos.iter().map(|proto| below_include(proto.as_ref(), includes)).collect()
}

fn below_include(proto: &Path, includes: &[PathBuf]) -> Result<PathBuf, CodegenError> {
    let Some(found) = import_name(proto, includes).and_then(|name| find(&name, includes)) else {
        return Ok(proto.to_owned());
    };
    match (found.canonicalize(), proto.canonicalize()) {
        (Ok(first), Ok(wanted)) if first != wanted => Err(CodegenError::Input {
            message: format!(
                "{} is shadowed by {} in an earlier include directory",
                proto.display(),
                found.display()
            ),
        }),
        _ => Ok(found),
    }
}

/// Returns the path of `proto` below the first include directory that contains it.
fn import_name(proto: &Path, includes: &[PathBuf]) -> Option<PathBuf> {
    let below = |path: &Path, include: &Path| path.strip_prefix(include).ok().map(Path::to_owned);
    let by_text = || includes.iter().find_map(|include| below(proto, include));
    let folder = || proto.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(".".as_ref());
    // The file's own name precedes that of its link target, since imports use it.
    let by_folder = || Some(folder().canonicalize().ok()?.join(proto.file_name()?));
    let by_file = || proto.canonicalize().ok();
    let real = |path: Option<PathBuf>| {
        let path = path?;
        includes.iter().find_map(|include| below(&path, &include.canonicalize().ok()?))
    };
    let name = by_text().filter(|name| is_plain(name));
    name.or_else(|| real(by_folder())).or_else(|| real(by_file()))
}

/// Returns true if the path has no `..`, which import names must not contain.
fn is_plain(path: &Path) -> bool {
    path.components().all(|part| matches!(part, std::path::Component::Normal(_)))
}

/// Returns the text without a byte order mark and with Unix line ends.
#[cfg(all(feature = "protox", any(not(feature = "protoc"), test)))]
pub(super) fn plain_text(source: &str) -> Cow<'_, str> {
    let source = without_mark(source);
    match source.contains("\r\n") {
        true => source.replace("\r\n", "\n").into(),
        false => source.into(),
    }
}

/// Returns the text without a byte order mark.
pub(super) fn without_mark(source: &str) -> &str {
    source.strip_prefix('\u{feff}').unwrap_or(source)
}
