//! Compression of messages between hosts, off by default.
//!
//! Each side says in its Hello which encodings it accepts ([`crate::wire::hello::DEFLATE`] is the
//! one there is). A sender compresses what its own settings say, if the peer accepts it; a message
//! that does not become smaller goes as it is. Nothing is compressed over RDMA, over Unix sockets
//! or within a process, where bytes cost less than the time to compress them.
//!
//! Who compresses, and who inflates, is the task of the call: the caller, the handler, the reader
//! of a stream. Both work in pieces of 64 KiB, and yield between them. The receiver knows
//! the length that a message says it grows to before it inflates: it is checked against the limits
//! and counted in the memory budget, and a message that grows beyond it ends its call.

#[cfg(feature = "compression")]
mod codec;

use bytes::Bytes;

use crate::InvalidSetting;
use crate::payload::encode::Encode;
use crate::settings::{check, define_settings, ensure};
use crate::wire::hello::DEFLATE;
use crate::wire::{FrameHeader, ProtocolError};

#[cfg(feature = "compression")]
pub(crate) use codec::{deflate, inflate};
#[cfg(not(feature = "compression"))]
pub(crate) use not_built_in::{deflate, inflate};

/// Bytes that are compressed or inflated at a time. That takes about 1 ms to compress and 0.2 ms to
/// inflate, which a connection's driver can wait for. Longer messages yield.
#[cfg(feature = "compression")]
const PIECE_LEN: usize = 64 << 10;

/// Memory of an inflater besides the message, in bytes: deflate's window of 32 KiB, and its tables.
pub(crate) const INFLATER_HELD: u64 = 64 << 10;

/// Maximum ratio of a message's length to its compressed length: a match of 258 bytes takes at
/// least two bits.
#[cfg(feature = "compression")]
const RATIO_MAX: usize = 1032;

/// The length that no message is compared with: none is compressed.
const NEVER: u32 = u32::MAX;

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
    /// assert_eq!(COMPRESSION.min_len, 16 << 10);
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

    /// The length from which on messages are compressed, as sessions have it.
    const fn from(self) -> u32 {
        self.min_len
    }

    /// Checks the length, and that compression is built in where it is on.
    ///
    /// # Errors
    ///
    /// Returns `InvalidSetting` if the length is 0, or if compression is on in a program that was
    /// built without the feature `compression`.
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

/// The agreement of a connection's two ends. By default nothing is compressed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Negotiated {
    /// True if this side has announced that it accepts compressed messages.
    is_accepted: bool,
    /// From which length on messages are compressed whose calls say nothing of it; absent where the
    /// peer accepts none.
    from: Option<u32>,
}

impl Negotiated {
    /// Returns the agreement after this side has announced the encodings `said`, and the peer
    /// `heard`. Unknown bits of encodings mean nothing.
    pub(crate) fn new(own: Compression, said: u32, heard: u32) -> Self {
        let is_built_in = cfg!(feature = "compression");
        let is_sent = heard & DEFLATE != 0 && is_built_in;
        Self { is_accepted: said & DEFLATE != 0, from: is_sent.then_some(own.from()) }
    }

    /// Returns true if the peer may send compressed messages.
    #[must_use]
    pub fn is_accepted(self) -> bool {
        self.is_accepted
    }

    /// Returns true if this side may.
    #[must_use]
    pub fn is_sent(self) -> bool {
        self.from.is_some()
    }

    /// From which length on a call's messages are compressed, of which its stub or its service says
    /// `by_call`; absent where the peer accepts none.
    #[inline]
    pub(crate) fn from(self, by_call: Option<u32>) -> Option<u32> {
        self.from.map(|from| by_call.unwrap_or(from))
    }

    /// Checks that the peer was told that it may send the frame.
    ///
    /// # Errors
    ///
    /// Returns `ProtocolError` if it is compressed, and this side has not said that it accepts
    /// that.
    #[inline]
    pub(crate) fn check(self, header: &FrameHeader) -> Result<(), ProtocolError> {
        if !header.is_deflated || self.is_accepted {
            return Ok(());
        }
        Err(ProtocolError::NotNegotiated { kind: header.kind })
    }
}

