//! A worker: one completion queue, one shared receive queue, one task, many connections.
//!
//! The task polls while there is work and for a little after, then arms the queue, polls once
//! more, and sleeps on the completion channel. It copies each message out of its slot and posts
//! the slot again before the message is handed out, so that a slow handler never holds one. When a
//! handler blocks, another task goes on with the worker (`delivery`).
//! Requests from other tasks that only this one may serve come as a [`Command`].
//!
//! Settings, counters and the log call a worker with its queues a *lane* (`rdma.lanes`,
//! `LaneInfo`).
//!
//! Applications ask for its memory for large frames with [`rpc_core::buffer`].

mod delivery;
mod driver;
pub(crate) mod set;
mod sizing;
pub(crate) mod srq;

use std::collections::VecDeque;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use rpc_core::handoff::{Core, current_core};
use rpc_core::transport::CloseReason;
use rpc_core::{BufferMemory, BufferSource, offer_source};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::connection::Connection;
use crate::lane::outstanding::OutstandingBuffers;
use crate::lane::spares::{SpareStore, spares_max};
use crate::lane::{LaneSizes, LastPoll};
use crate::memory::{Access, Handout, PoolRules, RegionPool, SlotPool};
use crate::proto::connection::CONTROL_SLOT_LEN;
use crate::quota::half_open::HalfOpen;
use crate::quota::semaphore::FairSemaphore;
use crate::quota::slots::{SharedQuota, SlotQuota};
use crate::verbs::{
    CompletionQueue, Device, SharedReceiveQueue, SharedReceiveQueueConfig, VerbsError,
};
use crate::worker::driver::Driver;
pub(crate) use crate::worker::sizing::{LEAN_FROM, auto_lanes};
use crate::worker::sizing::{control_slots, fit, lane_len, lanes_budget, lean_lane};
use crate::worker::srq::{Replenish, Watermark};
use crate::{RdmaConfig, RkeyScope};

/// The state that connections and a worker's task share.
pub(crate) type WorkerShared = crate::lane::WorkerShared<Connection>;
/// A place among a worker's connections.
pub(crate) type Place = crate::lane::Place<Connection>;

/// A worker's handle. Dropping the last one ends the worker's task.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) shared: Arc<WorkerShared>,
}

/// The state for large frames that the workers of a device share.
struct Large {
    sources: Arc<RegionPool>,
    sinks: Arc<RegionPool>,
    reads: Arc<FairSemaphore>,
}

impl Worker {
    /// Makes a worker on a device, and starts its task in the runtime of the current core, or else
    /// in the current one. The scope of keys and the number of lanes in `config` are what
    /// is used: [`RkeyScope::Auto`] and "auto" have been decided by then.
    pub(crate) fn start(device: &Device, config: &RdmaConfig) -> Result<Self, VerbsError> {
        let sizes = Arc::new(sized(device, config));
        let config = &sizes.full;
        let arbiter = Arc::default();
        let pool = |access, handout, bytes_max| {
            let rules = PoolRules { access, handout, bytes_max, wait_max: config.memory_timeout };
            RegionPool::with_rules(device, rules, &arbiter)
        };
        let sources = pool(source_access(config), Handout::AsLeft, config.max_source_bytes);
        // What a READ leaves out that completes short must not be another connection's.
        let sink_handout = device.read_defect().map_or(Handout::AsLeft, |_| Handout::Erased);
        let access = if config.relaxed_ordering { Access::RelaxedSink } else { Access::Sink };
        let sinks = pool(access, sink_handout, config.max_sink_bytes);
        let reads = reads_of(config, current_core().as_ref());
        Self::start_with(device, &sizes, &sizes.full, Large { sources, sinks, reads }, 0)
    }

    /// Makes another worker on the same device, which shares what large frames need. A lean one has
    /// lean connections only, and queues for those.
    pub(crate) fn start_sibling(&self, number: usize, is_lean: bool) -> Result<Self, VerbsError> {
        let WorkerShared { attachment, sizes, sources, sinks, reads, .. } = &*self.shared;
        let config = if is_lean { &sizes.lean } else { &sizes.full };
        let (sources, sinks, core) = (Arc::clone(sources), Arc::clone(sinks), current_core());
        let is_same = core.as_ref().map(Core::id) == self.shared.core;
        // One budget for all lanes but those of cores: it is the device that is shared.
        let reads = if is_same { Arc::clone(reads) } else { reads_of(config, core.as_ref()) };
        let large = Large { sources, sinks, reads };
        Self::start_with(attachment.device(), sizes, config, large, number)
    }

