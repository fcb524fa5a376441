//! Checks for a file descriptor set that another tool has parsed.
//!
//! prost-build expects protoc's descriptors and panics on others. Output of this crate's own parser
//! needs no check.

#[cfg(any(not(feature = "protox"), test))]
mod qualified;
#[cfg(feature = "protox")]
mod reflected;

use prost_types::FileDescriptorSet;

use crate::error::CodegenError;

/// The syntax of a file that uses an edition.
const EDITIONS: &str = "editions";

/// Resolves every type name in the set.
///
/// # Errors
///
/// Returns an error if the set lacks a file or type that it refers to, if a name is not a protobuf
/// identifier, or if a file uses an edition. Without the feature `protox`, a type name without a
/// leading dot is also an error.
pub(crate) fn resolve(fds: FileDescriptorSet) -> Result<FileDescriptorSet, CodegenError> {
    refuse_editions(&fds)?;
    #[cfg(feature = "protox")]
    return reflected::resolve(fds);
    #[cfg(not(feature = "protox"))]
    return qualified::check(&fds).map(|()| fds);
}

/// Checks that no file uses an edition, which prost does not support.
///
/// # Errors
///
/// Returns an error that names the first such file.
pub(crate) fn refuse_editions(fds: &FileDescriptorSet) -> Result<(), CodegenError> {
    match fds.file.iter().find(|file| file.syntax() == EDITIONS) {
        Some(file) => Err(CodegenError::Editions { file: file.name().into(), edition: None }),
        None => Ok(()),
    }
}

fn invalid(message: String) -> CodegenError {
    CodegenError::DescriptorSet { message }
}

/// Returns true if every dot-separated part is an identifier.
fn is_full_name(name: &str) -> bool {
    name.split('.').all(|part| {
        let is_letter = |letter: char| letter.is_ascii_alphabetic() || letter == '_';
        part.starts_with(is_letter)
            && part.chars().all(|letter| is_letter(letter) || letter.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_names_consist_of_identifiers() {
        assert!(is_full_name("a") && is_full_name("a.B_2") && is_full_name("_"));
        for name in ["", ".", "a.", "2a", "a-b", "a b", "ä"] {
            assert!(!is_full_name(name), "{name}");
        }
    }
}
