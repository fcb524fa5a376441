//! The setting of a side's processes: cores, threads and connections.

use crate::processes::Placement;

/// The setting of a side's processes.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// On which cores.
    pub placement: Placement,
    /// Threads of each process's runtime; 0 for one that runs on the main thread.
    pub threads: usize,
    /// Connections between them.
    pub connections: usize,
}

impl Setting {
    /// Returns the setting of an application: all cores, tokio's default runtime, one connection.
    #[must_use]
    pub fn free() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self { placement: Placement::Free, threads, connections: 1 }
    }

    /// Both processes on one core, each on one thread, over one connection.
    #[must_use]
    pub fn one_core() -> Self {
        Self { placement: Placement::OneCore, threads: 0, connections: 1 }
    }

    /// With so many connections.
    #[must_use]
    pub fn with_connections(self, connections: usize) -> Self {
        Self { connections, ..self }
    }

    /// With so many threads in each process.
    #[must_use]
    pub fn with_threads(self, threads: usize) -> Self {
        Self { threads, ..self }
    }
}
