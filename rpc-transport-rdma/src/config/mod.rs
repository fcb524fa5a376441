//! How RDMA is used, each number with the reason for its default.

mod rkey_scope;
mod setters;
mod values;

use std::time::Duration;

use rpc_core::InvalidSetting;
use rpc_core::settings::{check_period, check_timeout, ensure};

pub use rkey_scope::{RkeyScope, UnknownRkeyScope};
pub use values::{ConnectOptions, PortChoice};

/// The shortest slot: messages that are no frames have to fit.
pub(crate) const MIN_SLOT_LEN: u32 = 448;

/// The fewest receive slots: what one connection takes.
pub(crate) const MIN_RECEIVE_SLOTS: u16 = 3;

/// The most queue pairs that carry READs alone.
pub(crate) const MAX_READ_QUEUE_PAIRS: u8 = 8;

/// The most credits that a connection can have: as many as a lane can have slots.
const MAX_CREDITS: u32 = u16::MAX as u32;

/// The configuration of the RDMA transport. One lane has one of each queue below.
///
/// [`check`](Self::check) says whether connections can work with it; `farcall::Rdma::new`
/// checks it, and panics.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RdmaConfig {
    /// The devices or ports that may be used, for example `mlx5_0` or `mlx5_1:2`; all by default.
    pub devices: Vec<String>,
    /// Which of them serves a connection: by default the one that has its local address.
    pub port_choice: PortChoice,
    /// Which place of a port's GID table is used, where several serve: by default the first that
    /// has the connection's local address, or, with [`PortChoice::Nearest`], the first that a peer
    /// can be given. The GID there has to serve all the same. `show_gids` and
    /// `/sys/class/infiniband/*/ports/*/gids` have the table.
    pub gid_index: Option<u8>,
    /// Lanes of a device: 1 by default, so that their memory stays below the limit named next.
    /// Each has a task of its own, so more serve more processors; connections go where the fewest
    /// are. At least 1.
    pub lanes: u16,
    /// Receive slots shared by all connections of a lane: 1,024 by default. With slots of
    /// 4,352 bytes that is 4.3 MiB, which together with the send slots stays below Debian's
    /// default limit of 8 MiB of locked memory. At least 3.
    pub receive_slots: u16,
    /// The length of a slot, both ways: 4,352 bytes by default, a page of payload and 256 bytes
    /// for headers and metadata. A longer frame is offered to be read. At least 448.
    pub slot_len: u32,
    /// Send slots shared by all connections of a lane: 256 by default, 1.1 MiB. At least 1.
    pub send_slots: u32,
    /// The most messages that one connection may have on their way to us: 32 by default. A
    /// connection begins with one, gets more as it needs them, and fewer again when others do:
    /// with the default of 1,024 slots, up to 18 busy ones have 32 each, and 64 have 9. Each takes
    /// two more for control messages, so that 256 idle ones leave 256 slots. From 1 to 65,535.
    pub max_credits: u32,
    /// Requests in flight on one queue pair: 96 by default, three windows. At least 1.
    pub send_depth: u32,
    /// Connections on one lane at most: 256 by default. It sizes the completion queue, which
    /// must never overrun: slots + connections x (send depth + 1 + queue pairs for READs x (READs
    /// of each + 1)). By default that is 30,464, of 32,767 that Soft-RoCE has. At least 1.
    pub max_connections: u32,
    /// Registered memory for large frames being sent, in bytes: 512 MiB by default. Half of it at
    /// most is lent to applications that fill it themselves. Peers share it: each may have as much
    /// as is still free, so that one alone has half (and one frame of any length that fits). A
    /// peer is an address, or the /64 of an IPv6 address, whatever its connections; all peers
    /// behind one address have one share. The same holds for `max_sink_bytes` and
    /// `max_read_bytes`. At least `slot_len`.
    pub max_source_bytes: u64,
    /// Registered memory for large frames being received, in bytes: 512 MiB by default. Peers
    /// share it as they share `max_source_bytes`; what the application keeps of a frame counts as
    /// its sender's. At least `slot_len`.
    pub max_sink_bytes: u64,
    /// How long a large frame waits for memory at most: 30 s by default. Nothing is registered
    /// before it is needed, and what is not in use makes way; a frame waits when others use the
    /// budget, or all that the process may pin (`RLIMIT_MEMLOCK`). After that its call ends with
    /// `RESOURCE_EXHAUSTED`, and before that at its deadline. Zero does not wait; at most 365 days.
    pub memory_timeout: Duration,
    /// Log a warning once when the application holds a received large frame this long: 60 s by
    /// default. Its memory is missing from `max_sink_bytes` until it is dropped. From 1 ms to 365
    /// days.
    pub lease_warn_after: Duration,
    /// How far the keys reach that a peer is given to read large frames with:
    /// [`RkeyScope::Auto`] by default.
    pub rkey_scope: RkeyScope,
    /// The longest READ: 512 KiB by default, a sixteenth of `max_read_bytes`. A peer alone has
    /// eight outstanding then, and four beside one that answers nothing. At least 1.
    pub max_read_len: u32,
    /// READs outstanding on one connection at most: 16 by default. The peer may allow fewer.
    /// At least 1.
    pub max_reads: u8,
    /// Queue pairs of a connection that carry READs alone, beside the one for messages: 2 by
    /// default, at most 8, and the peer may have fewer. Small messages do not wait behind READs
    /// then, and devices that serve a queue pair in one place serve several READs at once; each
    /// takes memory of the device, and the `max_reads` are spread over them. With 0, and where
    /// [windows](RkeyScope::Window) are used, READs go with the messages.
    pub read_queue_pairs: u8,
    /// Whether devices are used whose READs are known to complete short, or were never checked for
    /// that: not by default. Those are Soft-RoCE devices on Linux kernels other than 6.1
    /// (`docs/rdma-devices.md` has the evidence). With it, a short READ gives the application zeros
    /// where bytes are missing, and never what another connection received; nothing tells that
    /// bytes are missing. Without it, such a device is declined with the reason: `auto://` stays on
    /// TCP, and `rdma://` fails.
    pub allow_untrusted_reads: bool,
    /// Bytes of READs outstanding on all connections of a device together: 8 MiB by default, or
    /// one READ if that is longer. Peers share it as they share `max_source_bytes`, so that one
    /// alone has 4 MiB outstanding. That is several times what a fast link has on its way: it
    /// carries 1 MB in 20 us at 400 Gb/s. What is asked for beyond it only waits, small messages
    /// of other connections wait behind it, and a device takes an answer for lost that takes
    /// longer than [`ConnectOptions`] say. Connections of one peer take turns, a READ at a time. At
    /// least 1.
    pub max_read_bytes: u32,
    /// How long a READ may take from the moment when it is the next to be answered on its queue
    /// pair: 10 s by default, five times what a queue pair takes to give a link up on devices that
    /// stretch their timeouts, and 50 KiB/s for READs of 512 KiB. After that the connection ends,
    /// and what it held is free. A process that has stood still looks again after 5 s. From 1 ms to
    /// 365 days.
    pub read_timeout: Duration,
    /// How long to poll after the last completion before sleeping: 20 us by default, about what
    /// an interrupt and a wake-up cost. Zero never polls longer than there is work.
    pub spin: Duration,
    /// How long a queue pair waits and retries.
    pub connect: ConnectOptions,
    /// How long a peer may keep a large frame that it was offered: 60 s by default, so that one
    /// that takes and never gives back holds memory for a minute and then no connection. So does
    /// one that grants no credit for as long, and 5 s at least, while something waits for it. A
    /// peer with these rules refuses what it has had no memory for in half that time. From 1 ms to
    /// 365 days.
    pub release_timeout: Duration,
    /// How long a peer may take to let go of a large frame whose call was given up: 5 s by
    /// default. It has to stop between two READs of at most `max_read_len` bytes, which takes
    /// milliseconds, and its device gives up on a dead link after about half a second; longer
    /// means that it does not run. Then its key is revoked if a window guards the memory; else
    /// the connection ends, because that alone takes the memory back. From 1 ms to 365 days.
    pub cancel_timeout: Duration,
    /// How long a closing connection may take to finish what it was given: 5 s by default. Zero
    /// closes at once; at most 365 days.
    pub close_timeout: Duration,
}

