//! Schemas that a server sends, in a library that panics at some of the malformed ones.
//!
//! prost-reflect 0.16 indexes past its files when it reports a name that a file defines twice, for
//! example. Such a schema is a failure like any other, without a panic's message.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use prost_reflect::prost_types::FileDescriptorProto;
use prost_reflect::{DescriptorError, DescriptorPool};

use crate::failure::Failure;
use crate::output::escape;

thread_local! {
    /// True while a panic of this thread is caught.
    static IS_GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Keeps caught panics from the standard error.
pub(crate) fn silence_caught_panics() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !IS_GUARDED.get() {
            report(info);
        }
    }));
}

/// Builds the schema of `files`, in which every name is an identifier.
pub(crate) fn schema_from_files(
    files: impl IntoIterator<Item = FileDescriptorProto>,
) -> Result<DescriptorPool, Failure> {
    built(|pool| pool.add_file_descriptor_protos(files))
}

/// Builds the schema of an encoded `FileDescriptorSet`, in which every name is an identifier.
pub(crate) fn schema_from_sets(sets: &[Vec<u8>]) -> Result<DescriptorPool, Failure> {
    built(|pool| sets.iter().try_for_each(|set| pool.decode_file_descriptor_set(set.as_slice())))
}

fn built(
    add: impl FnOnce(&mut DescriptorPool) -> Result<(), DescriptorError>,
) -> Result<DescriptorPool, Failure> {
    let build = || {
        let mut pool = DescriptorPool::new();
        add(&mut pool)
            .map_err(|error| Failure::peer(format!("the schema is invalid: {error:?}")))?;
        check_names(&pool)?;
        Ok(pool)
    };
    IS_GUARDED.set(true);
    // A pool that a panic has left half-built is dropped, and seen no more.
    let built = catch_unwind(AssertUnwindSafe(build));
    IS_GUARDED.set(false);
    built.unwrap_or_else(|_| Err(Failure::peer("the schema is invalid")))
}

/// Fails if a name of a schema is no identifier of protobuf.
fn check_names(pool: &DescriptorPool) -> Result<(), Failure> {
    let services = pool.services().flat_map(|service| {
        let methods: Vec<_> = service.methods().map(|it| it.full_name().to_owned()).collect();
        methods.into_iter().chain([service.full_name().to_owned()])
    });
    let messages = pool.all_messages().flat_map(|message| {
        let fields: Vec<_> = message.fields().map(|it| it.full_name().to_owned()).collect();
        let oneofs: Vec<_> = message.oneofs().map(|it| it.full_name().to_owned()).collect();
        let name = message.full_name().to_owned();
        fields.into_iter().chain(oneofs).chain([name])
    });
    let enums = pool.all_enums().flat_map(|kind| {
        let values: Vec<_> = kind.values().map(|it| it.full_name().to_owned()).collect();
        values.into_iter().chain([kind.full_name().to_owned()])
    });
    match services.chain(messages).chain(enums).find(|name| !is_full_name(name)) {
        None => Ok(()),
        Some(name) => Err(Failure::peer(format!(
            "the schema uses the name `{}`, which is not an identifier",
            escape(&name)
        ))),
    }
}

/// Returns true for identifiers of protobuf with dots between them.
pub(crate) fn is_full_name(name: &str) -> bool {
    let is_identifier = |part: &str| {
        !part.is_empty() && part.chars().all(|it| it.is_ascii_alphanumeric() || it == '_')
    };
    name.split('.').all(is_identifier)
}
