//! How RDMA is used, each number with the reason for its default.

use std::time::Duration;

use crate::RkeyScope;
use crate::device::PortChoice;
use crate::read_queues::READ_QUEUE_PAIRS_MAX;
use crate::verbs::ConnectOptions;

/// The configuration of the RDMA transport. One lane has one of each queue below.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RdmaConfig {
    /// The devices or ports that may be used, for example `mlx5_0` or `mlx5_1:2`; all by default.
    pub devices: Vec<String>,
    /// Which of them serves a connection: by default the one that has its local address.
    pub port_choice: PortChoice,
    /// Lanes of a device: 1 by default, so that their memory stays below the limit named next.
    /// Each has a task of its own, so more serve more processors; connections go where the fewest
    /// are.
    pub lanes: u16,
    /// Receive slots shared by all connections of a lane: 1,024 by default. With slots of
    /// 4,352 bytes that is 4.3 MiB, which together with the send slots stays below Debian's
    /// default limit of 8 MiB of locked memory.
    pub receive_slots: u16,
    /// The length of a slot, both ways: 4,352 bytes by default, a page of payload and 256 bytes
    /// for headers and metadata. A longer frame is offered to be read.
    pub slot_len: u32,
    /// Send slots shared by all connections of a lane: 256 by default, 1.1 MiB.
    pub send_slots: u32,
    /// The most messages that one connection may have on their way to us: 32 by default. A
    /// connection begins with one, gets more as it needs them, and fewer again when others do:
    /// with 1,024 slots, eight busy ones have 32 each and sixty-four have 11. Each takes two more
    /// for control messages, so that 341 idle ones fit.
    pub max_credits: u32,
    /// Requests in flight on one queue pair: 96 by default, three windows.
    pub send_depth: u32,
    /// Connections on one lane at most: 256 by default. It sizes the completion queue, which
    /// must never overrun: slots + connections x (send depth + 1 + queue pairs for READs x (READs
    /// of each + 1)). By default that is 30,464, of 32,767 that Soft-RoCE has.
    pub max_connections: u32,
    /// Registered memory for large frames being sent, in bytes: 512 MiB by default. Half of it at
    /// most is lent to applications that fill it themselves. Peers share it: each may have as much
    /// as is still free, so that one alone has half (and one frame of any length that fits). A
    /// peer is an address, or the /64 of an IPv6 address, whatever its connections; all peers
    /// behind one address have one share. The same holds for `max_sink_bytes` and
    /// `max_read_bytes`.
    pub max_source_bytes: u64,
    /// Registered memory for large frames being received, in bytes: 512 MiB by default. Peers
    /// share it as they share `max_source_bytes`; what the application keeps of a frame counts as
    /// its sender's.
    pub max_sink_bytes: u64,
    /// How long a large frame waits for memory at most: 30 s by default. Nothing is registered
    /// before it is needed, and what is not in use makes way; a frame waits when others use the
    /// budget, or all that the process may pin (`RLIMIT_MEMLOCK`). After that its call ends with
    /// `RESOURCE_EXHAUSTED`, and before that at its deadline.
    pub memory_timeout: Duration,
    /// After how long a received large frame that the application still holds is told of in the
    /// log, once: 60 s by default. Its memory is missing from `max_sink_bytes` until it is dropped.
    pub lease_warn_after: Duration,
    /// How far the keys reach that a peer is given to read large frames with:
    /// [`RkeyScope::Auto`] by default.
    pub rkey_scope: RkeyScope,
    /// The longest READ: 512 KiB by default, a sixteenth of `max_read_bytes`. A peer alone has
    /// eight outstanding then, and four beside one that answers nothing.
    pub max_read_len: u32,
    /// READs outstanding on one connection at most: 16 by default. The peer may allow fewer.
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
    /// longer than [`ConnectOptions`] say. Connections of one peer take turns, a READ at a time.
    pub max_read_bytes: u32,
    /// How long a READ may take from the moment when it is the next to be answered on its queue
    /// pair: 10 s by default, ten times what a queue pair takes to give a link up on devices that
    /// stretch their timeouts, and 50 KiB/s for READs of 512 KiB. After that, and 5 s at most until
    /// it is found, the connection ends, and what it held is free. More than zero.
    pub read_timeout: Duration,
    /// How long to poll after the last completion before sleeping: 20 us by default, about what
    /// an interrupt and a wake-up cost. Zero never polls longer than there is work.
    pub spin: Duration,
    /// How long a queue pair waits and retries.
    pub connect: ConnectOptions,
    /// How long a peer may keep a large frame that it was offered: 60 s by default, so that one
    /// that takes and never gives back holds memory for a minute and then no connection. So does
    /// one that grants no credit for as long, and 5 s at least, while something waits for it. A
    /// peer with these rules refuses what it has had no memory for in half that time.
    pub release_timeout: Duration,
    /// How long a peer may take to let go of a large frame whose call was given up: 5 s by
    /// default. It has to stop between two READs of at most `max_read_len` bytes, which takes
    /// milliseconds, and its device gives up on a dead link after about half a second; longer
    /// means that it does not run. Then its key is revoked if a window guards the memory; else
    /// the connection ends, because that alone takes the memory back.
    pub cancel_timeout: Duration,
    /// How long a closing connection may take to finish what it was given: 5 s by default.
    pub close_timeout: Duration,
}

impl RdmaConfig {
    /// Whether a connection can work with it.
    ///
    /// # Errors
    ///
    /// In words, with the name of the setting with which none could.
    pub(crate) fn check(&self) -> Result<(), String> {
        let queue_pairs = self.read_queue_pairs;
        if usize::from(queue_pairs) > READ_QUEUE_PAIRS_MAX {
            return Err(format!(
                "rdma.read_queue_pairs is {queue_pairs}, and {READ_QUEUE_PAIRS_MAX} is the most"
            ));
        }
        if self.max_reads == 0 {
            return Err("rdma.max_reads is 0, and nothing large comes without READs".to_owned());
        }
        if self.read_timeout.is_zero() {
            return Err("rdma.read_timeout is 0, and no READ is as fast".to_owned());
        }
        Ok(())
    }

    /// READs outstanding on one of the queue pairs that carry them alone.
    pub(crate) fn reads_of_queue_pair(&self) -> u8 {
        self.max_reads.div_ceil(self.read_queue_pairs.max(1))
    }

    /// Completions that a connection can have waiting.
    pub(crate) fn completions_of_connection(&self) -> u32 {
        // Each queue pair has one more, for the marker of its end.
        let reads = u32::from(self.read_queue_pairs) * (u32::from(self.reads_of_queue_pair()) + 1);
        self.send_depth.saturating_add(1).saturating_add(reads)
    }
}

impl Default for RdmaConfig {
    fn default() -> Self {
        Self {
            devices: Vec::new(),
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
    fn what_no_connection_could_work_with_is_named() {
        assert_eq!(RdmaConfig::default().check(), Ok(()));
        let with = |spoil: fn(&mut RdmaConfig)| {
            let mut config = RdmaConfig::default();
            spoil(&mut config);
            config.check().expect_err("no connection could work with it")
        };
        let error = with(|config| config.read_queue_pairs = 9);
        assert!(error.contains("rdma.read_queue_pairs is 9"), "{error}");
        let error = with(|config| config.max_reads = 0);
        assert!(error.contains("rdma.max_reads is 0"), "{error}");
        let error = with(|config| config.read_timeout = Duration::ZERO);
        assert!(error.contains("rdma.read_timeout is 0"), "{error}");
    }
}
