//! The size of a run.

/// The size of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    pub(crate) clients: u64,
    pub(crate) tasks_per_client: u64,
    /// Calls of one task, one after the other.
    pub(crate) calls_per_task: usize,
    /// Longer than a few READs, so that a frame takes several.
    pub(crate) large_len_max: usize,
    pub(crate) max_read_len: u32,
    /// A stream has fewer messages than this each way.
    pub(crate) stream_len_max: usize,
    /// The window of a stream: less than a few large messages, so that they exceed it.
    pub(crate) max_stream_bytes: u32,
    pub(crate) receive_slots: u16,
    pub(crate) send_slots: u32,
    /// Bytes of memory for large frames, each way.
    pub(crate) large_bytes: u64,
}

/// Enough of everything for calls to get in each other's way.
const FULL: Size = Size {
    clients: 2,
    tasks_per_client: 4,
    calls_per_task: 12,
    large_len_max: 400_000,
    max_read_len: 64 << 10,
    stream_len_max: 12,
    max_stream_bytes: 100_000,
    receive_slots: 64,
    send_slots: 24,
    large_bytes: 4 << 20,
};

/// The smallest run that still has every kind of call and fault over many seeds: for a million of
/// them.
const LEAN: Size = Size {
    clients: 1,
    tasks_per_client: 2,
    calls_per_task: 3,
    large_len_max: 20_000,
    max_read_len: 4 << 10,
    stream_len_max: 5,
    max_stream_bytes: 8000,
    receive_slots: 16,
    send_slots: 8,
    large_bytes: 128 << 10,
};

impl Size {
    /// Returns the size that the environment asks for.
    pub(crate) fn from_env() -> Self {
        if std::env::var_os("FARCALL_SIM_LEAN").is_some() { LEAN } else { FULL }
    }
}