impl RdmaConfig {
    /// Checks that connections can work with it.
    ///
    /// What a device cannot have in such numbers is refused, or cut, when the device is opened.
    ///
    /// # Errors
    ///
    /// The first setting that is out of its range.
    pub fn check(&self) -> Result<(), InvalidSetting> {
        self.faults().into_iter().next().map_or(Ok(()), Err)
    }

    /// Returns the values that cannot be, one of each group of values that are checked together.
    #[doc(hidden)]
    #[must_use]
    pub fn faults(&self) -> Vec<InvalidSetting> {
        let checked = [
            self.check_queues(),
            self.check_source_memory(),
            self.check_sink_memory(),
            self.check_reads(),
            self.check_times(),
            self.check_connect(),
        ];
        checked.into_iter().filter_map(Result::err).collect()
    }

    fn check_queues(&self) -> Result<(), InvalidSetting> {
        ensure(
            self.lanes >= 1,
            "rdma.lanes",
            self.lanes,
            "at least 1, since connections are on lanes",
        )?;
        ensure(
            self.receive_slots >= MIN_RECEIVE_SLOTS,
            "rdma.receive_slots",
            self.receive_slots,
            "at least 3, since a connection takes as many",
        )?;
        ensure(
            self.slot_len >= MIN_SLOT_LEN,
            "rdma.slot_len",
            self.slot_len,
            "at least 448, which the offer of a large frame takes",
        )?;
        ensure(
            self.send_slots >= 1,
            "rdma.send_slots",
            self.send_slots,
            "at least 1, since every message is sent from a slot",
        )?;
        ensure(
            (1..=MAX_CREDITS).contains(&self.max_credits),
            "rdma.max_credits",
            self.max_credits,
            "from 1 to 65535: nothing is sent without a credit, and each is a slot",
        )?;
        ensure(
            self.send_depth >= 1,
            "rdma.send_depth",
            self.send_depth,
            "at least 1, since every message is a request",
        )?;
        ensure(
            self.max_connections >= 1,
            "rdma.max_connections",
            self.max_connections,
            "at least 1, since nothing would be connected",
        )
    }

