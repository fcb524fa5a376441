//! The state that a worker's task shares with its connections.
//!
//! Lock order: `table`, `commands` and the lock of `spares` are leaves. None is held while a
//! connection's lock is taken or a handle to a connection is dropped, since the last handle takes
//! `table` again.
//!
//! # Silent peers and late workers
//!
//! If nothing arrives from a peer, the peer may be silent, or this side may not have read its
//! messages: user code can block all threads of a runtime. So the worker records when it has read
//! everything and when it goes to sleep, at the cost of reading the clock once per turn. From that
//! record another task can tell, without touching the queue, that something may lie unread. The
//! record is the worker's, not a connection's.

pub(crate) mod outstanding;
mod refill;
pub(crate) mod spares;
pub(crate) mod timers;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use rpc_core::quota::Charge;
use rpc_core::quota::PeerKey;
use rpc_core::transport::{CloseReason, Withheld};
use rpc_core::wire::HEADER_LEN;
use rustc_hash::FxHashMap;
use slab::Slab;
use tokio::runtime::{Handle, Id};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::RdmaConfig;
use crate::lane::outstanding::OutstandingBuffers;
use crate::lane::spares::SpareStore;
use crate::lane::timers::Timers;
use crate::memory::{RegionPool, SlotPool};
use crate::proto::flow::window::HeldQuota;
use crate::quota::half_open::{HalfOpen, OverShare};
use crate::quota::semaphore::FairSemaphore;
use crate::quota::slots::{BASE, Full, SharedQuota};
use crate::stats::lane::{ActivityCounters, Cancellations};
use crate::verbs::{Attachment, RAISE_LOCK_LIMIT};

/// A worker that misses this part of its receive slots gets no new connections.
const WORN_PART: u32 = 10;

/// The reason given to connections that come after the worker's end.
pub(crate) const DEAD: &str = "the RDMA lane has ended with its task's tokio runtime";

/// The state that connections and the worker's task share; `C` is a connection.
pub(crate) struct WorkerShared<C> {
    /// Its number among the workers of the device, the least that was free.
    pub(crate) number: usize,
    pub(crate) config: RdmaConfig,
    /// Those of all lanes of the device.
    pub(crate) sizes: Arc<LaneSizes>,
    /// Runtime of the worker's task. Connections can be closed from any thread, even in a
    /// destructor.
    pub(crate) runtime: Handle,
    /// The core that the runtime is, whose connections it takes first.
    pub(crate) core: Option<Id>,
    pub(crate) attachment: Attachment,
    pub(crate) send_slots: Arc<SlotPool>,
    /// [`CONTROL_SLOTS`](crate::proto::connection::CONTROL_SLOTS) for each connection.
    pub(crate) control_slots: Arc<SlotPool>,
    pub(crate) sources: Arc<RegionPool>,
    pub(crate) sinks: Arc<RegionPool>,
    /// The bytes that READs of all workers of the device may have outstanding.
    pub(crate) reads: Arc<FairSemaphore>,
    /// Frames that were received into sinks, and are not dropped.
    pub(crate) leases: Arc<OutstandingBuffers>,
    pub(crate) cancellations: Arc<Cancellations>,
    /// Bytes of memory that messages are received into, whatever the number of connections.
    pub(crate) receive_bytes: usize,
    pub(crate) shares: Arc<SharedQuota>,
    /// Queue pairs that are made ahead.
    pub(crate) spares: SpareStore,
    /// Places of clients that have proven nothing yet.
    pub(crate) unproven: HalfOpen,
    pub(crate) activity: Arc<ActivityCounters>,
    /// The deadlines of its connections.
    pub(crate) timers: Arc<Timers>,
    pub(crate) table: Mutex<Table<C>>,
    /// Commands for the worker's task. `None` after it has ended.
    pub(crate) commands: Mutex<Option<Vec<Command<C>>>>,
    /// Set if there may be commands, for a task that checks with every poll.
    pub(crate) has_commands: AtomicBool,
    pub(crate) command_sent: Notify,
    /// Set while the task has yet to ask idle connections for slots.
    pub(crate) is_reclaiming: AtomicBool,
    pub(crate) last_poll: LastPoll,
    /// Set if the turn has woken or spawned a task that may still wait for the worker's thread.
    pub(crate) has_woken: AtomicBool,
    /// Ends the worker's task, and is set when that has ended by itself.
    pub(crate) stop: CancellationToken,
}

