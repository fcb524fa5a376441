//! The configuration of RDMA: each number with the reason for its default, the choice of the port
//! that serves a connection, and the reach of a key that a peer is given (design decision D15).
//!
//! What a device really has of windows is decided once, by `device::quirks`.

mod connect;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use rpc_core::InvalidSetting;
use rpc_core::settings::{
    COMPUTED, MAX_DURATION, MIN_TIMEOUT, NO_TIME, Whole, define_settings, ensure,
};

pub use crate::config::connect::{ConnectOptions, ConnectOptionsOverlay};

/// The shortest slot: messages that are no frames have to fit.
pub(crate) const MIN_SLOT_LEN: u32 = 448;

/// The fewest receive slots: what one connection takes.
pub(crate) const MIN_RECEIVE_SLOTS: u16 = 3;

/// The most queue pairs that carry READs alone.
pub(crate) const MAX_READ_QUEUE_PAIRS: u8 = 8;

/// The most credits that a connection can have: as many as a lane can have slots.
const MAX_CREDITS: u32 = u16::MAX as u32;

const SOURCE: &str = "at least rdma.slot_len, since longer frames are sent from this memory";
const SINK: &str = "at least rdma.slot_len, since longer frames are read into this memory";
const NO_READS: &str = "only READs fetch large frames";