    fn check_source_memory(&self) -> Result<(), InvalidSetting> {
        let is_enough = self.max_source_bytes >= u64::from(self.slot_len);
        let rule = "at least rdma.slot_len, since a frame that is longer is sent from this memory";
        ensure(is_enough, "rdma.max_source_bytes", self.max_source_bytes, rule)
    }

    fn check_sink_memory(&self) -> Result<(), InvalidSetting> {
        let is_enough = self.max_sink_bytes >= u64::from(self.slot_len);
        let rule = "at least rdma.slot_len, since a frame that is longer is read into this memory";
        ensure(is_enough, "rdma.max_sink_bytes", self.max_sink_bytes, rule)
    }

    fn check_reads(&self) -> Result<(), InvalidSetting> {
        let rule = "at least 1, since nothing large comes without READs";
        ensure(self.max_read_len >= 1, "rdma.max_read_len", self.max_read_len, rule)?;
        ensure(self.max_reads >= 1, "rdma.max_reads", self.max_reads, rule)?;
        ensure(self.max_read_bytes >= 1, "rdma.max_read_bytes", self.max_read_bytes, rule)?;
        ensure(
            self.read_queue_pairs <= MAX_READ_QUEUE_PAIRS,
            "rdma.read_queue_pairs",
            self.read_queue_pairs,
            "at most 8, which is what peers accept",
        )
    }

    fn check_times(&self) -> Result<(), InvalidSetting> {
        check_period("rdma.memory_timeout", self.memory_timeout)?;
        check_timeout("rdma.lease_warn_after", self.lease_warn_after)?;
        check_timeout("rdma.read_timeout", self.read_timeout)?;
        check_timeout("rdma.release_timeout", self.release_timeout)?;
        check_timeout("rdma.cancel_timeout", self.cancel_timeout)?;
        check_period("rdma.close_timeout", self.close_timeout)
    }

