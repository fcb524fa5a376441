//! The window of chunk bytes that the peer has not read.
//!
//! A small frame waits behind the bytes that the peer's kernel has received and its process has not
//! read. Whenever that process gets no core, they grow to the receive buffer, 32 MiB. A shorter
//! buffer would throttle long paths. While small frames share the connection, writes are therefore
//! *paced*: chunks ask for acks, which report the peer's progress, and the unacknowledged bytes
//! never exceed the window.
//!
//! The window is twice the bandwidth-delay product (BDP). The estimate takes the bytes acknowledged
//! in a round trip and scales them from its duration to the minimum RTT. On a path that is not
//! full, the window doubles with every round trip. On a full path, it leaves a queue of one RTT.
//! Short chunks that travel alone measure the minimum RTT. It is measured again from time to time,
//! since paths change.
//!
//! Free of I/O and of clocks: the caller passes the time.

use std::time::{Duration, Instant};

use rpc_core::wire::ProtocolError;

/// Maximum length of a paced chunk in bytes.
const PACED_LEN: usize = 48 << 10;

/// Minimum window in bytes: two chunks, one that is read while the other is in flight.
///
/// Measured over loopback: twice this window quadruples a small call's 99th percentile, and two
/// thirds of it cost a third of the throughput.
const WINDOW_MIN: u64 = 2 * PACED_LEN as u64;

/// Maximum window in bytes: the send queue holds no more than this.
pub(crate) const WINDOW_MAX: u64 = 128 << 20;

/// Chunk bytes after the last small frame until pacing ends: 0.2 s of a fast path. A connection
/// that makes calls less often occasionally waits once for a full buffer.
const PACED_BYTES: u64 = 256 << 20;

/// Lifetime of a measured minimum RTT. On a path of 100 ms, the next measurement costs a hundredth
/// of that.
const RTT_LIFETIME: Duration = Duration::from_secs(30);

/// Number of round trips per measurement. Only the shortest counts: a thread that waits for a core
/// can make any of them long.
const RTT_SAMPLE_COUNT: u32 = 4;

/// Length of a chunk that measures the RTT, in bytes. Writing and reading it takes no time.
const ALONE_LEN: usize = 4 << 10;

/// A chunk whose ack measures a round trip.
#[derive(Debug)]
struct RttProbe {
    /// End of the chunk.
    end: u64,
    sent_at: Instant,
    /// The acknowledged bytes at the time it was sent.
    acked_before: u64,
    is_alone: bool,
    /// True if the window was full meanwhile. Only then does the sample bound the BDP.
    is_full: bool,
}

/// The send window and the chunks in flight. Bytes are counted from the start of the connection.
#[derive(Debug)]
pub(crate) struct SendWindow {
    sent: u64,
    acked: u64,
    /// End of the last chunk that asked for an ack.
    wanted: u64,
    /// Chunk bytes that remain to be paced.
    paced_left: u64,
    len: u64,
    /// The minimum RTT.
    rtt: Option<Duration>,
    /// Time of the last RTT measurement with nothing else in flight.
    measured_at: Option<Instant>,
    /// Number of samples missing from the current measurement.
    samples_left: u32,
    probe: Option<RttProbe>,
}

impl Default for SendWindow {
    fn default() -> Self {
        Self {
            sent: 0,
            acked: 0,
            wanted: 0,
            paced_left: 0,
            len: WINDOW_MIN,
            rtt: None,
            measured_at: None,
            samples_left: RTT_SAMPLE_COUNT,
            probe: None,
        }
    }
}

impl SendWindow {
    /// Records a small frame that shares the connection: later chunks are paced.
    pub(crate) fn handle_small(&mut self) {
        self.paced_left = PACED_BYTES;
    }

    /// Returns true if chunks ask for acks.
    pub(crate) fn is_paced(&self) -> bool {
        self.paced_left > 0
    }

    /// Returns true if another chunk may be sent.
    // Without an outstanding ack the window cannot open again, so one chunk may always go.
    pub(crate) fn may_send(&self, now: Instant) -> bool {
        if !self.is_paced() || self.acked >= self.wanted {
            return true;
        }
        !self.is_measuring(now) && self.has_room()
    }

