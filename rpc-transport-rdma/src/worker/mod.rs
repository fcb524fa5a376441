//! A lane: one completion queue, one shared receive queue, one task, many connections.
//!
//! The task polls while there is work and for a little after, then arms the queue, polls once
//! more, and sleeps on the completion channel. It copies each message out of its slot and posts
//! the slot again before the message is handed out, so that a slow handler never holds one. When a
//! handler blocks, another task goes on with the lane (`delivery`).
//! Requests from other tasks that only this one may serve come as a [`Kick`].

mod delivery;
mod driver;
pub(crate) mod half_open;
mod last_poll;
pub(crate) mod outstanding;
mod registered_buffers;
pub(crate) mod set;
pub(crate) mod srq_replenish;
pub(crate) mod srq_watermark;

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rpc_core::peer_key::PeerKey;
use rpc_core::quota::Charge;
use rpc_core::transport::{CloseReason, Withheld};
use rpc_core::wire::HEADER_LEN;
use rustc_hash::FxHashMap;
use slab::Slab;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::connection::Connection;
use crate::fair::semaphore::FairSemaphore;
use crate::memory::{Access, Handout, PoolRules, RegionPool, SlotPool};
use crate::proto::flow::quota::{BASE, Full, Ledger, Shares};
use crate::proto::flow::window::Holding;
use crate::stats::activity::Tally;
use crate::stats::cancellations::Cancellations;
use crate::verbs::{
    Attachment, CompletionQueue, Device, SharedReceiveQueue, SharedReceiveQueueConfig, VerbsError,
};
use crate::worker::half_open::{OverShare, Unproven};
use crate::worker::outstanding::Leases;
use crate::worker::registered_buffers::offer_buffers;
use crate::worker::srq_replenish::Refill;
use crate::worker::srq_watermark::Pressure;
use crate::{RdmaConfig, RkeyScope};
use driver::Driver;
use last_poll::LastLook;

/// A lane that misses this part of its receive slots gets no new connections.
const WORN_PART: u32 = 10;

/// What those who come too late are told.
const DEAD: &str = "the RDMA lane has ended; see the log for the reason";

/// A lane, as long as somebody uses it.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) shared: Arc<LaneShared>,
}

/// What connections and the lane's task share.
pub(crate) struct LaneShared {
    pub(crate) config: RdmaConfig,
    /// Where the lane's task runs. Connections are closed from anywhere, a destructor included.
    pub(crate) runtime: Handle,
    pub(crate) attachment: Attachment,
    pub(crate) send_slots: Arc<SlotPool>,
    pub(crate) sources: Arc<RegionPool>,
    pub(crate) sinks: Arc<RegionPool>,
    /// The bytes that READs of all lanes of the device may have outstanding.
    pub(crate) reads: Arc<FairSemaphore>,
    /// Frames that were received into sinks, and are not dropped.
    pub(crate) leases: Arc<Leases>,
    pub(crate) cancellations: Arc<Cancellations>,
    /// Bytes of memory that messages are received into, whatever the number of connections.
    pub(crate) receive_bytes: usize,
    pub(crate) shares: Arc<Shares>,
    /// Places of clients that have proven nothing yet.
    pub(crate) unproven: Unproven,
    pub(crate) tally: Arc<Tally>,
    /// Whether a task looks for connections that have waited too long.
    pub(crate) is_watched: AtomicBool,
    table: Mutex<Table>,
    /// What waits for the lane's task; `None` when that has ended.
    kicks: Mutex<Option<Vec<Kick>>>,
    /// Whether there may be some, for a task that looks with every poll.
    is_kicked: AtomicBool,
    kicked: Notify,
    last_look: LastLook,
    /// Whether the turn has woken or spawned a task that may still wait for the lane's thread.
    has_woken: AtomicBool,
    /// Ends the lane's task, and is set when that has ended by itself.
    pub(crate) stop: CancellationToken,
}

/// The connections of a lane.
#[derive(Default)]
struct Table {
    by_tag: Slab<Option<Arc<Connection>>>,
    /// The numbers are our own device's, so that nobody chooses them to collide.
    tag_by_number: FxHashMap<u32, u32>,
    is_dead: bool,
    /// Why it was ended, if that is known.
    end_reason: Option<String>,
}