/// The sizes of a device's lanes, and how many there may be.
#[derive(Debug)]
pub(crate) struct LaneSizes {
    /// The settings of a lane, cut to what the process may lock.
    pub(crate) full: RdmaConfig,
    /// The same with lean connections: for those of a device that has many, and for the lanes that
    /// are made for them.
    pub(crate) lean: RdmaConfig,
    /// The limit on locked memory that the settings were cut to.
    pub(crate) lock_limit: Option<u64>,
    /// Workers that the device may have, by the memory that the process may lock.
    pub(crate) workers_max: usize,
}

/// A connection in its worker's table.
struct Member<C> {
    connection: Arc<C>,
    /// The numbers of its queue pairs.
    numbers: Vec<u32>,
}

/// The connections of a worker.
pub(crate) struct Table<C> {
    by_tag: Slab<Option<Member<C>>>,
    /// The numbers are our own device's, so that no peer can choose them to collide.
    tag_by_number: FxHashMap<u32, u32>,
    pub(crate) is_dead: bool,
    /// Why it was ended, if that is known.
    end_reason: Option<String>,
}

/// Something for the worker's task to do for a connection. By handle and not by tag: the connection
/// may have ended when its turn comes, and another may have its tag.
#[derive(Debug)]
pub(crate) enum Command<C> {
    /// Deliver what came before the handler was there.
    Open(Arc<C>),
    /// See whether the connection has ended.
    Check(Arc<C>),
    /// End the connection although its queue pair does not drain.
    End(Arc<C>),
    /// Tell the handler of the end, although the queue pairs are not halted.
    TellEnd(Arc<C>),
    /// Tell the handler of a frame that will not come.
    Withheld(Arc<C>, [u8; HEADER_LEN], Withheld),
    /// Ask idle connections for the slots that they hold.
    Reclaim,
    /// The receive queue ran low.
    ReceiveLimit,
    /// End the task.
    Stop,
}

/// A place among a worker's connections; dropped unused, it is free again.
pub(crate) struct Place<C> {
    worker: Arc<WorkerShared<C>>,
    pub(crate) tag: u32,
    is_used: bool,
}

/// The reason that a lane is smaller than its settings.
fn describe_lock_limit(limit: Option<u64>) -> String {
    let describe = |limit| {
        format!("; the lane is sized to RLIMIT_MEMLOCK, which is {limit} bytes: {RAISE_LOCK_LIMIT}")
    };
    limit.map(describe).unwrap_or_default()
}

