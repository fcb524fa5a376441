//! The limits of one side of a connection, each with the reason for its default.
//!
//! Both sides tell theirs in the Hello, so that a sender refuses what the receiver would.
//!
//! What they add up to is stated here too, and the fuzz targets of the sessions hold it: a peer
//! that sends anything it likes never makes a session hold more.

use crate::calls::receiving::{FRAME_HELD, FRAME_LEN_MIN};
use crate::calls::window::{MESSAGE_LEN_MAX, Window};
use crate::settings::{InvalidSetting, Whole, define_settings};
use crate::wire::hello::Hello;
use crate::wire::messages::BATCH_LEN_MAX;
use crate::wire::{MESSAGE_LEN_LEN, metadata};

/// Memory of a session for one call besides its messages and metadata, in bytes: entries of tables,
/// which have twice the room that they need after they have grown; the call's streams; the
/// runtime's part of its handler's task, or of its caller's end; a status that waits to be sent.
/// The fuzz targets measure 2 KiB to 4 KiB in a debug build, small handlers included.
const CALL_HELD: u64 = 6 << 10;

/// Memory of a session for a stream's message besides its bytes: its frame's header and its length,
/// the counter of shared memory, and its item. The item counts twice for a queue that has grown,
/// and twice with a key for a node of the tree where it waits for an earlier one.
pub(crate) const MESSAGE_HELD: u64 = 384;

/// The window of a server's stream before its client has sent anything. A stream binds so much of
/// the memory budget of the server although it may be idle for ever: 2 GiB are enough for 50,000.
/// Four frames of messages fit over RDMA. It widens fourfold each time that half of it was read.
const FIRST_REQUEST_WINDOW: Window = Window { messages: 64, bytes: 16 << 10 };

/// The least window of a client's stream before it has read anything, unless the widest is less.
/// All calls of a client may have so much unread: 352 MiB of 1,024 streams.
const FIRST_RESPONSE_WINDOW: Window = Window { messages: 256, bytes: 256 << 10 };

/// The part of the widest window that a client's stream begins with, where that is more. A client
/// that allows much knows that its network needs it.
const FIRST_RESPONSE_PART: Window = Window { messages: 32, bytes: 8 };

/// Memory of a connection without calls, in bytes: session, tables, the tasks that watch it. The
/// fuzz targets measure 6 KiB.
const CONNECTION_HELD: u64 = 16 << 10;

/// The least limit on metadata, in bytes. The text of a status counts as metadata of its response,
/// and those of the runtime have up to 200 bytes: with less, errors would arrive without a reason.
const MIN_METADATA_LEN: u32 = 256;

/// The widest window in messages. All of them may wait to be read, with [`MESSAGE_HELD`] for each.
const MAX_STREAM_MESSAGES: u32 = 1 << 16;

/// The widest window in bytes: counts modulo 2^32 are ambiguous from half of that range on.
const MAX_STREAM_BYTES: u32 = 1 << 30;