/// Something for the lane's task to do for a connection. By handle and not by tag: the connection
/// may have ended when its turn comes, and another may have its tag.
#[derive(Debug)]
pub(crate) enum Kick {
    /// Deliver what came before the handler was there.
    Open(Arc<Connection>),
    /// See whether the connection has ended.
    Check(Arc<Connection>),
    /// End the connection although its queue pair does not drain.
    End(Arc<Connection>),
    /// Tell the handler of a frame that will not come.
    Withheld(Arc<Connection>, [u8; HEADER_LEN], Withheld),
    /// Ask idle connections for the slots that they hold.
    Recall,
    /// The receive queue ran low.
    ReceiveLimit,
    /// End the task.
    Stop,
}

/// A place among a lane's connections; dropped unused, it is free again.
pub(crate) struct Place {
    lane: Arc<LaneShared>,
    pub(crate) tag: u32,
    is_used: bool,
}

/// What large frames need, and the lanes of a device share.
struct Large {
    sources: Arc<RegionPool>,
    sinks: Arc<RegionPool>,
    reads: Arc<FairSemaphore>,
}

impl Lane {
    /// Makes a lane on a device, and starts its task in the current tokio runtime. The scope of
    /// keys in `config` is what is used; [`RkeyScope::Auto`] has been decided by then.
    pub(crate) fn start(device: &Device, config: &RdmaConfig) -> Result<Self, VerbsError> {
        let group = Arc::default();
        let pool = |access, handout, bytes_max| {
            let rules = PoolRules { access, handout, bytes_max, wait_max: config.memory_timeout };
            RegionPool::with_rules(device, rules, &group)
        };
        let sources = pool(source_access(config), Handout::AsLeft, config.max_source_bytes);
        // What a READ leaves out that completes short must not be another connection's.
        let sink_handout = device.read_defect().map_or(Handout::AsLeft, |_| Handout::Erased);
        let sinks = pool(Access::Sink, sink_handout, config.max_sink_bytes);
        let max_read_bytes = config.max_read_bytes.max(config.max_read_len);
        let reads = FairSemaphore::new(max_read_bytes.into());
        Self::start_with(device, config, Large { sources, sinks, reads })
    }

    /// Makes another lane on the same device, which shares what large frames need.
    pub(crate) fn start_sibling(&self) -> Result<Self, VerbsError> {
        let LaneShared { attachment, config, sources, sinks, reads, .. } = &*self.shared;
        let (sources, sinks, reads) = (Arc::clone(sources), Arc::clone(sinks), Arc::clone(reads));
        Self::start_with(attachment.device(), config, Large { sources, sinks, reads })
    }

    fn start_with(
        device: &Device,
        config: &RdmaConfig,
        Large { sources, sinks, reads }: Large,
    ) -> Result<Self, VerbsError> {
        let slots = u32::from(config.receive_slots);
        let sends = config.max_connections.saturating_mul(config.completions_of_connection());
        let wanted = slots.saturating_add(sends);
        let capacity = wanted.min(device.attributes().completions_max);
        let completions = CompletionQueue::new(device, capacity)?;
        let receives = SharedReceiveQueue::new(
            &completions,
            &SharedReceiveQueueConfig {
                slot_count: config.receive_slots,
                slot_len: config.slot_len,
                tag: 0,
            },
        )?;
        let ledger = Ledger::new(slots, config.max_connections, config.max_credits);
        let shared = Arc::new(LaneShared {
            config: config.clone(),
            runtime: Handle::current(),
            attachment: receives.attachment(),
            send_slots: SlotPool::new(device, config.send_slots, config.slot_len as usize)?,
            sources,
            sinks,
            reads,
            leases: Leases::new(device.name(), config.lease_warn_after, Handle::current()),
            cancellations: Arc::default(),
            receive_bytes: receives.memory_bytes(),
            shares: Arc::new(Shares::new(ledger)),
            unproven: Unproven::new(),
            tally: Arc::default(),
            is_watched: AtomicBool::new(false),
            table: Mutex::default(),
            kicks: Mutex::new(Some(Vec::new())),
            is_kicked: AtomicBool::new(false),
            kicked: Notify::new(),
            last_look: LastLook::new(Instant::now()),
            has_woken: AtomicBool::new(false),
            stop: CancellationToken::new(),
        });
        let driver = Driver {
            shared: Arc::clone(&shared),
            completions,
            receives,
            refill: Refill::default(),
            pressure: Pressure::new(slots),
            batch: Vec::new(),
            corked: Vec::new(),
            held: Vec::new(),
            arrivals: VecDeque::new(),
            drained: Vec::new(),
            is_stopped: false,
        };
        tokio::spawn(Box::new(driver).run());
        offer_buffers(&shared);
        Ok(Self { shared })
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.shared.halt();
    }
}

