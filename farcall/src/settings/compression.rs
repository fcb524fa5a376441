//! What a side does with compressed messages: its keys, and what builders take.

use rpc_core::InvalidSetting;

use super::checks::{any, some};
use super::table::table;
use super::value::SizeOrOff;
use crate::Compression;

table! {
    /// Compressed messages over TCP; never over RDMA. Where farcall is built without its feature
    /// `compression`, it is an error to switch them on.
    CompressionTable {
        /// Whether compressed messages are accepted from the other side.
        accept: bool = "false", Live, any;
        /// From which length on messages are compressed, where the other side accepts it; "off" is
        /// never.
        min_len: SizeOrOff = "\"off\"", Live, |it| it.0.map_or(Ok(()), some);
    } tables {}
}

/// The length from which on messages are compressed, as builders take it.
pub(super) fn compressed_from(SizeOrOff(bytes): SizeOrOff) -> u32 {
    // None is as long as the greatest length: as with "off", nothing is compressed.
    bytes.map_or(u32::MAX, |bytes| u32::try_from(bytes).unwrap_or(u32::MAX))
}

impl CompressionTable {
    pub(super) fn compression(&self) -> Result<Compression, InvalidSetting> {
        let compression = Compression::OFF;
        let compression = compression.with_accept(self.accept.unwrap_or(false));
        let compression = match self.min_len {
            Some(min_len) => compression.with_min_len(compressed_from(min_len)),
            None => compression,
        };
        compression.check().map(|()| compression)
    }
}
