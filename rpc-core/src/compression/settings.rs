//! What one side does with compressed messages.

use crate::InvalidSetting;
use crate::settings::{check, define_settings, ensure};

/// The length that no message is compared with: none is compressed.
pub(super) const NEVER: u32 = u32::MAX;

/// From which length on messages are compressed that name none. One of 1 KiB fits a network packet
/// as it is, so that a shorter one would cross the network no sooner.
const DEFAULT_MIN_LEN: u32 = 1 << 10;

/// The reason for the shortest length.
const EMPTY: &str = "an empty message cannot become shorter";

define_settings! {
    /// Compressed messages over TCP; never over RDMA. Where farcall is built without its feature
    /// `compression`, it is an error to switch them on.
    ///
    /// Off by default. The two directions are apart: a side says whether it accepts compressed
    /// messages, and from which length on it compresses its own, for a peer that accepts them. With
    /// a peer that says nothing of it, an older version for example, messages go as they are. The
    /// encoding is deflate.
    ///
    /// It holds over TCP and over byte streams that a program makes. Connections over RDMA, Unix
    /// sockets and within a process carry messages as they are, whatever this says: there, copying
    /// the bytes takes less time than compressing them.
    ///
    /// It needs farcall's feature `compression`; without it everything but [`Compression::OFF`] is
    /// refused by [`check`](Self::check).
    ///
    /// # Examples
    ///
    /// ```
    /// use farcall::Compression;
    ///
    /// // Accepts, and compresses messages of 16 KiB and more.
    /// const COMPRESSION: Compression = Compression::ON.with_min_len(16 << 10);
    /// assert_eq!(COMPRESSION.min_len(), Some(16 << 10));
    /// assert_eq!(Compression::default(), Compression::OFF);
    /// ```
    Compression, CompressionOverlay, "compression", [const], derive(Copy, PartialEq, Eq) {
        /// Accepts compressed messages from the other side.
        accept, with_accept: bool as Plain = false, Live, .., "";
        /// Length from which on messages are compressed, where the other side accepts it; "off" is
        /// never.
        ///
        /// In bytes of the encoding: from 1 to 4,294,967,294, and 4,294,967,295 for never.
        min_len, with_min_len: u32 as SizeOrNever = NEVER, Live, 1.., EMPTY;
    }
}

impl Compression {
    /// Nothing is accepted, and nothing compressed.
    pub const OFF: Self = Self::DEFAULTS;

    /// Compressed messages are accepted, and none is compressed.
    pub const ACCEPT: Self = Self { accept: true, min_len: NEVER };

    /// Compressed messages are accepted, and those of 1 KiB and more are compressed.
    pub const ON: Self = Self { accept: true, min_len: DEFAULT_MIN_LEN };

    /// Whether compressed messages are accepted.
    #[must_use]
    pub const fn is_accepted(&self) -> bool {
        self.accept
    }

    /// From which length on messages are compressed, in bytes; `None` where none is.
    #[must_use]
    pub const fn min_len(&self) -> Option<u32> {
        if self.min_len == NEVER { None } else { Some(self.min_len) }
    }

    /// The length from which on messages are compressed, as sessions have it.
    pub(super) const fn from(self) -> u32 {
        self.min_len
    }

    /// Checks the length, and that compression is built in where it is on.
    ///
    /// # Errors
    ///
    /// When the length is 0, and in a program that was built without the feature `compression`.
    pub fn check(&self) -> Result<(), InvalidSetting> {
        if *self == Self::OFF {
            return Ok(());
        }
        self.check_each()?;
        ensure(
            cfg!(feature = "compression"),
            "compression",
            format_args!("on"),
            "off, since this program was built without farcall's feature `compression`",
        )
    }
}

/// Returns the length from which on messages are compressed, as [`Compression`] has it.
#[must_use]
pub fn compressed_from(bytes: Option<u64>) -> u32 {
    // None is as long as the greatest length: as with "off", nothing is compressed.
    bytes.map_or(NEVER, |bytes| u32::try_from(bytes).unwrap_or(NEVER))
}

/// Checks the length from which on messages are compressed.
///
/// # Errors
///
/// When it is 0.
pub fn check_min_len(name: &'static str, bytes: u32) -> Result<(), InvalidSetting> {
    check(name, &bytes, 1.., EMPTY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_off_needs_the_feature_and_a_length() {
        assert_eq!(Compression::default().check(), Ok(()));
        let is_built_in = cfg!(feature = "compression");
        for on in [Compression::ACCEPT, Compression::ON, Compression::OFF.with_min_len(7)] {
            assert_eq!(on.check().is_ok(), is_built_in, "{on:?}");
        }
        let error = Compression::ON.with_min_len(0).check().unwrap_err();
        assert_eq!(error.name(), "compression.min_len");
        assert_eq!(Compression::ACCEPT.min_len(), None);
        assert!(!Compression::ON.with_accept(false).is_accepted());
    }
}