    fn start_with(
        device: &Device,
        sizes: &Arc<LaneSizes>,
        config: &RdmaConfig,
        Large { sources, sinks, reads }: Large,
        number: usize,
    ) -> Result<Self, VerbsError> {
        let slots = u32::from(config.receive_slots);
        // Never less than the lane may have waiting: a queue that overruns is broken for good.
        // Where the device has less, queue pairs are refused instead.
        let capacity = config.completions_of_lane().min(device.attributes().completions_max);
        let completions = CompletionQueue::on_vector(device, capacity, vector_of(number))?;
        let receives = SharedReceiveQueue::new(
            &completions,
            &SharedReceiveQueueConfig {
                slot_count: config.receive_slots,
                slot_len: config.slot_len,
                tag: 0,
            },
        )?;
        let quota = SlotQuota::new(slots, config.max_connections, config.max_credits);
        let spares_max = spares_max(device.lockable_queue_memory(), sizes.lock_limit.is_some());
        let core = current_core();
        let core_id = core.as_ref().map(Core::id);
        let runtime = core.map_or_else(Handle::current, |core| core.runtime);
        let shared = Arc::new(WorkerShared {
            number,
            config: config.clone(),
            sizes: Arc::clone(sizes),
            runtime: runtime.clone(),
            core: core_id,
            attachment: receives.attachment(),
            send_slots: SlotPool::new(device, config.send_slots, config.slot_len as usize)?,
            control_slots: SlotPool::new(device, control_slots(config), CONTROL_SLOT_LEN)?,
            sources,
            sinks,
            reads,
            leases: OutstandingBuffers::new(
                device.name(),
                config.lease_warn_after,
                runtime.clone(),
            ),
            cancellations: Arc::default(),
            receive_bytes: receives.memory_bytes(),
            shares: Arc::new(SharedQuota::new(quota)),
            spares: SpareStore::new(spares_max, config.read_queue_pairs.into()),
            unproven: HalfOpen::new(),
            activity: Arc::default(),
            timers: Arc::default(),
            table: Mutex::default(),
            commands: Mutex::new(Some(Vec::new())),
            has_commands: AtomicBool::new(false),
            command_sent: Notify::new(),
            is_reclaiming: AtomicBool::new(false),
            last_poll: LastPoll::new(Instant::now()),
            has_woken: AtomicBool::new(false),
            stop: CancellationToken::new(),
        });
        let driver = Driver {
            shared: Arc::clone(&shared),
            completions,
            receives,
            replenish: Replenish::default(),
            watermark: Watermark::new(slots),
            batch: Vec::new(),
            batching: Vec::new(),
            held: Vec::new(),
            arrivals: VecDeque::new(),
            drained: Vec::new(),
            is_stopped: false,
        };
        runtime.spawn(Box::new(driver).run());
        runtime.spawn(wait_for_deadlines(&shared));
        offer_buffers(&shared);
        Ok(Self { shared })
    }
}

/// The bytes of READs that lanes of a core may have outstanding, or those of no core. A core has
/// its part for itself: one that a handler blocks does not see its READs end.
fn reads_of(config: &RdmaConfig, core: Option<&Core>) -> Arc<FairSemaphore> {
    let count = core.map_or(1, |core| core.count).max(1) as u64;
    // A READ that is longer than the whole budget would wait for ever.
    let bytes = (u64::from(config.max_read_bytes) / count).max(config.max_read_len.into());
    FairSemaphore::new(bytes)
}

/// The completion vector of the worker of this number, modulo the device's: those of a process in a
/// row, so that they interrupt different processors, and from a place of its own, since the vectors
/// of a device are shared by all processes.
fn vector_of(number: usize) -> u32 {
    static FIRST: LazyLock<u32> = LazyLock::new(|| {
        let random = RandomState::new().build_hasher().finish();
        // Any number does.
        u32::try_from(random >> 33).unwrap_or(0)
    });
    FIRST.wrapping_add(u32::try_from(number).unwrap_or(0))
}

/// The most workers of a device that are made because the others are full: 16,384 connections by
/// default. Each takes 5.8 MiB for its slots, and a task.
const WORKERS_MAX: usize = 64;