impl<C> WorkerShared<C> {
    pub(crate) fn table(&self) -> MutexGuard<'_, Table<C>> {
        self.table.lock()
    }

    /// Takes a place, and the receive slots that a connection has at least.
    ///
    /// # Errors
    ///
    /// Returns a description if there are no slots left to promise, or the worker has ended.
    pub(crate) fn take_place(self: &Arc<Self>) -> Result<(Place<C>, HeldQuota), String> {
        if self.is_dead() {
            return Err(self.table().end_words());
        }
        // What has died since the worker's task looked must not be promised again.
        let missing = self.missing_slots();
        self.shares.change(|quota| quota.set_missing(missing));
        let holding = HeldQuota::take(&self.shares);
        // Once for all that come before the task has asked: it takes the lock of each connection.
        if self.shares.quota().is_short() && !self.is_reclaiming.swap(true, Ordering::AcqRel) {
            self.send(Command::Reclaim);
        }
        let holding = holding.map_err(|Full { count, free }| {
            let (slots, count_max) = (self.config.receive_slots, self.config.max_connections);
            format!(
                "the lane is full: {count} connections of at most {count_max} \
                 (rdma.max_connections), and {free} of {slots} receive slots free to promise \
                 (rdma.receive_slots); a connection takes {BASE}{}",
                describe_lock_limit(self.sizes.lock_limit)
            )
        })?;
        let key = self.table().by_tag.insert(None);
        // At most `max_connections` places are taken.
        let tag = u32::try_from(key).unwrap_or(u32::MAX);
        Ok((Place { worker: Arc::clone(self), tag, is_used: false }, holding))
    }

    /// Counts the place that the client at `peer` is about to take as one that it has not proven,
    /// until the charge is dropped.
    ///
    /// # Errors
    ///
    /// Returns a description if the client's address has its share of them.
    pub(crate) fn take_unproven(&self, peer: PeerKey) -> Result<Charge<PeerKey>, String> {
        let (taken, free) = self.shares.quota().places();
        self.unproven.try_take(peer, taken.into(), free.into()).map_err(|OverShare { held }| {
            format!(
                "{held} connections from this address are unproven, which is its share of the \
                 {free} free places (rdma.max_connections)"
            )
        })
    }

    /// Puts a connection with queue pairs of these numbers into its place, so that its messages and
    /// completions find it.
    ///
    /// # Errors
    ///
    /// Returns a description if the worker has ended, since no task would handle them.
    pub(crate) fn register(
        &self,
        mut place: Place<C>,
        connection: &Arc<C>,
        numbers: Vec<u32>,
    ) -> Result<(), String> {
        {
            let mut table = self.table();
            if !table.is_dead {
                place.is_used = true;
                let tags = numbers.iter().map(|number| (*number, place.tag));
                table.tag_by_number.extend(tags);
                let connection = Arc::clone(connection);
                table.by_tag[place.tag as usize] = Some(Member { connection, numbers });
                return Ok(());
            }
        }
        // Here and not above: an unused place takes the lock to be free again.
        drop(place);
        Err(self.table().end_words())
    }

    pub(crate) fn remove(&self, tag: u32) {
        let mut table = self.table();
        let Some(Some(member)) = table.by_tag.try_remove(tag as usize) else { return };
        for number in &member.numbers {
            // It may be another's by now, which keeps it.
            if table.tag_by_number.get(number) == Some(&tag) {
                table.tag_by_number.remove(number);
            }
        }
        drop(table);
        // May be the last handle to the connection, and with it to what takes this lock.
        drop(member);
    }

    /// Records that the worker has ended, and why.
    pub(crate) fn note_end(&self, reason: &CloseReason) {
        let mut table = self.table();
        table.is_dead = true;
        if let CloseReason::Failed(reason) = reason {
            table.end_reason.get_or_insert_with(|| reason.to_string());
        }
    }

    /// Ends the worker's task.
    pub(crate) fn halt(&self) {
        self.stop.cancel();
        self.send(Command::Stop);
    }

    /// Returns true if the worker's task has ended.
    pub(crate) fn is_dead(&self) -> bool {
        self.table().is_dead
    }

    /// Returns true if there is a place for another connection.
    pub(crate) fn has_room(&self) -> bool {
        self.shares.quota().has_room()
    }

    /// The settings of a connection that is being made.
    pub(crate) fn config_of(&self, is_lean: bool) -> &RdmaConfig {
        if is_lean { &self.sizes.lean } else { &self.config }
    }

    /// Returns the number of queue pairs: those of its connections, and those made ahead.
    pub(crate) fn queue_pair_count(&self) -> usize {
        let connected = self.table().tag_by_number.len();
        connected + self.spares.queue_pair_count()
    }

    /// Returns the number of connections of the worker.
    pub(crate) fn connection_count(&self) -> usize {
        self.table().by_tag.len()
    }

    /// Bytes registered for large frames, in use or not, by all workers of the device.
    pub(crate) fn registered_bytes(&self) -> u64 {
        self.sources.bytes().registered + self.sinks.bytes().registered
    }

    /// Returns the part of those bytes that lies in explicit huge pages.
    pub(crate) fn huge_page_bytes(&self) -> u64 {
        self.sources.bytes().in_huge_pages + self.sinks.bytes().in_huge_pages
    }

    /// Returns the number of send slots in use.
    pub(crate) fn send_slots_in_use(&self) -> usize {
        (self.send_slots.count() as usize).saturating_sub(self.send_slots.available())
    }

    /// Receive slots that may be missing, because queue pairs died that had taken them.
    pub(crate) fn missing_slots(&self) -> u32 {
        self.attachment.missing_receives()
    }

    /// Returns true if so many slots are missing that new connections should use another worker.
    pub(crate) fn is_worn(&self) -> bool {
        let missing = self.missing_slots();
        missing > 0 && missing.saturating_mul(WORN_PART) >= self.config.receive_slots.into()
    }

    /// Its connections.
    pub(crate) fn connections(&self) -> Vec<Arc<C>> {
        self.table().connections()
    }

    /// Records that the device saw fewer receives posted than the limit that the worker set: the
    /// worker is late, and peers may soon have to wait and try again. The device's task calls it
    /// for its asynchronous events; those of a shared receive queue do not say of which worker.
    pub(crate) fn handle_receive_limit(&self) {
        self.activity.receive_limit_events.add(1);
        self.send(Command::ReceiveLimit);
    }

    pub(crate) fn by_tag(&self, tag: u32) -> Option<Arc<C>> {
        self.table().connection(tag)
    }

    pub(crate) fn by_number(&self, number: u32) -> Option<Arc<C>> {
        let table = self.table();
        let tag = *table.tag_by_number.get(&number)?;
        table.connection(tag)
    }

    /// Asks the worker's task for something. When that has ended, every connection has too, and
    /// there is nothing to do.
    pub(crate) fn send(&self, command: Command<C>) {
        // The temporary lock is released before a command that came too late is dropped, which may
        // be a connection's end.
        let late = match &mut *self.commands() {
            Some(commands) => {
                commands.push(command);
                self.has_commands.store(true, Ordering::Release);
                None
            }
            None => Some(command),
        };
        drop(late);
        self.command_sent.notify_one();
    }

    /// Records that the worker's task may have woken or spawned another, outside of a delivery.
    /// That one would wait where no other thread finds it while a handler of the same turn blocks.
    pub(crate) fn note_woken(&self) {
        self.has_woken.store(true, Ordering::Relaxed);
    }

    pub(crate) fn has_woken(&self) -> bool {
        self.has_woken.load(Ordering::Relaxed)
    }

    /// The worker's task has let others run.
    pub(crate) fn forget_woken(&self) {
        if self.has_woken() {
            self.has_woken.store(false, Ordering::Relaxed);
        }
    }

    pub(crate) fn commands(&self) -> MutexGuard<'_, Option<Vec<Command<C>>>> {
        self.commands.lock()
    }

    pub(crate) fn take_commands(&self) -> Vec<Command<C>> {
        self.commands().as_mut().map(std::mem::take).unwrap_or_default()
    }
}

