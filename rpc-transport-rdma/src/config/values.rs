//! Fields of the configuration that are types of their own.

/// Which of the ports that may be used serves a connection.
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

/// How a connection waits and retries.
///
/// The defaults let a dead peer be noticed within about half a second: the acknowledgement timeout
/// is 4.096 us x 2^14 = 67 ms, tried seven times (devices may stretch it up to fourfold).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectOptions {
    /// Acknowledgement timeout: 4.096 us x 2^this. 1 to 31; 14 by default.
    pub timeout: u8,
    /// Retries after a missing acknowledgement. 1 to 6; 6 by default, so that loss of a few per
    /// cent does not end a connection. 7 is refused: on Soft-RoCE it means for ever, and a dead
    /// peer would never be noticed.
    pub retry_count: u8,
    /// Retries when the peer has no receive posted. 0 to 7; 7, the default, means for ever,
    /// because one greedy client must not end the others' connections on a shared queue.
    pub rnr_retry: u8,
    /// How long a sender waits when we have no receive posted, as verbs numbers it. 1 to 31; 12,
    /// the default, is 0.64 ms. 0 is refused: it means 655 ms.
    pub rnr_timer: u8,
    /// The traffic class of RoCE's packets: 0 by default. Its upper six bits are the DSCP by which
    /// switches choose a queue, its lower two are ECN's: 104 is DSCP 26. Each side sets its own.
    /// On InfiniBand packets within a subnet carry none, and it has no effect.
    pub traffic_class: u8,
}

impl ConnectOptions {
    /// Sets [`timeout`](Self::timeout).
    #[must_use]
    pub fn with_timeout(mut self, timeout: u8) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets [`retry_count`](Self::retry_count).
    #[must_use]
    pub fn with_retry_count(mut self, count: u8) -> Self {
        self.retry_count = count;
        self
    }

    /// Sets [`rnr_retry`](Self::rnr_retry).
    #[must_use]
    pub fn with_rnr_retry(mut self, count: u8) -> Self {
        self.rnr_retry = count;
        self
    }

    /// Sets [`rnr_timer`](Self::rnr_timer).
    #[must_use]
    pub fn with_rnr_timer(mut self, timer: u8) -> Self {
        self.rnr_timer = timer;
        self
    }

    /// Sets [`traffic_class`](Self::traffic_class).
    #[must_use]
    pub fn with_traffic_class(mut self, class: u8) -> Self {
        self.traffic_class = class;
        self
    }
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self { timeout: 14, retry_count: 6, rnr_retry: 7, rnr_timer: 12, traffic_class: 0 }
    }
}