define_settings! {
    /// Limits of one side of a connection on the other.
    ///
    /// [`check`](Self::check) says whether calls can be made under it. The setters that take
    /// `Limits` check it, and panic.
    ///
    /// # Examples
    ///
    /// ```
    /// use farcall::Limits;
    ///
    /// const LIMITS: Limits = Limits::DEFAULTS.with_max_message_len(64 << 20).with_max_calls(100);
    /// assert_eq!(LIMITS.check(), Ok(()));
    /// let error = LIMITS.with_max_calls(0).check().unwrap_err();
    /// assert!(error.to_string().starts_with("limits.max_calls is 0: at least 1"));
    /// ```
    Limits, LimitsOverlay, "limits", [const], derive(Copy, PartialEq, Eq) {
        /// The longest message, in bytes of its encoding.
        ///
        /// 4 MiB by default, as gRPC and tonic have it: a service moved to farcall accepts neither
        /// less nor, unasked, more than before. It may be beyond 4 GiB where the other limits and
        /// the memory are. One message of a stream has 1 GiB at most, whatever this says. At least
        /// 1.
        max_message_len, with_max_message_len: u64 as Size = 4 << 20, Live,
            1.., "only empty messages would be accepted";
        /// The metadata of one request or response, trailers included.
        ///
        /// 16 KiB by default: HTTP/2's usual limit for a header list, which tonic's users know. At
        /// least 256 bytes, since the text of a status counts too.
        max_metadata_len, with_max_metadata_len: u32 as Size = 16 << 10, Live,
            MIN_METADATA_LEN.., "the message of a status counts as metadata";
        /// Calls in flight on one connection.
        ///
        /// 1,024 by default: ten times the common HTTP/2 default of 100, and with small messages
        /// still under 1 MiB of call state for a connection. At least 1.
        max_calls, with_max_calls: u32 as Plain = 1024, Live,
            1.., "no call could be made";
        /// Bytes of large messages that are received at a time. Senders wait with more.
        ///
        /// A longer message comes alone. 256 MiB by default: almost four messages of the largest
        /// size that the examples use (64 MiB). At least 1.
        max_receiving_bytes, with_max_receiving_bytes: u64 as Size = 256 << 20, Live,
            1.., "; a longer message is received alone";
        /// Messages of one stream on their way or waiting to be read.
        ///
        /// 8,192 by default: as many of 256 bytes as `max_stream_bytes` has. A stream of requests
        /// begins with 64, a stream of responses with 256, or 1/32 of this if that is more. Both
        /// widen with `max_stream_bytes`. From 1 to 65,536.
        max_stream_messages, with_max_stream_messages: u32 as Plain = 8192, CodeOnly,
            1..=MAX_STREAM_MESSAGES,
            "a window of 0 never opens, and a full one waits in memory";
        /// Bytes of one stream on their way or waiting to be read.
        ///
        /// One message more than that may pass, and counts against `max_receiving_bytes` when it is
        /// large. 2 MiB by default: with less, a sender and a reader on two cores wait for each
        /// other, and with 4 MiB streams are slower again. A stream of requests begins with 16 KiB.
        /// A stream of responses begins with 256 KiB, or 1/8 of this if that is more; `grpc://` has
        /// no more than that. Each time that half was read, a window has 4 times as much: on a
        /// server while less than half of `ServerBuilder::max_memory` is in use, on a client while
        /// the windows of a connection have less than half of `max_receiving_bytes` beyond their
        /// first. From 1 to 1 GiB.
        max_stream_bytes, with_max_stream_bytes: u32 as Size = 2 << 20, Live,
            1..=MAX_STREAM_BYTES,
            Whole("from 1 to 1073741824 (1 GiB), since a window of 0 never opens, and a larger \
                   one cannot be counted");
    }
}

impl Limits {
    /// Checks that calls can be made under these limits.
    ///
    /// # Errors
    ///
    /// Returns the first limit that is out of its range.
    pub fn check(&self) -> Result<(), InvalidSetting> {
        self.check_each()
    }

    /// The most bytes of heap that the peer of one connection can make this side's session hold
    /// with one call.
    ///
    /// The sum of
    ///
    /// - 6 KiB for the call itself;
    /// - the metadata of its beginning and of its end, each as it came and decoded: 16 KiB of the
    ///   shortest entries are 650 KiB of a `MetadataMap`;
    /// - its message, as it came; or, of a stream, what waits to be read: the window, one message
    ///   that crosses its line, one frame of which the first messages have been read, and 384 bytes
    ///   a message.
    ///
    /// Left out is what a compressed message inflates to, where this side accepts any
    /// ([`Compression`](crate::Compression)): `max_message_len` a call besides. Left out is also
    /// what a message is decoded to and what a handler or a caller makes, keeps or answers with:
    /// their types decide that. A transport may keep more memory than a frame is
    /// long: the next power of two, or over TCP up to four times as much of frames of 16 KiB to
    /// 64 KiB.
    #[must_use]
    pub fn max_call_bytes(&self) -> u64 {
        let metadata = metadata::held_bytes_max(self.max_metadata_len).saturating_mul(2);
        let message = self.max_message_len.max(self.stream_held_max());
        CALL_HELD.saturating_add(metadata).saturating_add(message)
    }