/// Returns the number of bytes that a codec has moved, from its counts before and after. They fit a
/// slice, so they are always in range.
#[cfg(feature = "compression")]
fn moved(before: u64, after: u64) -> usize {
    usize::try_from(after - before).unwrap_or(usize::MAX)
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
/// Returns `InvalidSetting` if it is 0.
pub fn check_min_len(name: &'static str, bytes: u32) -> Result<(), InvalidSetting> {
    check(name, &bytes, 1.., EMPTY)
}

/// Returns true if a message is compressed, where messages of at least `from` bytes are.
#[inline]
pub(crate) fn is_due(from: Option<u32>, len: impl FnOnce() -> usize) -> bool {
    from.is_some_and(|from| from != NEVER && len() as u64 >= u64::from(from))
}

/// A message as it crosses the network: the length that it inflates to in eight bytes, then deflate
/// in the format of zlib (RFC 1950).
#[derive(Debug)]
pub(crate) struct Deflated(Bytes);

impl Deflated {
    /// Compresses a message; `None` where it does not become smaller. A message that is kept for
    /// further attempts is compressed once.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe: what was compressed so far is dropped.
    pub(crate) async fn of(message: &dyn Encode) -> Option<Self> {
        let Some(kept) = message.kept_deflated() else {
            return deflate(message).await.map(Self);
        };
        if kept.get().is_none() {
            let deflated = deflate(message).await.map(Box::new);
            // Another attempt may have been faster: the two are the same.
            let _ = kept.set(deflated);
        }
        let deflated = kept.get()?.as_deref()?;
        Some(Self(deflated.clone()))
    }
}

impl Encode for Deflated {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn tail(&self) -> Option<&Bytes> {
        Some(&self.0)
    }

    fn encode_head(&self, _: &mut [u8]) {}
}

/// Compression in a program that was built without it. Nothing is negotiated there, so that nothing
/// gets here.
#[cfg(not(feature = "compression"))]
mod not_built_in {
    use bytes::Bytes;

    use crate::payload::encode::Encode;

    /// Sends every message as it is.
    pub(crate) async fn deflate(_: &dyn Encode) -> Option<Bytes> {
        None
    }

    /// Takes no compressed message.
    pub(crate) async fn inflate(_: &[u8], _: usize) -> Result<Bytes, &'static str> {
        Err("this program was built without farcall's feature `compression`")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::FrameKind;

    #[test]
    fn what_is_not_off_needs_the_feature_and_a_length() {
        assert_eq!(Compression::default().check(), Ok(()));
        let is_built_in = cfg!(feature = "compression");
        for on in [Compression::ACCEPT, Compression::ON, Compression::OFF.with_min_len(7)] {
            assert_eq!(on.check().is_ok(), is_built_in, "{on:?}");
        }
        let error = Compression::ON.with_min_len(0).check().unwrap_err();
        assert_eq!(error.name(), "compression.min_len");
        assert_eq!(Compression::ACCEPT.min_len, NEVER);
        assert!(!Compression::ON.with_accept(false).accept);
    }

    #[test]
    fn each_direction_needs_the_word_of_its_receiver() {
        let is_built_in = cfg!(feature = "compression");
        for (said, heard) in [(0, 0), (0, 1), (1, 0), (1, 1), (0xfffe, 0xfffe), (3, 0xffff)] {
            let negotiated = Negotiated::new(Compression::ON, said, heard);
            assert_eq!(negotiated.is_accepted(), said & 1 != 0);
            assert_eq!(negotiated.is_sent(), heard & 1 != 0 && is_built_in);
            let header =
                FrameHeader { is_deflated: true, ..FrameHeader::bare(FrameKind::Request, 1) };
            assert_eq!(negotiated.check(&header).is_ok(), said & 1 != 0);
            assert!(negotiated.check(&FrameHeader::bare(FrameKind::Request, 1)).is_ok());
        }
    }

    #[test]
    fn a_call_may_say_its_own_length_or_none_at_all() {
        let sent = Negotiated { is_accepted: false, from: Some(1024) };
        for (by_call, len, due) in [
            (None, 1023, false),
            (None, 1024, true),
            (Some(10), 10, true),
            (Some(2000), 1999, false),
            (Some(NEVER), usize::MAX, false),
        ] {
            assert_eq!(is_due(sent.from(by_call), || len), due, "{by_call:?}, {len}");
        }
        assert!(!is_due(Negotiated::default().from(Some(1)), || unreachable!(
            "no length is needed"
        )));
    }
}
