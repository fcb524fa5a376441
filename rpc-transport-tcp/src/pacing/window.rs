//! The window of chunks that the peer has not read.
//!
//! A small frame waits behind what the peer's kernel has taken and its process has not read. That
//! grows to the peer's receive buffer, 32 MiB, whenever its process gets no core. A shorter buffer
//! would cap long paths. So while small frames share the way, writing is *paced*: chunks ask for
//! acks, which say how much the peer has read, and no more than the window is unacknowledged.
//!
//! The window is twice the bandwidth-delay product (BDP): the bytes that were acknowledged in a
//! round trip, scaled from its time down to the minimum RTT. That doubles the window with every
//! round trip of a path that is not full yet, and leaves a queue of one RTT on one that is. The
//! minimum RTT is measured by short chunks that are alone on their way, and measured anew now and
//! then, since paths change.
//!
//! Free of I/O and of clocks: the caller passes the time.

use std::time::{Duration, Instant};

use rpc_core::wire::ProtocolError;

/// The longest chunk while writing is paced.
const PACED_LEN: usize = 48 << 10;

/// The smallest window: two chunks, one that is read while the other is on its way. Measured over
/// loopback: with twice that, a small call's 99th percentile was four times as long; with two
/// thirds, a third less came through.
const WINDOW_MIN: u64 = 2 * PACED_LEN as u64;

/// The largest window: no more than this waits to be written at all.
pub(crate) const WINDOW_MAX: u64 = 128 << 20;

/// The bytes of chunks behind the last small frame until chunks want no acks any more: 0.2 s of a
/// fast path. A connection that calls less often than that now and then waits for a full buffer
/// once.
const PACED_BYTES: u64 = 256 << 20;

/// How long a measured minimum RTT is used. On a path of 100 ms, measuring it anew takes a
/// hundredth of that.
const RTT_LIFETIME: Duration = Duration::from_secs(30);

/// How many round trips are measured, of which the shortest counts: a thread that waits for a core
/// makes any one of them long.
const RTT_SAMPLE_COUNT: u32 = 4;

/// The length of the chunks that measure the RTT: writing and reading them takes no time.
const ALONE_LEN: usize = 4 << 10;

/// A chunk whose ack measures a round trip.
#[derive(Debug)]
struct RttProbe {
    /// Where the chunk ends.
    end: u64,
    sent_at: Instant,
    /// What had been acknowledged when it was sent.
    acked_before: u64,
    is_alone: bool,
    /// Whether the window was full meanwhile: only then does the sample bound the BDP.
    is_full: bool,
}

/// The window, and the chunks on their way to the peer. Bytes are counted from the connection's
/// start.
#[derive(Debug)]
pub(crate) struct SendWindow {
    sent: u64,
    acked: u64,
    /// Where the last chunk ends that asked for an ack.
    wanted: u64,
    /// The bytes of chunks that will still be paced.
    paced_left: u64,
    len: u64,
    /// The minimum RTT.
    rtt: Option<Duration>,
    /// When the RTT was last measured with nothing else under way.
    measured_at: Option<Instant>,
    /// How many samples of it are still to be taken.
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
    /// Records a small frame that shares the way with large ones: the chunks after it are paced.
    pub(crate) fn handle_small(&mut self) {
        self.paced_left = PACED_BYTES;
    }

    /// Whether chunks ask for acks.
    pub(crate) fn is_paced(&self) -> bool {
        self.paced_left > 0
    }

    /// Whether another chunk may be sent.
    pub(crate) fn may_send(&self, now: Instant) -> bool {
        if !self.is_paced() || self.acked >= self.wanted {
            return true;
        }
        !self.is_measuring(now) && self.has_room()
    }

    /// How long the next chunk may be while writing is paced.
    pub(crate) fn chunk_len_max(&self, now: Instant) -> usize {
        let is_to_be_alone = self.acked == self.sent && self.is_measuring(now);
        if is_to_be_alone { ALONE_LEN } else { PACED_LEN }
    }

    /// Records that a chunk of `len` bytes is sent. It asks for an ack if writing is paced.
    pub(crate) fn handle_sent(&mut self, len: usize, now: Instant) {
        let is_alone = self.acked == self.sent;
        // Chunks that asked for no ack would be counted as if they had arrived in this round trip.
        let is_counted = is_alone || self.wanted == self.sent;
        self.sent += len as u64;
        if !self.is_paced() {
            return;
        }
        if is_alone && self.samples_left == 0 && self.is_measuring(now) {
            (self.rtt, self.samples_left) = (None, RTT_SAMPLE_COUNT);
        }
        self.paced_left = self.paced_left.saturating_sub(len as u64);
        self.wanted = self.sent;
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
    /// When it acknowledges nothing new, or more than was sent.
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

    /// Whether the window has room for another chunk.
    fn has_room(&self) -> bool {
        self.sent - self.acked + PACED_LEN as u64 <= self.len
    }

    /// Whether the minimum RTT is to be measured before more is sent.
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
        // `WINDOW_MAX` is smaller by far.
        let wanted = u64::try_from(2 * bdp).unwrap_or(u64::MAX);
        // One slow sample is not a slow path, so the window shrinks by an eighth a sample. A sample
        // with little to send says nothing of the path.
        let shrunk = if probe.is_full { self.len - self.len / 8 } else { self.len };
        self.len = wanted.max(shrunk).clamp(WINDOW_MIN, WINDOW_MAX);
    }
}

#[cfg(test)]
impl SendWindow {
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// What the peer has not acknowledged.
    pub(crate) fn in_flight(&self) -> u64 {
        self.sent - self.acked
    }

    /// Whether a chunk wants an ack that has not come.
    pub(crate) fn is_owed_ack(&self) -> bool {
        self.wanted > self.acked
    }
}

#[cfg(test)]
mod tests;