/// What peers may do with the memory that large frames are sent from.
fn source_access(config: &RdmaConfig) -> Access {
    match config.rkey_scope {
        RkeyScope::Window => Access::Windowed,
        RkeyScope::Auto | RkeyScope::Region => Access::Source,
    }
}

impl LaneShared {
    fn table(&self) -> MutexGuard<'_, Table> {
        // Every change to the table is complete before anything that could panic.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place, and the receive slots that a connection has at least.
    ///
    /// # Errors
    ///
    /// In words, when there are no slots left to promise or the lane has ended.
    pub(crate) fn take_place(self: &Arc<Self>) -> Result<(Place, Holding), String> {
        if self.is_dead() {
            return Err(self.table().end_words());
        }
        // What has died since the lane's task looked must not be promised again.
        let missing = self.missing_slots();
        self.shares.change(|ledger| ledger.set_missing(missing));
        let holding = Holding::take(&self.shares);
        if self.shares.ledger().is_short() {
            self.kick(Kick::Recall);
        }
        let holding = holding.map_err(|Full { count, free }| {
            let (slots, count_max) = (self.config.receive_slots, self.config.max_connections);
            format!(
                "the lane is full: {count} connections of at most {count_max} \
                 (rdma.max_connections), and {free} of {slots} receive slots left to promise \
                 (rdma.receive_slots), of which a connection takes {BASE}"
            )
        })?;
        let key = self.table().by_tag.insert(None);
        // At most `max_connections` places are taken.
        let tag = u32::try_from(key).unwrap_or(u32::MAX);
        Ok((Place { lane: Arc::clone(self), tag, is_used: false }, holding))
    }

    /// Counts the place that the client at `peer` is about to take as one that it has not proven,
    /// until the charge is dropped.
    ///
    /// # Errors
    ///
    /// In words, when the client's address has its share of them.
    pub(crate) fn take_unproven(&self, peer: PeerKey) -> Result<Charge<PeerKey>, String> {
        let (taken, free) = self.shares.ledger().places();
        self.unproven.try_take(peer, taken.into(), free.into()).map_err(|OverShare { held }| {
            format!(
                "{held} connections of this address have not shown yet that their path works, \
                 which is its share of the {free} places that are left (rdma.max_connections)"
            )
        })
    }

    /// Puts a connection into its place, so that its messages and completions find it.
    ///
    /// # Errors
    ///
    /// In words, when the lane has ended: nobody would handle them.
    pub(crate) fn register(
        &self,
        mut place: Place,
        connection: &Arc<Connection>,
    ) -> Result<(), String> {
        {
            let mut table = self.table();
            if !table.is_dead {
                place.is_used = true;
                table.by_tag[place.tag as usize] = Some(Arc::clone(connection));
                for number in connection.numbers() {
                    table.tag_by_number.insert(number, place.tag);
                }
                return Ok(());
            }
        }
        // Here and not above: an unused place takes the lock to be free again.
        drop(place);
        Err(self.table().end_words())
    }

    fn remove(&self, tag: u32) {
        let mut table = self.table();
        let Some(Some(connection)) = table.by_tag.try_remove(tag as usize) else { return };
        for number in connection.numbers() {
            // It may be another's by now, which keeps it.
            if table.tag_by_number.get(&number) == Some(&tag) {
                table.tag_by_number.remove(&number);
            }
        }
        drop(table);
        // May be the last handle to the connection, and with it to what takes this lock.
        drop(connection);
    }

    /// Ends the connections that are concerned, each for `reason`, and gives their number.
    pub(crate) fn end_connections(
        &self,
        reason: &str,
        is_concerned: impl Fn(&Connection) -> bool,
    ) -> usize {
        let mut connections = self.connections();
        connections.retain(|connection| is_concerned(connection));
        for connection in &connections {
            connection.fail(CloseReason::Failed(reason.to_owned()));
        }
        connections.len()
    }

    /// Ends the lane and all its connections for `reason`, without waiting for a device that may
    /// be gone, and gives their number.
    pub(crate) fn lose(&self, reason: &str) -> usize {
        {
            let mut table = self.table();
            table.is_dead = true;
            table.end_reason.get_or_insert_with(|| reason.to_owned());
        }
        let count = self.end_connections(reason, |_| true);
        self.halt();
        count
    }

    /// Ends the lane's task.
    fn halt(&self) {
        self.stop.cancel();
        self.kick(Kick::Stop);
    }

