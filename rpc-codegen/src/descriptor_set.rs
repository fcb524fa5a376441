//! Checking a file descriptor set that something else has parsed.
//!
//! prost-build takes descriptors to be what protoc makes and panics on others. What protox has
//! parsed from files needs none of this.

use prost_types::FileDescriptorSet;
use protox::prost_reflect::DescriptorPool;

use crate::error::CodegenError;

/// The syntax of a file that is written in an edition.
const EDITIONS: &str = "editions";

/// The set with every name of a type resolved.
///
/// # Errors
///
/// When a file or type that is referred to is not in the set, a name is no protobuf identifier, or
/// a file is written in an edition.
pub(crate) fn resolve(fds: FileDescriptorSet) -> Result<FileDescriptorSet, CodegenError> {
    if let Some(file) = fds.file.iter().find(|file| file.syntax() == EDITIONS) {
        return Err(CodegenError::Editions { file: file.name().into(), edition: None });
    }
    let pool = DescriptorPool::from_file_descriptor_set(fds)
        .map_err(|error| invalid(format!("{error:?} (a set must hold its imports too)")))?;
    if let Some((name, owner)) = names(&pool).into_iter().find(|(name, _)| !is_full_name(name)) {
        return Err(invalid(format!("{name:?} in {owner} is no protobuf identifier")));
    }
    Ok(FileDescriptorSet { file: pool.file_descriptor_protos().cloned().collect() })
}

fn invalid(message: String) -> CodegenError {
    CodegenError::DescriptorSet { message }
}

/// Every name that becomes a name in Rust, with the file or type that it stands in.
fn names(pool: &DescriptorPool) -> Vec<(String, String)> {
    let mut names = Vec::new();
    for file in pool.files().filter(|file| !file.package_name().is_empty()) {
        names.push((file.package_name().to_owned(), file.name().to_owned()));
    }
    for message in pool.all_messages() {
        let owner = message.full_name();
        let fields = message.fields().map(|field| field.name().to_owned());
        let oneofs = message.oneofs().map(|oneof| oneof.name().to_owned()).collect::<Vec<_>>();
        names.extend(fields.chain(oneofs).map(|name| (name, owner.to_owned())));
        names.push((owner.to_owned(), message.parent_file().name().to_owned()));
    }
    for items in pool.all_enums() {
        let owner = items.full_name();
        names.extend(items.values().map(|value| (value.name().to_owned(), owner.to_owned())));
        names.push((owner.to_owned(), items.parent_file().name().to_owned()));
    }
    for service in pool.services() {
        let owner = service.full_name();
        names.extend(service.methods().map(|method| (method.name().to_owned(), owner.to_owned())));
        names.push((owner.to_owned(), service.parent_file().name().to_owned()));
    }
    names
}

/// Whether every part between dots is an identifier.
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