define_settings! {
    /// RDMA devices, which all servers and targets share.
    ///
    /// One lane has one of each queue below. [`check`](Self::check) says whether connections can
    /// work with the configuration; `farcall::Rdma::new` checks it, and panics.
    RdmaConfig, RdmaOverlay, "rdma", [], derive(PartialEq) {
        /// The devices or ports that may be used, as "mlx5_0" or "mlx5_1:2"; all if none is named.
        devices, with_devices: Vec<String> as Plain = Vec::new(), Start, .., "";
        /// The port that serves a connection: the one with its local "address", or the "nearest".
        port_choice, with_port_choice: PortChoice as Plain = PortChoice::Address, Start, .., "";
        /// The index in a port's GID table. By default the first entry that serves.
        ///
        /// An entry serves that has the connection's local address. Of several it is the one of
        /// the network interface that leads to the peer. With [`PortChoice::Nearest`] it is the
        /// first that a peer can be given. The GID at the index has to serve all the same.
        /// `show_gids` and `/sys/class/infiniband/*/ports/*/gids` have the table.
        gid_index, with_gid_index: Option<u8> as Optional = None => "3", Start, .., "";
        /// The reach of the keys that peers get: "window", "region", or "auto".
        ///
        /// Peers read large frames by these keys. [`RkeyScope::Auto`] by default.
        rkey_scope, with_rkey_scope: RkeyScope as Plain = RkeyScope::Auto, Start, .., "";
        /// Tasks and completion queues for each device, or "auto": one for each nearby processor.
        ///
        /// 1 by default: lanes share the memory that the process may lock, see
        /// [`receive_slots`](Self::receive_slots). Each lane has a task of its own and the next
        /// completion vector, so more serve more processors; a new connection goes to the lane
        /// that has the fewest. When all are full the device gets more, up to 64 in all and as far
        /// as `RLIMIT_MEMLOCK` allows; they go again when they are not needed. Each core of a
        /// server, and each thread of `per_core`, has another one for its connections. At least 1.
        ///
        /// `None` is "auto": where `RLIMIT_MEMLOCK` is unlimited, as many as the process may use
        /// processors of the device's NUMA node, up to 8, and else 1.
        lanes, with_lanes: Option<u16> as CountOrAuto = Some(1), Start,
            1.., "every connection needs a lane";
        /// Receive slots that all connections of a lane share.
        ///
        /// 1,024 by default. With slots of 4,352 bytes that is 4.3 MiB. On hardware the queues
        /// count as locked memory, too: under a low `RLIMIT_MEMLOCK` a lane gets fewer slots, and
        /// fewer and smaller connections. The book's `rdma.md` has the sums. At least 3.
        receive_slots, with_receive_slots: u16 as Plain = 1024, Start,
            MIN_RECEIVE_SLOTS.., "a connection takes as many";
        /// The length of a slot; a longer frame is read by RDMA READ.
        ///
        /// 4,352 bytes by default, both ways: a page of payload and 256 bytes for headers and
        /// metadata. At least 448.
        slot_len, with_slot_len: u32 as Size = 4352, Start,
            MIN_SLOT_LEN.., ", which the offer of a large frame takes";
        /// Send slots that all connections of a lane share.
        ///
        /// 256 by default, 1.1 MiB. At least 1.
        send_slots, with_send_slots: u32 as Plain = 256, CodeOnly,
            1.., "every message is sent from a slot";
        /// Messages that one connection may have on their way here.
        ///
        /// 32 by default. A connection begins with one, gets more as it needs them, and fewer again
        /// when others do: with the default of 1,024 slots, up to 18 busy ones have 32 each, and 64
        /// have 9. Each takes two more for control messages, so that 256 idle ones leave 256 slots.
        /// From 1 to 65,535.
        max_credits, with_max_credits: u32 as Plain = 32, CodeOnly,
            1..=MAX_CREDITS, ": nothing is sent without a credit, and each is a slot";
        /// Requests in flight on one queue pair.
        ///
        /// 96 by default, three windows. At least 1.
        send_depth, with_send_depth: u32 as Plain = 96, CodeOnly,
            1.., "every message is a request";
        /// Connections of one lane.
        ///
        /// 256 by default. It sizes the completion queue, which must never overrun: slots +
        /// connections x (send depth + 1 + queue pairs for READs x (READs of each + 1)). By default
        /// that is 30,464, of 32,767 that Soft-RoCE has. At least 1.
        max_connections, with_max_connections: u32 as Plain = 256, Start,
            1.., "nothing would be connected";
        /// Registered memory for large frames that are sent.
        ///
        /// In bytes; 512 MiB by default. Half of it at most is lent to applications that fill it
        /// themselves. Peers share it: each may have as much as is still free, so that one alone
        /// has half (and one frame of any length that fits). A peer is an address, or the /64 of an
        /// IPv6 address, whatever its connections; all peers behind one address have one share. The
        /// same holds for `max_sink_bytes` and `max_read_bytes`. At least `slot_len`.
        max_source_bytes, with_max_source_bytes: u64 as Size = 512 << 20, Start,
            1.., Whole(SOURCE);
        /// Registered memory for large frames that are received.
        ///
        /// In bytes; 512 MiB by default. Peers share it as they share `max_source_bytes`. A frame
        /// that the application keeps counts as its sender's. At least `slot_len`.
        max_sink_bytes, with_max_sink_bytes: u64 as Size = 512 << 20, Start,
            1.., Whole(SINK);
        /// The longest READ.
        ///
        /// 512 KiB by default, a sixteenth of `max_read_bytes`. A peer alone has eight outstanding
        /// then, and four beside one that answers nothing. At least 1.
        max_read_len, with_max_read_len: u32 as Size = 512 << 10, CodeOnly, 1.., NO_READS;
        /// READs outstanding on one connection.
        ///
        /// At most 16 by default. The peer may allow fewer. At least 1.
        max_reads, with_max_reads: u8 as Plain = 16, CodeOnly, 1.., NO_READS;
        /// Queue pairs of a connection that carry READs alone.
        ///
        /// 2 by default, beside the one for messages; at most 8, and the peer may have fewer. Small
        /// messages do not wait behind READs then, and devices that serve a queue pair in one place
        /// serve several READs at once. Each takes memory of the device, and the `max_reads` are
        /// spread over them. With 0, and where [windows](RkeyScope::Window) are used, READs go with
        /// the messages.
        read_queue_pairs, with_read_queue_pairs: u8 as Plain = 2, CodeOnly,
            ..=MAX_READ_QUEUE_PAIRS, ", which is what peers accept";
        /// Use devices whose READs may complete short: Soft-RoCE devices on
        /// kernels other than 6.1.
        ///
        /// Off by default; it also covers devices that were never checked for that
        /// (`docs/book/src/rdma.md` has the evidence). With it, a short READ gives the application
        /// zeros where bytes are missing, and never what another connection received; nothing tells
        /// that bytes are missing. Without it, such a device is declined with the reason: `auto://`
        /// stays on TCP, and `rdma://` fails.
        allow_untrusted_reads, with_allow_untrusted_reads: bool as Plain = false, Start, .., "";
        /// Lets PCI Express reorder what READs write to memory.
        ///
        /// Off by default. On AMD EPYC it makes large frames faster (UCX #8062); with Intel's
        /// Emerald Rapids they have been slower with it (UCX #11532). A READ's completion still
        /// comes after its bytes. Devices and kernels that do not know it go on as before.
        relaxed_ordering, with_relaxed_ordering: bool as Plain = false, Start, .., "";
        /// Bytes of READs outstanding on all connections of a device.
        ///
        /// 8 MiB by default, or one READ if that is longer. Peers share it as they share
        /// `max_source_bytes`, so that one alone has 4 MiB outstanding. That is several times what
        /// a fast link has on its way: it carries 1 MB in 20 us at 400 Gb/s. More READs only wait:
        /// small messages of other connections wait behind them, and a device takes an answer for
        /// lost that takes longer than [`ConnectOptions`] say. Connections of one peer take turns,
        /// a READ at a time. The cores of a server divide it, so that one that is blocked holds
        /// its own part alone; a part is one READ at least. At least 1.
        max_read_bytes, with_max_read_bytes: u32 as Size = 8 << 20, Start, 1.., NO_READS;
        /// The longest wait of a large frame for memory.
        ///
        /// 30 s by default. Nothing is registered before it is needed, and what is not in use makes
        /// way; a frame waits when others use the budget, or all that the process may pin
        /// (`RLIMIT_MEMLOCK`). After that its call ends with `RESOURCE_EXHAUSTED`, and before that
        /// at its deadline. Zero does not wait; at most 365 days.
        memory_timeout, with_memory_timeout: Duration as Plain = Duration::from_secs(30), CodeOnly,
            ..=MAX_DURATION, COMPUTED;
        /// The time that the program may hold a large frame before a warning in the log.
        ///
        /// 60 s by default, and one warning a frame. Its memory is missing from `max_sink_bytes`
        /// until it is dropped. From 1 ms to 365 days.
        lease_warn_after, with_lease_warn_after: Duration as Plain = Duration::from_secs(60),
            CodeOnly, MIN_TIMEOUT..=MAX_DURATION, NO_TIME;
        /// The longest time of a READ.
        ///
        /// It begins when the READ is the next to be answered on its queue pair. 10 s by default,
        /// five times what a queue pair takes to give a link up on devices that stretch their
        /// timeouts, and 50 KiB/s for READs of 512 KiB. After that the connection ends, and what it
        /// held is free. A process that has stood still looks again after 5 s. From 1 ms to 365
        /// days.
        read_timeout, with_read_timeout: Duration as Plain = Duration::from_secs(10), Start,
            MIN_TIMEOUT..=MAX_DURATION, NO_TIME;
        /// The longest time that a peer may keep an offered frame, or grant no credit.
        ///
        /// 60 s by default: a peer that takes and never gives back holds memory for a minute and
        /// then no connection. The bound on credits is 5 s at least, and holds while something
        /// waits for one. A peer with these rules refuses a frame that it has had no memory for in
        /// half that time. From 1 ms to 365 days.
        release_timeout, with_release_timeout: Duration as Plain = Duration::from_secs(60), Start,
            MIN_TIMEOUT..=MAX_DURATION, NO_TIME;
        /// The longest time that a peer may keep a large frame whose call was cancelled.
        ///
        /// 5 s by default. The peer has to stop between two READs of at most `max_read_len` bytes,
        /// which takes milliseconds, and its device gives up on a dead link after about half a
        /// second; longer means that it does not run. Then its key is revoked if a window guards
        /// the memory; else the connection ends, because that alone takes the memory back. From
        /// 1 ms to 365 days.
        cancel_timeout, with_cancel_timeout: Duration as Plain = Duration::from_secs(5), CodeOnly,
            MIN_TIMEOUT..=MAX_DURATION, NO_TIME;
        /// The longest time that a closing connection may take to finish its work.
        ///
        /// 5 s by default. Zero closes at once; at most 365 days.
        close_timeout, with_close_timeout: Duration as Plain = Duration::from_secs(5), CodeOnly,
            ..=MAX_DURATION, COMPUTED;
        /// The time to poll after the last completion before sleeping.
        ///
        /// 20 us by default, about what an interrupt and a wake-up cost. Zero never polls longer
        /// than there is work.
        spin, with_spin: Duration as Plain = Duration::from_micros(20), Start, .., "";
    } groups {
        /// Timeouts and retries of queue pairs.
        connect, with_connect: ConnectOptions, ConnectOptionsOverlay, Start;
    }
}