    /// Whether its task has ended.
    pub(crate) fn is_dead(&self) -> bool {
        self.table().is_dead
    }

    /// How many connections the lane has.
    pub(crate) fn connection_count(&self) -> usize {
        self.table().by_tag.len()
    }

    /// Bytes registered for large frames, in use or not, by all lanes of the device.
    pub(crate) fn registered_bytes(&self) -> u64 {
        self.sources.bytes().registered + self.sinks.bytes().registered
    }

    /// What of those lies in explicit huge pages.
    pub(crate) fn huge_page_bytes(&self) -> u64 {
        self.sources.bytes().in_huge_pages + self.sinks.bytes().in_huge_pages
    }

    /// How many send slots are not free.
    pub(crate) fn send_slots_in_use(&self) -> usize {
        (self.send_slots.count() as usize).saturating_sub(self.send_slots.available())
    }

    /// Tells the connection of a queue pair that the device took the last receive for that; for
    /// the task that takes the device's asynchronous events.
    pub(crate) fn handle_last_receive(&self, number: u32) {
        if let Some(connection) = self.by_number(number) {
            connection.handle_last_receive(number);
        }
    }

    /// Receive slots that may be missing, because queue pairs died that had taken them.
    pub(crate) fn missing_slots(&self) -> u32 {
        self.attachment.missing_receives()
    }

    /// Whether so many slots are missing that new connections should have another lane.
    pub(crate) fn is_worn(&self) -> bool {
        let missing = self.missing_slots();
        missing > 0 && missing.saturating_mul(WORN_PART) >= self.config.receive_slots.into()
    }

    /// Its connections.
    pub(crate) fn connections(&self) -> Vec<Arc<Connection>> {
        self.table().connections()
    }

    /// Takes note that the device saw fewer receives posted than the limit that the lane set: the
    /// lane is late, and peers may soon have to wait and try again. For whoever takes the device's
    /// asynchronous events; those of a shared receive queue do not say of which lane.
    pub(crate) fn handle_receive_limit(&self) {
        self.tally.receive_limit_events.add(1);
        self.kick(Kick::ReceiveLimit);
    }

    fn by_tag(&self, tag: u32) -> Option<Arc<Connection>> {
        self.table().by_tag.get(tag as usize)?.clone()
    }

    fn by_number(&self, number: u32) -> Option<Arc<Connection>> {
        let table = self.table();
        let tag = *table.tag_by_number.get(&number)?;
        table.by_tag.get(tag as usize)?.clone()
    }

    /// Asks the lane's task for something. When that has ended, every connection has too, and
    /// there is nothing to do.
    pub(crate) fn kick(&self, kick: Kick) {
        // The temporary lock is released before a kick that came too late is dropped, which may
        // be a connection's end.
        let late = match &mut *self.kicks() {
            Some(kicks) => {
                kicks.push(kick);
                self.is_kicked.store(true, Ordering::Release);
                None
            }
            None => Some(kick),
        };
        drop(late);
        self.kicked.notify_one();
    }

    /// Records that the lane's task may have woken or spawned another, outside of a delivery. That
    /// one would wait where no other thread finds it while a handler of the same turn blocks.
    pub(crate) fn note_woken(&self) {
        self.has_woken.store(true, Ordering::Relaxed);
    }

    fn has_woken(&self) -> bool {
        self.has_woken.load(Ordering::Relaxed)
    }

    /// The lane's task has let others run.
    fn forget_woken(&self) {
        if self.has_woken() {
            self.has_woken.store(false, Ordering::Relaxed);
        }
    }

    fn kicks(&self) -> MutexGuard<'_, Option<Vec<Kick>>> {
        // A list is whole between any two statements.
        self.kicks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_kicks(&self) -> Vec<Kick> {
        self.kicks().as_mut().map(std::mem::take).unwrap_or_default()
    }
}

impl Table {
    fn connections(&self) -> Vec<Arc<Connection>> {
        self.by_tag.iter().filter_map(|(_, connection)| connection.clone()).collect()
    }

    fn end_words(&self) -> String {
        self.end_reason.clone().unwrap_or_else(|| DEAD.to_owned())
    }
}
impl Drop for Place {
    fn drop(&mut self) {
        if !self.is_used {
            self.lane.remove(self.tag);
        }
    }
}

impl fmt::Debug for LaneShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LaneShared")
            .field("device", &self.attachment.device().name())
            .field("connections", &self.connection_count())
            .field("receive_bytes", &self.receive_bytes)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
