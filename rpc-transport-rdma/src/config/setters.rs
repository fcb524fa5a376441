//! A setter for each field of the configuration.

use std::time::Duration;

use crate::{ConnectOptions, PortChoice, RdmaConfig, RkeyScope};

impl RdmaConfig {
    /// Sets [`devices`](Self::devices).
    #[must_use]
    pub fn with_devices(mut self, names: Vec<String>) -> Self {
        self.devices = names;
        self
    }

    /// Sets [`port_choice`](Self::port_choice).
    #[must_use]
    pub fn with_port_choice(mut self, choice: PortChoice) -> Self {
        self.port_choice = choice;
        self
    }

    /// Sets [`gid_index`](Self::gid_index).
    #[must_use]
    pub fn with_gid_index(mut self, index: Option<u8>) -> Self {
        self.gid_index = index;
        self
    }

    /// Sets [`lanes`](Self::lanes).
    #[must_use]
    pub fn with_lanes(mut self, count: u16) -> Self {
        self.lanes = count;
        self
    }

    /// Sets [`receive_slots`](Self::receive_slots).
    #[must_use]
    pub fn with_receive_slots(mut self, count: u16) -> Self {
        self.receive_slots = count;
        self
    }

    /// Sets [`slot_len`](Self::slot_len).
    #[must_use]
    pub fn with_slot_len(mut self, bytes: u32) -> Self {
        self.slot_len = bytes;
        self
    }

    /// Sets [`send_slots`](Self::send_slots).
    #[must_use]
    pub fn with_send_slots(mut self, count: u32) -> Self {
        self.send_slots = count;
        self
    }

    /// Sets [`max_credits`](Self::max_credits).
    #[must_use]
    pub fn with_max_credits(mut self, count: u32) -> Self {
        self.max_credits = count;
        self
    }

    /// Sets [`send_depth`](Self::send_depth).
    #[must_use]
    pub fn with_send_depth(mut self, count: u32) -> Self {
        self.send_depth = count;
        self
    }

    /// Sets [`max_connections`](Self::max_connections).
    #[must_use]
    pub fn with_max_connections(mut self, count: u32) -> Self {
        self.max_connections = count;
        self
    }

    /// Sets [`max_source_bytes`](Self::max_source_bytes).
    #[must_use]
    pub fn with_max_source_bytes(mut self, bytes: u64) -> Self {
        self.max_source_bytes = bytes;
        self
    }

    /// Sets [`max_sink_bytes`](Self::max_sink_bytes).
    #[must_use]
    pub fn with_max_sink_bytes(mut self, bytes: u64) -> Self {
        self.max_sink_bytes = bytes;
        self
    }

    /// Sets [`memory_timeout`](Self::memory_timeout).
    #[must_use]
    pub fn with_memory_timeout(mut self, timeout: Duration) -> Self {
        self.memory_timeout = timeout;
        self
    }

    /// Sets [`lease_warn_after`](Self::lease_warn_after).
    #[must_use]
    pub fn with_lease_warn_after(mut self, period: Duration) -> Self {
        self.lease_warn_after = period;
        self
    }

    /// Sets [`rkey_scope`](Self::rkey_scope).
    #[must_use]
    pub fn with_rkey_scope(mut self, scope: RkeyScope) -> Self {
        self.rkey_scope = scope;
        self
    }

    /// Sets [`max_read_len`](Self::max_read_len).
    #[must_use]
    pub fn with_max_read_len(mut self, bytes: u32) -> Self {
        self.max_read_len = bytes;
        self
    }

    /// Sets [`max_reads`](Self::max_reads).
    #[must_use]
    pub fn with_max_reads(mut self, count: u8) -> Self {
        self.max_reads = count;
        self
    }

    /// Sets [`read_queue_pairs`](Self::read_queue_pairs).
    #[must_use]
    pub fn with_read_queue_pairs(mut self, count: u8) -> Self {
        self.read_queue_pairs = count;
        self
    }

    /// Sets [`allow_untrusted_reads`](Self::allow_untrusted_reads).
    #[must_use]
    pub fn with_allow_untrusted_reads(mut self, is_allowed: bool) -> Self {
        self.allow_untrusted_reads = is_allowed;
        self
    }

    /// Sets [`max_read_bytes`](Self::max_read_bytes).
    #[must_use]
    pub fn with_max_read_bytes(mut self, bytes: u32) -> Self {
        self.max_read_bytes = bytes;
        self
    }

    /// Sets [`read_timeout`](Self::read_timeout).
    #[must_use]
    pub fn with_read_timeout(mut self, timeout: Duration) -> Self {
        self.read_timeout = timeout;
        self
    }

    /// Sets [`spin`](Self::spin).
    #[must_use]
    pub fn with_spin(mut self, period: Duration) -> Self {
        self.spin = period;
        self
    }

    /// Sets [`connect`](Self::connect).
    #[must_use]
    pub fn with_connect(mut self, options: ConnectOptions) -> Self {
        self.connect = options;
        self
    }

    /// Sets [`release_timeout`](Self::release_timeout).
    #[must_use]
    pub fn with_release_timeout(mut self, timeout: Duration) -> Self {
        self.release_timeout = timeout;
        self
    }

    /// Sets [`cancel_timeout`](Self::cancel_timeout).
    #[must_use]
    pub fn with_cancel_timeout(mut self, timeout: Duration) -> Self {
        self.cancel_timeout = timeout;
        self
    }

    /// Sets [`close_timeout`](Self::close_timeout).
    #[must_use]
    pub fn with_close_timeout(mut self, timeout: Duration) -> Self {
        self.close_timeout = timeout;
        self
    }
}
