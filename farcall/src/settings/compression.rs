//! Compressed messages of a server by method: keys, and what its builder takes.

use rpc_core::settings::define_overlay;

use super::checks::SERVED;
use super::invalid::{Conflicts, Invalid};
use super::table::Named;
use crate::MethodCompression;

define_overlay! {
    /// What applies to a method of the server, "/shop.Catalog/Get", or to all of a service,
    /// "shop.Catalog". It is an error to name one that the server does not have.
    pub(super) ServerMethodTable {
        /// From which length on responses are compressed, where the client accepts it; "off" is
        /// never. Unless it is set, the server's `compression.min_len` says.
        compress_from: Option<u64> as SizeOrOff = "\"off\"", Live, 1.., SERVED;
    } tables {}
}

/// The length from which on messages are compressed, as builders take it.
pub(super) fn compressed_from(bytes: Option<u64>) -> u32 {
    // None is as long as the greatest length: as with "off", nothing is compressed.
    bytes.map_or(u32::MAX, |bytes| u32::try_from(bytes).unwrap_or(u32::MAX))
}

/// What a server has by method.
pub(super) fn method_compression(
    methods: &Named<ServerMethodTable>,
    conflicts: &mut Conflicts,
) -> MethodCompression {
    let mut all = MethodCompression::new();
    for (name, table) in &methods.0 {
        let Some(bytes) = table.compress_from.map(compressed_from) else { continue };
        let with_name = match name.contains('/') {
            true => all.clone().with_method(name, bytes),
            false => all.clone().with_service(name, bytes),
        };
        // What came before is right.
        match with_name.check() {
            Ok(()) => all = with_name,
            Err(error) => conflicts.0.push(Invalid {
                key: ["methods", name, "compress_from"].map(ToOwned::to_owned).to_vec(),
                value: error.value().to_owned(),
                rule: error.rule().to_owned(),
            }),
        }
    }
    all
}