/// The settings of a device's lanes, cut to what the process may lock where the device's queues
/// count.
fn sized(device: &Device, config: &RdmaConfig) -> LaneSizes {
    let mut config = config.clone();
    if config.rkey_scope == RkeyScope::Window {
        // READs go with the messages then.
        config.read_queue_pairs = 0;
    }
    let memory = device.lockable_queue_memory();
    let budget = memory.and_then(lanes_budget);
    let lanes = config.lanes.unwrap_or(1);
    let fitted = budget.and_then(|budget| fit(&config, budget / u64::from(lanes)));
    let Some(fitted) = fitted else {
        // Large frames keep their part of what can be locked.
        let fit = budget.map_or(u64::MAX, |budget| budget / lane_len(&config));
        let workers_max = usize::try_from(fit).unwrap_or(usize::MAX).min(WORKERS_MAX);
        let workers_max = workers_max.max(lanes.into());
        return LaneSizes { lean: lean_lane(&config), full: config, lock_limit: None, workers_max };
    };
    let limit = memory.and_then(|memory| memory.limit);
    rpc_core::limited_log!(
        target: "farcall::rdma",
        process_wide,
        WARN,
        "an RDMA lane is sized to RLIMIT_MEMLOCK (LimitMEMLOCK=infinity lifts it)",
        device = device.name(),
        limit,
        receive_slots = fitted.receive_slots,
        send_slots = fitted.send_slots,
        max_connections = fitted.max_connections,
        send_depth = fitted.send_depth
    );
    let (lean, workers_max) = (lean_lane(&fitted), lanes.into());
    LaneSizes { full: fitted, lean, lock_limit: limit, workers_max }
}

impl WorkerShared {
    /// Ends the connections that are concerned, each for `reason`, and gives their number.
    pub(crate) fn end_connections(
        &self,
        reason: &CloseReason,
        is_concerned: impl Fn(&Connection) -> bool,
    ) -> usize {
        let mut connections = self.connections();
        // A copy of the table: failing a connection takes its lock, and the table's must be free.
        connections.retain(|connection| is_concerned(connection));
        for connection in &connections {
            connection.fail(reason.clone());
        }
        connections.len()
    }

    /// Ends the worker and all its connections for `reason`, without waiting for a device that may
    /// be gone, and gives their number.
    pub(crate) fn lose(&self, reason: &CloseReason) -> usize {
        self.note_end(reason);
        let count = self.end_connections(reason, |_| true);
        self.halt();
        count
    }

    /// Tells the connection of a queue pair that the device took the last receive for that; for
    /// the task that takes the device's asynchronous events.
    pub(crate) fn handle_last_receive(&self, number: u32) {
        if let Some(connection) = self.by_number(number) {
            connection.handle_last_receive(number);
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.shared.halt();
    }
}

/// The timer of a worker's connections, which ends with the worker.
fn wait_for_deadlines(worker: &Arc<WorkerShared>) -> impl Future<Output = ()> + use<> {
    let (timers, stop, worker) =
        (Arc::clone(&worker.timers), worker.stop.clone(), Arc::downgrade(worker));
    // Weak, or the timer would keep a lane alive that no connection uses.
    crate::lane::timers::run(timers, stop, move |tag, at| {
        let connection = worker.upgrade().and_then(|worker| worker.by_tag(tag));
        if let Some(connection) = connection {
            connection.handle_timeout(at);
        }
    })
}

/// Returns the peers' access to the memory that large frames are sent from.
fn source_access(config: &RdmaConfig) -> Access {
    match config.rkey_scope {
        RkeyScope::Window => Access::Windowed,
        RkeyScope::Auto | RkeyScope::Region => Access::Source,
    }
}

#[cfg(test)]
mod tests;

/// Offers a worker's memory for as long as the worker exists.
pub(crate) fn offer_buffers(worker: &Arc<WorkerShared>) {
    let source: Arc<dyn BufferSource> = Arc::<WorkerShared>::clone(worker);
    offer_source(&source);
}

impl BufferSource for WorkerShared {
    fn rank(&self) -> usize {
        self.connection_count()
    }

    fn buffer(self: Arc<Self>, len: usize) -> BoxFuture<'static, Option<Box<dyn BufferMemory>>> {
        Box::pin(async move {
            // A worker that has ended sends nothing.
            let lent = if self.is_dead() { None } else { self.sources.lend(len).await };
            lent.map(|memory| Box::new(memory) as Box<dyn BufferMemory>)
        })
    }
}