    /// The most bytes of heap that the peer of one connection can make this side's session hold.
    ///
    /// That is [`Limits::max_call_bytes`] for each of `max_calls` calls, `max_receiving_bytes` (or
    /// one longer message) and its bookkeeping, and 16 KiB for the connection. A client has as many
    /// calls as its callers make, within the server's `max_calls`. What call and transport leave
    /// out is told there; a server's connections share
    /// `ServerBuilder::max_memory` besides, which is less.
    ///
    /// With the defaults 10.6 GiB: 1,024 streams whose windows are full and end with a message of
    /// 4 MiB.
    ///
    /// ```
    /// use farcall::Limits;
    ///
    /// let limits = Limits::default().with_max_calls(100).with_max_message_len(64 << 10);
    /// let limits = limits.with_max_stream_bytes(256 << 10).with_max_stream_messages(256);
    /// assert!(limits.max_connection_bytes() < 512 << 20);
    /// ```
    #[must_use]
    pub fn max_connection_bytes(&self) -> u64 {
        let calls = self.max_call_bytes().saturating_mul(self.max_calls.into());
        let longest = self.max_message_len.saturating_add(self.max_metadata_len.into());
        let receiving = self.max_receiving_bytes.max(longest);
        let frames = self.max_receiving_bytes / FRAME_LEN_MIN + 1;
        calls
            .saturating_add(receiving)
            .saturating_add(frames.saturating_mul(FRAME_HELD))
            .saturating_add(CONNECTION_HELD)
    }

    /// Returns the maximum memory of a stream of messages.
    fn stream_held_max(&self) -> u64 {
        let Window { messages, bytes } = self.window();
        let crossing = self.max_message_len.min(MESSAGE_LEN_MAX);
        let lens = u64::from(messages) * MESSAGE_LEN_LEN as u64;
        let of_window = u64::from(bytes).saturating_add(crossing);
        // Several messages share a frame up to a bound, and their window says how long they are.
        let partly_read = of_window.saturating_add(lens).min(BATCH_LEN_MAX as u64);
        of_window.saturating_add(partly_read).saturating_add(u64::from(messages) * MESSAGE_HELD)
    }

    /// The window that a stream of requests begins with.
    pub(crate) fn first_request_window(&self) -> Window {
        self.window().min(FIRST_REQUEST_WINDOW)
    }

    /// The window that a stream of responses begins with.
    pub(crate) fn first_response_window(&self) -> Window {
        let Window { messages, bytes } = self.window();
        let least = self.window().min(FIRST_RESPONSE_WINDOW);
        Window {
            messages: (messages / FIRST_RESPONSE_PART.messages).max(least.messages),
            bytes: (bytes / FIRST_RESPONSE_PART.bytes).max(least.bytes),
        }
    }

    /// The bytes of the window that a stream of responses begins with, for a protocol whose windows
    /// do not widen.
    #[doc(hidden)]
    #[must_use]
    pub fn first_response_bytes(&self) -> u32 {
        self.first_response_window().bytes
    }

    /// The limits as a server announces them: with the window that a stream begins with.
    pub(crate) fn announced_by_server(&self) -> Self {
        self.with_window(self.first_request_window())
    }

    /// The limits as a client announces them, likewise.
    pub(crate) fn announced_by_client(&self) -> Self {
        self.with_window(self.first_response_window())
    }

    fn with_window(&self, Window { messages, bytes }: Window) -> Self {
        Self { max_stream_messages: messages, max_stream_bytes: bytes, ..*self }
    }

    /// The window of each stream to this side.
    pub(crate) fn window(&self) -> Window {
        // `check` refuses other values of this side; those of a peer come as they are.
        Window {
            messages: self.max_stream_messages.clamp(1, MAX_STREAM_MESSAGES),
            bytes: self.max_stream_bytes.clamp(1, MAX_STREAM_BYTES),
        }
    }
}

impl Hello {
    /// A Hello that says `limits` and nothing else.
    #[must_use]
    pub fn new(limits: &Limits) -> Self {
        Self {
            message_len_max: limits.max_message_len,
            metadata_len_max: limits.max_metadata_len,
            calls_max: limits.max_calls,
            receiving_bytes_max: limits.max_receiving_bytes,
            stream_messages_max: limits.max_stream_messages,
            stream_bytes_max: limits.max_stream_bytes,
            ..Self::default()
        }
    }