impl RdmaConfig {
    /// Checks that connections can work with it.
    ///
    /// What a device cannot have in such numbers is refused, or cut, when the device is opened.
    ///
    /// # Errors
    ///
    /// Returns the first setting that is out of its range.
    pub fn check(&self) -> Result<(), InvalidSetting> {
        self.faults().into_iter().next().map_or(Ok(()), Err)
    }

    /// Returns the values that cannot be: the first that is out of its range, and those that do
    /// not fit to another one.
    #[doc(hidden)]
    #[must_use]
    pub fn faults(&self) -> Vec<InvalidSetting> {
        let (slot_len, source, sink) =
            (u64::from(self.slot_len), self.max_source_bytes, self.max_sink_bytes);
        let checked = [
            self.check_each(),
            ensure(source >= slot_len, "rdma.max_source_bytes", source, SOURCE),
            ensure(sink >= slot_len, "rdma.max_sink_bytes", sink, SINK),
        ];
        checked.into_iter().filter_map(Result::err).collect()
    }
}

/// The choice among the ports that may serve a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum PortChoice {
    /// The one that has the connection's local address; of several, the nearest. A peer is taken
    /// only if its port has the address that the connection comes from, so that no peer can have
    /// packets sent to another host: both ends need this choice, and no address translation
    /// between them.
    #[default]
    Address,
    /// The nearest that is active, with an address of its own if it does not have the
    /// connection's. The peer's port must be reachable from any port that may be used; if it is
    /// not, that is found out by the proof of the path, which takes its time.
    Nearest,
}