impl<C> Default for Table<C> {
    fn default() -> Self {
        Self {
            by_tag: Slab::new(),
            tag_by_number: FxHashMap::default(),
            is_dead: false,
            end_reason: None,
        }
    }
}

impl<C> Table<C> {
    pub(crate) fn connections(&self) -> Vec<Arc<C>> {
        let members = self.by_tag.iter().filter_map(|(_, member)| member.as_ref());
        members.map(|member| Arc::clone(&member.connection)).collect()
    }

    fn connection(&self, tag: u32) -> Option<Arc<C>> {
        let member = self.by_tag.get(tag as usize)?.as_ref()?;
        Some(Arc::clone(&member.connection))
    }

    fn end_words(&self) -> String {
        self.end_reason.clone().unwrap_or_else(|| DEAD.to_owned())
    }
}

impl<C> Drop for Place<C> {
    fn drop(&mut self) {
        if !self.is_used {
            self.worker.remove(self.tag);
        }
    }
}

impl<C> fmt::Debug for WorkerShared<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LaneShared")
            .field("device", &self.attachment.device().name())
            .field("connections", &self.connection_count())
            .field("receive_bytes", &self.receive_bytes)
            .finish_non_exhaustive()
    }
}

impl<C> WorkerShared<C> {
    /// Returns true if something may have arrived for the worker's connections that it has not
    /// read: it sleeps while an event waits for it, or it is late. Makes at most one system call.
    pub(crate) fn has_unread(&self) -> bool {
        let is_late = self.last_poll.is_late(Instant::now());
        is_late.unwrap_or_else(|| self.attachment.has_event())
    }