    /// The limits that the sender of this Hello keeps.
    #[must_use]
    pub fn limits(&self) -> Limits {
        Limits {
            max_message_len: self.message_len_max,
            max_metadata_len: self.metadata_len_max,
            max_calls: self.calls_max,
            max_receiving_bytes: self.receiving_bytes_max,
            max_stream_messages: self.stream_messages_max,
            max_stream_bytes: self.stream_bytes_max,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_out_of_its_range_is_named_with_the_range() {
        let new = Limits::default;
        let table = [
            (new().with_max_message_len(0), "max_message_len is 0: at least 1, since only empty"),
            (new().with_max_metadata_len(255), "max_metadata_len is 255: at least 256, since the"),
            (new().with_max_calls(0), "max_calls is 0: at least 1, since no call could be made"),
            (new().with_max_receiving_bytes(0), "max_receiving_bytes is 0: at least 1; a longer"),
            (new().with_max_stream_messages(0), "max_stream_messages is 0: from 1 to 65536, since"),
            (new().with_max_stream_messages(65_537), "max_stream_messages is 65537: from 1 to 655"),
            (new().with_max_stream_bytes(0), "max_stream_bytes is 0: from 1 to 1073741824 (1 GiB)"),
            (new().with_max_stream_bytes(1_073_741_825), "max_stream_bytes is 1073741825: from 1"),
        ];
        for (limits, message) in table {
            let error = limits.check().expect_err("the limit is out of its range").to_string();
            assert!(error.starts_with(&format!("limits.{message}")), "{error}");
        }
    }

    #[test]
    fn the_ends_of_each_range_are_in_it() {
        let least = Limits {
            max_message_len: 1,
            max_metadata_len: 256,
            max_calls: 1,
            max_receiving_bytes: 1,
            max_stream_messages: 1,
            max_stream_bytes: 1,
        };
        let most = Limits {
            max_message_len: u64::MAX,
            max_metadata_len: u32::MAX,
            max_calls: u32::MAX,
            max_receiving_bytes: u64::MAX,
            max_stream_messages: 65_536,
            max_stream_bytes: 1 << 30,
        };
        for limits in [least, Limits::default(), most] {
            assert_eq!(limits.check(), Ok(()));
        }
    }

    /// Peers of earlier versions take the windows of a Hello for those that all streams have.
    #[test]
    fn each_side_announces_the_window_it_begins_with() {
        let window = |limits: Limits| (limits.max_stream_messages, limits.max_stream_bytes);
        let limits = Limits::default();
        assert_eq!(window(limits.announced_by_server()), (64, 16 << 10));
        assert_eq!(window(limits.announced_by_client()), (256, 256 << 10));
        let narrow = limits.with_max_stream_messages(9).with_max_stream_bytes(1000);
        assert_eq!(window(narrow.announced_by_server()), (9, 1000));
        assert_eq!(window(narrow.announced_by_client()), (9, 1000));
        let wide = limits.with_max_stream_messages(65_536).with_max_stream_bytes(1 << 30);
        assert_eq!(window(wide.announced_by_client()), (2048, 128 << 20));
    }

    #[test]
    fn the_defaults_add_up_to_what_the_docs_say() {
        let tenths_of_gib = (Limits::default().max_connection_bytes() * 10) >> 30;
        assert_eq!(tenths_of_gib, 106);
    }

    #[test]
    fn no_limit_overflows_the_sums() {
        let limits = Limits {
            max_message_len: u64::MAX,
            max_metadata_len: u32::MAX,
            max_calls: u32::MAX,
            max_receiving_bytes: u64::MAX,
            max_stream_messages: u32::MAX,
            max_stream_bytes: u32::MAX,
        };
        assert_eq!(limits.max_connection_bytes(), u64::MAX);
        let none = Limits {
            max_message_len: 0,
            max_metadata_len: 0,
            max_calls: 0,
            max_receiving_bytes: 0,
            max_stream_messages: 0,
            max_stream_bytes: 0,
        };
        assert!((CONNECTION_HELD..2 * CONNECTION_HELD).contains(&none.max_connection_bytes()));
    }
}