rpc_core::setting_words! { PortChoice { "address" => Self::Address, "nearest" => Self::Nearest } }

/// The memory that a key of an offer opens to the peer, and the time for which it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum RkeyScope {
    /// [`Window`](Self::Window) where the device's windows have passed a check and nothing speaks
    /// against them, else [`Region`](Self::Region), and the log says why.
    #[default]
    Auto,
    /// A key opens one frame to one peer, until the peer has read it: a memory window is bound for
    /// each offer and its key is taken away with the release. Without windows there is no RDMA.
    Window,
    /// A key opens a registered buffer to every peer, and stays the same as long as that is
    /// registered: a peer that remembers an old key can read what the buffer holds next. For peers
    /// that are trusted, and for devices without windows.
    Region,
}

impl fmt::Display for RkeyScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Window => "window",
            Self::Region => "region",
        })
    }
}

impl FromStr for RkeyScope {
    type Err = InvalidSetting;

    fn from_str(word: &str) -> Result<Self, InvalidSetting> {
        let all = [Self::Auto, Self::Window, Self::Region];
        let found = all.into_iter().find(|scope| scope.to_string() == word);
        found.ok_or_else(|| InvalidSetting::new("rkey_scope", word, "auto, window or region"))
    }
}

rpc_core::setting_words! {
    RkeyScope { "auto" => Self::Auto, "window" => Self::Window, "region" => Self::Region }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_out_of_their_ranges_are_named_with_the_range() {
        let (new, zero) = (RdmaConfig::default, Duration::ZERO);
        let long = Duration::from_secs(366 * 24 * 3600);
        let connect = |change: fn(&mut ConnectOptions)| {
            let mut config = new();
            change(&mut config.connect);
            config
        };
        let table = [
            (
                new().with_lanes(Some(0)),
                "lanes is 0: at least 1, since every connection needs a lane",
            ),
            (new().with_receive_slots(2), "receive_slots is 2: at least 3, since a connection"),
            (new().with_slot_len(447), "slot_len is 447: at least 448, which the offer"),
            (new().with_send_slots(0), "send_slots is 0: at least 1, since every message"),
            (new().with_max_credits(0), "max_credits is 0: from 1 to 65535: nothing is sent"),
            (new().with_max_credits(65_536), "max_credits is 65536: from 1 to 65535"),
            (new().with_send_depth(0), "send_depth is 0: at least 1, since every message"),
            (new().with_max_connections(0), "max_connections is 0: at least 1, since nothing"),
            (new().with_max_source_bytes(4351), "max_source_bytes is 4351: at least rdma.slot_len"),
            (new().with_max_sink_bytes(4351), "max_sink_bytes is 4351: at least rdma.slot_len"),
            (new().with_max_read_len(0), "max_read_len is 0: at least 1, since only READs"),
            (new().with_max_reads(0), "max_reads is 0: at least 1, since only READs fetch large"),
            (new().with_max_read_bytes(0), "max_read_bytes is 0: at least 1, since only READs"),
            (new().with_read_queue_pairs(9), "read_queue_pairs is 9: at most 8, which is what"),
            (new().with_memory_timeout(long), "memory_timeout is 31622400s: at most 365 days"),
            (new().with_lease_warn_after(zero), "lease_warn_after is 0ns: from 1 ms to 365 days"),
            (new().with_read_timeout(zero), "read_timeout is 0ns: from 1 ms to 365 days"),
            (new().with_release_timeout(zero), "release_timeout is 0ns: from 1 ms to 365 days"),
            (new().with_cancel_timeout(zero), "cancel_timeout is 0ns: from 1 ms to 365 days"),
            (new().with_close_timeout(long), "close_timeout is 31622400s: at most 365 days"),
            (connect(|options| options.timeout = 0), "connect.timeout is 0: from 1 to 31"),
            (connect(|options| options.retry_count = 7), "connect.retry_count is 7: from 1 to 6"),
            (connect(|options| options.rnr_retry = 8), "connect.rnr_retry is 8: from 0 to 7"),
            (connect(|options| options.rnr_timer = 32), "connect.rnr_timer is 32: from 1 to 31"),
        ];
        for (config, message) in table {
            let error = config.check().expect_err("a setting is out of its range").to_string();
            assert!(error.starts_with(&format!("rdma.{message}")), "{error}");
        }
    }

    #[test]
    fn the_ends_of_each_range_are_in_it() {
        let (zero, one) = (Duration::ZERO, Duration::from_millis(1));
        let least = RdmaConfig::default()
            .with_lanes(Some(1))
            .with_receive_slots(3)
            .with_slot_len(448)
            .with_send_slots(1)
            .with_max_credits(1)
            .with_send_depth(1)
            .with_max_connections(1)
            .with_max_source_bytes(448)
            .with_max_sink_bytes(448)
            .with_memory_timeout(zero)
            .with_lease_warn_after(one)
            .with_max_read_len(1)
            .with_max_reads(1)
            .with_read_queue_pairs(0)
            .with_max_read_bytes(1)
            .with_read_timeout(one)
            .with_spin(zero)
            .with_release_timeout(one)
            .with_cancel_timeout(one)
            .with_close_timeout(zero);
        let most = RdmaConfig::default()
            .with_lanes(Some(u16::MAX))
            .with_receive_slots(u16::MAX)
            .with_max_credits(65_535)
            .with_max_connections(u32::MAX)
            .with_max_source_bytes(u64::MAX)
            .with_read_queue_pairs(8)
            .with_spin(Duration::MAX);
        for config in [RdmaConfig::default(), least, most] {
            assert_eq!(config.check(), Ok(()));
        }
    }

    #[test]
    fn every_scope_is_read_as_it_is_written() {
        for scope in [RkeyScope::Auto, RkeyScope::Window, RkeyScope::Region] {
            assert_eq!(scope.to_string().parse(), Ok(scope));
        }
        assert!("slab".parse::<RkeyScope>().unwrap_err().to_string().contains("slab"));
    }
}