    fn check_connect(&self) -> Result<(), InvalidSetting> {
        let ConnectOptions { timeout, retry_count, rnr_retry, rnr_timer, .. } = self.connect;
        let name = "rdma.connect.timeout";
        ensure((1..=31).contains(&timeout), name, timeout, "from 1 to 31, since 0 is for ever")?;
        let (name, rule) = ("rdma.connect.retry_count", "from 1 to 6, since 7 may be for ever");
        ensure((1..=6).contains(&retry_count), name, retry_count, rule)?;
        let name = "rdma.connect.rnr_retry";
        ensure(rnr_retry <= 7, name, rnr_retry, "from 0 to 7, which is what verbs have")?;
        let (name, rule) = ("rdma.connect.rnr_timer", "from 1 to 31, since 0 is the longest");
        ensure((1..=31).contains(&rnr_timer), name, rnr_timer, rule)
    }
}

impl Default for RdmaConfig {
    fn default() -> Self {
        Self {
            devices: Vec::new(),
            gid_index: None,
            port_choice: PortChoice::Address,
            lanes: 1,
            receive_slots: 1024,
            slot_len: 4352,
            send_slots: 256,
            max_credits: 32,
            send_depth: 96,
            max_connections: 256,
            max_source_bytes: 512 << 20,
            max_sink_bytes: 512 << 20,
            memory_timeout: Duration::from_secs(30),
            lease_warn_after: Duration::from_secs(60),
            rkey_scope: RkeyScope::Auto,
            max_read_len: 512 << 10,
            max_reads: 16,
            read_queue_pairs: 2,
            allow_untrusted_reads: false,
            max_read_bytes: 8 << 20,
            read_timeout: Duration::from_secs(10),
            spin: Duration::from_micros(20),
            connect: ConnectOptions::default(),
            release_timeout: Duration::from_secs(60),
            cancel_timeout: Duration::from_secs(5),
            close_timeout: Duration::from_secs(5),
        }
    }
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
            (new().with_lanes(0), "lanes is 0: at least 1, since connections are on lanes"),
            (new().with_receive_slots(2), "receive_slots is 2: at least 3, since a connection"),
            (new().with_slot_len(447), "slot_len is 447: at least 448, which the offer"),
            (new().with_send_slots(0), "send_slots is 0: at least 1, since every message"),
            (new().with_max_credits(0), "max_credits is 0: from 1 to 65535: nothing is sent"),
            (new().with_max_credits(65_536), "max_credits is 65536: from 1 to 65535"),
            (new().with_send_depth(0), "send_depth is 0: at least 1, since every message"),
            (new().with_max_connections(0), "max_connections is 0: at least 1, since nothing"),
            (new().with_max_source_bytes(4351), "max_source_bytes is 4351: at least rdma.slot_len"),
            (new().with_max_sink_bytes(4351), "max_sink_bytes is 4351: at least rdma.slot_len"),
            (new().with_max_read_len(0), "max_read_len is 0: at least 1, since nothing large"),
            (new().with_max_reads(0), "max_reads is 0: at least 1, since nothing large comes"),
            (new().with_max_read_bytes(0), "max_read_bytes is 0: at least 1, since nothing"),
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
            .with_lanes(1)
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
            .with_lanes(u16::MAX)
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

    /// The provider of verbs refuses the same, in words of its own.
    #[test]
    fn the_ranges_of_connect_options_are_those_of_verbs() {
        for value in 0..=255 {
            let usual = ConnectOptions::default();
            let table = [
                ConnectOptions { timeout: value, ..usual },
                ConnectOptions { retry_count: value, ..usual },
                ConnectOptions { rnr_retry: value, ..usual },
                ConnectOptions { rnr_timer: value, ..usual },
            ];
            for options in table {
                let checked = RdmaConfig::default().with_connect(options).check();
                assert_eq!(checked.is_ok(), options.check().is_ok(), "{options:?}");
            }
        }
    }
}
