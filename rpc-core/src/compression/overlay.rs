//! The keys of [`Compression`] in a file.

use super::Compression;
use crate::settings::{InvalidSetting, SERVED, Settings, define_overlay};

define_overlay! {
    /// Compressed messages over TCP; never over RDMA. Where farcall is built without its feature
    /// `compression`, it is an error to switch them on.
    pub CompressionOverlay {
        /// Whether compressed messages are accepted from the other side.
        accept: bool as Plain = "false", Live, .., "";
        /// From which length on messages are compressed, where the other side accepts it; "off" is
        /// never.
        min_len: Option<u64> as SizeOrOff = "\"off\"", Live, 1.., SERVED;
    } tables {}
}

/// Returns the length from which on messages are compressed, as [`Compression`] takes it.
#[must_use]
pub fn compressed_from(bytes: Option<u64>) -> u32 {
    // None is as long as the greatest length: as with "off", nothing is compressed.
    bytes.map_or(u32::MAX, |bytes| u32::try_from(bytes).unwrap_or(u32::MAX))
}

impl From<Compression> for CompressionOverlay {
    fn from(compression: Compression) -> Self {
        let min_len = Some(compression.min_len().map(u64::from));
        Self { accept: Some(compression.is_accepted()), min_len }
    }
}

impl Settings for Compression {
    type Overlay = CompressionOverlay;

    const DEFAULTS: Self = Self::OFF;

    fn resolve(overlay: &CompressionOverlay) -> Self {
        let compression = Self::OFF.with_accept(overlay.accept.unwrap_or(false));
        match overlay.min_len {
            Some(min_len) => compression.with_min_len(compressed_from(min_len)),
            None => compression,
        }
    }

    fn check_all(&self) -> Result<(), InvalidSetting> {
        self.check()
    }
}