    /// Returns the maximum number of unacknowledged bytes while writes are paced.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Returns the maximum length of the next chunk while writes are paced.
    pub(crate) fn chunk_len_max(&self, now: Instant) -> usize {
        let is_to_be_alone = self.acked == self.sent && self.is_measuring(now);
        if is_to_be_alone { ALONE_LEN } else { PACED_LEN }
    }

    /// Records that a chunk of `len` bytes is sent. It asks for an ack if writes are paced.
    pub(crate) fn handle_sent(&mut self, len: usize, now: Instant) {
        let is_alone = self.acked == self.sent;
        // An ack also covers earlier chunks that asked for none. Their bytes would count as arrived
        // within this round trip.
        let is_counted = is_alone || self.wanted == self.sent;
        self.sent += len as u64;
        if !self.is_paced() {
            return;
        }
        if is_alone && self.samples_left == 0 && self.is_measuring(now) {
            // Forgets the old minimum: on a path that became longer, it would keep the window too
            // small.
            (self.rtt, self.samples_left) = (None, RTT_SAMPLE_COUNT);
        }
        self.paced_left = self.paced_left.saturating_sub(len as u64);
        self.wanted = self.sent;
        // Noted at any chunk after the probe: one that fills the window makes the sample a bound.
        let is_full = !self.has_room();
        match &mut self.probe {
            Some(probe) => probe.is_full |= is_full,
            None if is_counted => {
                let (end, acked_before) = (self.sent, self.acked);
                let probe = RttProbe { end, sent_at: now, acked_before, is_alone, is_full };
                self.probe = Some(probe);
            }
            None => {}
        }
    }

    /// Records an ack.
    ///
    /// # Errors
    ///
    /// Returns an error if the ack acknowledges nothing new, or more than was sent.
    pub(crate) fn handle_ack(&mut self, read: u64, now: Instant) -> Result<(), ProtocolError> {
        if read <= self.acked || read > self.sent {
            return Err(ProtocolError::Invalid { what: "ack", value: read });
        }
        self.acked = read;
        if let Some(probe) = self.probe.take_if(|probe| probe.end <= read) {
            self.measure(&probe, now);
        }
        Ok(())
    }

    /// Returns true if the window has room for another chunk.
    fn has_room(&self) -> bool {
        self.sent - self.acked + PACED_LEN as u64 <= self.len
    }

    /// Returns true if an RTT measurement must finish before more is sent.
    fn is_measuring(&self, now: Instant) -> bool {
        let age = self.measured_at.map(|at| now.saturating_duration_since(at));
        self.samples_left > 0 || age.is_some_and(|age| age >= RTT_LIFETIME)
    }

    fn measure(&mut self, probe: &RttProbe, now: Instant) {
        let time = now.saturating_duration_since(probe.sent_at).max(Duration::from_nanos(1));
        let rtt = self.rtt.map_or(time, |rtt| rtt.min(time));
        self.rtt = Some(rtt);
        if probe.is_alone {
            self.samples_left = self.samples_left.saturating_sub(1);
            self.measured_at = Some(now);
        }
        let bdp = u128::from(self.acked - probe.acked_before) * rtt.as_nanos() / time.as_nanos();
        // `WINDOW_MAX` is far smaller.
        let wanted = u64::try_from(2 * bdp).unwrap_or(u64::MAX);
        // One slow sample does not make a slow path, so the window shrinks by an eighth per sample.
        // A sample that did not fill the window reveals nothing about the path.
        let shrunk = if probe.is_full { self.len - self.len / 8 } else { self.len };
        self.len = wanted.max(shrunk).clamp(WINDOW_MIN, WINDOW_MAX);
    }
}

#[cfg(test)]
impl SendWindow {
    /// Returns the number of unacknowledged bytes.
    pub(crate) fn in_flight(&self) -> u64 {
        self.sent - self.acked
    }

    /// Returns true if an ack is outstanding.
    pub(crate) fn is_owed_ack(&self) -> bool {
        self.wanted > self.acked
    }
}

#[cfg(test)]
mod tests;
