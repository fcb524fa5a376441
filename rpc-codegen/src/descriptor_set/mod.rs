//! Checking a file descriptor set that something else has parsed.
//!
//! prost-build takes descriptors to be what protoc makes and panics on others. What this crate's
//! parser has made of files needs none of this.

#[cfg(any(not(feature = "protox"), test))]
mod qualified;
#[cfg(feature = "protox")]
mod reflected;

use prost_types::FileDescriptorSet;

use crate::error::CodegenError;

/// The syntax of a file that is written in an edition.
const EDITIONS: &str = "editions";

/// Returns the set with every name of a type resolved.
///
/// # Errors
///
/// Returns an error if a file or type that is referred to is not in the set, if a name is no
/// protobuf identifier, or if a file is written in an edition. Without the feature `protox`, a type
/// name that does not begin with a dot is an error too.
pub(crate) fn resolve(fds: FileDescriptorSet) -> Result<FileDescriptorSet, CodegenError> {
    refuse_editions(&fds)?;
    #[cfg(feature = "protox")]
    return reflected::resolve(fds);
    #[cfg(not(feature = "protox"))]
    return qualified::check(&fds).map(|()| fds);
}

/// Checks that no file is written in an edition, which prost does not know.
///
/// # Errors
///
/// Returns an error that names such a file.
pub(crate) fn refuse_editions(fds: &FileDescriptorSet) -> Result<(), CodegenError> {
    match fds.file.iter().find(|file| file.syntax() == EDITIONS) {
        Some(file) => Err(CodegenError::Editions { file: file.name().into(), edition: None }),
        None => Ok(()),
    }
}

fn invalid(message: String) -> CodegenError {
    CodegenError::DescriptorSet { message }
}

/// Returns true if every part between dots is an identifier.
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
    fn identifiers_are_told_from_other_text() {
        assert!(is_full_name("a") && is_full_name("a.B_2") && is_full_name("_"));
        for name in ["", ".", "a.", "2a", "a-b", "a b", "ä"] {
            assert!(!is_full_name(name), "{name}");
        }
    }
}