    /// Returns true if the worker sleeps and has done everything that it was asked for. For tests
    /// on one thread.
    #[cfg(test)]
    pub(crate) fn is_asleep(&self) -> bool {
        let has_commands = self.has_commands.load(Ordering::Relaxed);
        !has_commands && self.last_poll.is_late(Instant::now()).is_none()
    }
}

/// A worker that is awake and has not read for so long is late, and what peers said may lie unread.
///
/// Longer than the 20 to 40 ms after which another task goes on with a worker that a handler
/// blocks, so that a worker which is handed over all the time still finds peers that are silent;
/// and far shorter than the default `keepalive.timeout`.
const LATE_AFTER: Duration = Duration::from_millis(100);

/// Value in place of the time of the last poll while the worker sleeps.
const ASLEEP: u64 = u64::MAX;

/// The time at which the worker last read everything. Only the worker's task writes it.
#[derive(Debug)]
pub(crate) struct LastPoll {
    start: Instant,
    /// Microseconds since `start`, or [`ASLEEP`].
    at: AtomicU64,
}

impl LastPoll {
    /// A worker whose task has not begun is awake, and becomes late.
    pub(crate) fn new(now: Instant) -> Self {
        Self { start: now, at: AtomicU64::new(0) }
    }

    /// Records that everything was read that had come by `now`.
    pub(crate) fn handle_poll(&self, now: Instant) {
        let micros = now.saturating_duration_since(self.start).as_micros();
        // 500,000 years.
        self.at.store(u64::try_from(micros).unwrap_or(ASLEEP - 1), Ordering::Relaxed);
    }

    /// Records that the worker has read everything, and that an event wakes it.
    pub(crate) fn handle_sleep(&self) {
        self.at.store(ASLEEP, Ordering::Relaxed);
    }

    /// Returns true if the worker should have read by now. `None` while it sleeps.
    pub(crate) fn is_late(&self, now: Instant) -> Option<bool> {
        let micros = self.at.load(Ordering::Relaxed);
        let at = self.start.checked_add(Duration::from_micros(micros));
        let age = at.map(|at| now.saturating_duration_since(at)).unwrap_or_default();
        (micros != ASLEEP).then_some(age >= LATE_AFTER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_that_is_awake_is_late_when_it_has_not_read_for_long() {
        let start = Instant::now();
        let last_poll = LastPoll::new(start);
        assert_eq!(last_poll.is_late(start), Some(false));
        assert_eq!(last_poll.is_late(start + LATE_AFTER), Some(true), "it has not begun");
        let now = start + Duration::from_secs(1000);
        last_poll.handle_poll(now);
        assert_eq!(last_poll.is_late(now + LATE_AFTER / 2), Some(false));
        assert_eq!(last_poll.is_late(now + LATE_AFTER), Some(true));
        // Another thread may have read the clock before the worker did.
        assert_eq!(last_poll.is_late(start), Some(false));
    }

    #[test]
    fn a_worker_that_sleeps_is_not_late_however_long() {
        let start = Instant::now();
        let last_poll = LastPoll::new(start);
        last_poll.handle_sleep();
        assert_eq!(last_poll.is_late(start + Duration::from_secs(1000)), None);
        last_poll.handle_poll(start);
        assert_eq!(last_poll.is_late(start + LATE_AFTER), Some(true));
    }
}
