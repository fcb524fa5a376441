//! The check with prost-reflect, which comes with protox.

use prost_types::FileDescriptorSet;
use protox::prost_reflect::DescriptorPool;

use super::{invalid, is_full_name};
use crate::error::CodegenError;

/// Resolves every type name in the set.
///
/// # Errors
///
/// Returns an error if the set is inconsistent, or lacks a file or type that it refers to.
pub(super) fn resolve(fds: FileDescriptorSet) -> Result<FileDescriptorSet, CodegenError> {
    let pool = DescriptorPool::from_file_descriptor_set(fds)
        .map_err(|error| invalid(format!("{error:?} (the set must contain its imports)")))?;
    if let Some((name, owner)) = names(&pool).into_iter().find(|(name, _)| !is_full_name(name)) {
        return Err(invalid(format!("{name:?} in {owner} is not a protobuf identifier")));
    }
    Ok(FileDescriptorSet { file: pool.file_descriptor_protos().cloned().collect() })
}

/// Returns every name that becomes a Rust name, with the file or type that contains it.
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
