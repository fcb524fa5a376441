//! Everything that is on a simulated network, behind one lock.
//!
//! Tables are ordered maps and their keys are counted up and never used again, so that the same
//! steps always give the same run. Keys of memory are such a number with a random low byte.

use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use parking_lot::Mutex;

use super::agenda::{Agenda, Event, Packet};
use super::lag_port::LagPort;
use super::numbers::{Nanos, nanos};
use super::queue_pair::QueuePairState;
use crate::AsyncEventKind;
use crate::sim::SimVerb;
use crate::sim::counters::{SimCensus, SimCounters};
use crate::sim::device_config::{SimDeviceConfig, SimQueueMemory};
use crate::sim::faults::SimFaults;
use crate::sim::hold::Gate;
use crate::sim::port::SimQuery;
use crate::sim::reach::Paths;
use crate::sim::state::memory::{RegionState, SpanLedger, WindowState};
use crate::sim::state::queues::{CompletionQueueState, ReceiveQueueState};
use crate::sim::violation::SimViolation;
use crate::sys::provider::{
    AsyncEvent, LockedMemory, PartialPost, RawCompletion, RawSend, VerbsError,
};

/// Bits of a traffic class that are not its DSCP.
const ECN_BITS: u32 = 2;

/// One-way latency of a switched network within a rack.
const LATENCY: RangeInclusive<Duration> = Duration::from_micros(2)..=Duration::from_micros(20);

#[derive(Debug)]
pub(crate) struct NetworkState {
    pub(crate) now: Nanos,
    pub(crate) agenda: Agenda,
    pub(crate) faults: SimFaults,
    pub(crate) latency: RangeInclusive<Duration>,
    pub(crate) paths: Paths,
    pub(crate) counters: SimCounters,
    pub(crate) devices: Vec<DeviceState>,
    pub(crate) contexts: BTreeMap<u32, ContextState>,
    pub(crate) regions: BTreeMap<u32, RegionState>,
    pub(crate) windows: BTreeMap<u32, WindowState>,
    pub(crate) completion_queues: BTreeMap<u32, CompletionQueueState>,
    pub(crate) receive_queues: BTreeMap<u32, ReceiveQueueState>,
    pub(crate) queue_pairs: BTreeMap<u32, QueuePairState>,
    pub(crate) ledger: SpanLedger,
    rng: fastrand::Rng,
    last_id: u32,
    waiting: BTreeMap<u32, Waiting>,
    wakes: Vec<Waker>,
    violations: Vec<SimViolation>,
    reported: usize,
    /// Number of violations that a test has read.
    read: usize,
}

/// The record of a device that a test plays, and what it refuses. Other devices leave it empty.
#[derive(Debug, Default)]
pub(crate) struct Script {
    /// Sends that were accepted, each with the number of its queue pair.
    pub(crate) sends: Vec<(u32, RawSend)>,
    pub(crate) send_calls: usize,
    pub(crate) receive_calls: usize,
    /// The next post of sends ends like this.
    pub(crate) refused_sends: Option<PartialPost>,
    /// Number of posts of receives that end like this.
    pub(crate) refused_receives: Option<(usize, PartialPost)>,
    /// Completions that come just before their queue is armed the next time.
    pub(crate) when_armed: Vec<RawCompletion>,
    /// Completions make no event.
    pub(crate) is_silent: bool,
    /// Completions of no queue pair fill the room that a poll has left.
    pub(crate) flood: Option<RawCompletion>,
    pub(crate) openings: usize,
    pub(crate) registrations: u32,
    /// Queue pairs made so far: the number of the last.
    pub(crate) queue_pairs: u32,
    pub(crate) connects: usize,
    pub(crate) halts: usize,
    pub(crate) destroyed: usize,
    /// Windows that there were when queue pairs were destroyed, in all.
    pub(crate) windows_at_destruction: usize,
}

/// A device, open or not.
#[derive(Debug)]
pub(crate) struct DeviceState {
    pub(crate) config: SimDeviceConfig,
    pub(crate) is_link_up: bool,
    /// The LAG ports of each port.
    pub(crate) lag_ports: Vec<Vec<LagPort>>,
    pub(crate) is_lost: bool,
    /// Error numbers of the queries that fail.
    pub(crate) failing_queries: BTreeMap<SimQuery, i32>,
    /// Number of destructions of queue pairs that will fail.
    pub(crate) failing_destructions: u32,
    /// Delay of the answers to READs, beyond the network's latency.
    pub(crate) read_delay: Nanos,
    /// Gate of registrations.
    pub(crate) gate: Arc<Gate>,
    /// Time that commands of the firmware take.
    pub(crate) command_delays: BTreeMap<SimVerb, Duration>,
    /// Gate of all its commands.
    pub(crate) firmware: Arc<Gate>,
    /// Held by the command that the firmware carries out, where that takes time.
    pub(crate) firmware_turn: Arc<Mutex<()>>,
    /// Commands that take time and wait or are carried out, and the most of them at once.
    pub(crate) commands_now: usize,
    #[cfg_attr(not(test), allow(dead_code))]
    pub(crate) commands_at_once: usize,
    /// Requests wait until a test of this crate completes them.
    pub(crate) is_scripted: bool,
    pub(crate) script: Script,
}

/// An opening of a device.
#[derive(Debug)]
pub(crate) struct ContextState {
    pub(crate) device: usize,
    /// Of a device that was lost since; it stays so when the device is back.
    pub(crate) is_dead: bool,
    pub(crate) events: VecDeque<AsyncEvent>,
    /// Number of queue pairs that were created, which take LAG ports in turn.
    pub(crate) queue_pairs_made: usize,
}

/// A task that waits, and when it looks again by itself.
#[derive(Debug)]
struct Waiting {
    waker: Waker,
    until: Option<Nanos>,
}

impl NetworkState {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            now: 0,
            agenda: Agenda::default(),
            faults: SimFaults::default(),
            latency: LATENCY,
            paths: Paths::default(),
            counters: SimCounters::default(),
            devices: Vec::new(),
            contexts: BTreeMap::new(),
            regions: BTreeMap::new(),
            windows: BTreeMap::new(),
            completion_queues: BTreeMap::new(),
            receive_queues: BTreeMap::new(),
            queue_pairs: BTreeMap::new(),
            ledger: SpanLedger::default(),
            rng: fastrand::Rng::with_seed(seed),
            last_id: 0,
            waiting: BTreeMap::new(),
            wakes: Vec::new(),
            violations: Vec::new(),
            reported: 0,
            read: 0,
        }
    }

    /// Makes everything happen that is due, each thing at its own time.
    pub(crate) fn advance(&mut self, now: Nanos) {
        let now = now.max(self.now);
        while let Some((at, event)) = self.agenda.take_due(now) {
            self.now = at.max(self.now);
            match event {
                Event::Arrive(packet) => self.arrive(packet),
                Event::Answer(packet, answer) => self.answer(packet, answer),
                Event::Timeout { queue_pair } => self.time_out(queue_pair),
                Event::Resume { queue_pair, attempt } => self.resume(queue_pair, attempt),
                Event::Flush { queue_pair } => self.flush(queue_pair),
                Event::LastReceive { queue_pair } => self.end_receives(queue_pair),
                Event::MoveLagPorts { device } => self.move_lag_ports(device),
                Event::LinkUp { device } => self.raise_link(device),
                Event::Notify { completion_queue } => self.notify_late(completion_queue),
            }
        }
        self.now = now;
    }

    /// A number for a new object; 24 bits, so that it fits a key.
    pub(crate) fn next_id(&mut self) -> u32 {
        self.last_id += 1;
        assert!(self.last_id < 1 << 24, "a simulated network had 16 million objects");
        self.last_id
    }

    /// A new key for an object.
    pub(crate) fn next_key(&mut self, id: u32) -> u32 {
        id << 8 | u32::from(self.rng.u8(..))
    }

    /// Returns true if a fault of this probability happens now.
    pub(crate) fn roll(&mut self, likelihood: f64) -> bool {
        likelihood > 0.0 && self.rng.f64() < likelihood
    }

    /// A number below `end`, or 0.
    pub(crate) fn pick(&mut self, end: usize) -> usize {
        if end == 0 { 0 } else { self.rng.usize(..end) }
    }

    /// Returns the arrival time of a message that is sent now.
    pub(crate) fn after_latency(&mut self) -> Nanos {
        let (from, to) = (nanos(*self.latency.start()), nanos(*self.latency.end()));
        self.now + self.rng.u64(from..=to.max(from))
    }

    /// Returns the arrival time of a message that is held back now.
    pub(crate) fn after_delay(&mut self, max: Duration) -> Nanos {
        self.now + self.rng.u64(0..=nanos(max))
    }

    /// Returns true if the device's link carries packets.
    pub(crate) fn carries(&self, device: usize) -> bool {
        let device = &self.devices[device];
        device.is_link_up && !device.is_lost
    }

    /// Counts a packet that is sent.
    pub(crate) fn count_sent(&mut self, packet: Packet) {
        *self.counters.sent_by_class.entry(packet.traffic_class).or_default() += 1;
    }

    /// Returns true if a packet gets lost.
    pub(crate) fn loses(&mut self, packet: Packet) -> bool {
        let class = packet.traffic_class;
        let is_lossy = class >> ECN_BITS != self.faults.lossless_class >> ECN_BITS;
        let is_lost = if self.is_dark(packet.lag_port) {
            self.counters.lost_by_lag_port += 1;
            true
        } else if is_lossy && self.roll(self.faults.lossy_class) {
            *self.counters.lost_by_class.entry(class).or_default() += 1;
            true
        } else {
            self.roll(self.faults.packet_loss)
        };
        self.counters.lost += u64::from(is_lost);
        is_lost
    }

    pub(crate) fn report(&mut self, violation: SimViolation) {
        self.violations.push(violation);
    }

    /// Returns all violations, for a test to read.
    pub(crate) fn violations(&mut self) -> Vec<SimViolation> {
        self.read = self.violations.len();
        self.violations.clone()
    }

    /// Returns the violations that no test has read, once.
    pub(crate) fn take_unread(&mut self) -> Vec<SimViolation> {
        let read = std::mem::replace(&mut self.read, self.violations.len());
        self.violations.get(read..).unwrap_or_default().to_vec()
    }

    /// The first violation since the last time.
    pub(crate) fn take_new_violation(&mut self) -> Option<SimViolation> {
        let new = self.violations.get(self.reported).cloned();
        self.reported = self.violations.len();
        new
    }

    /// Tells one opening of a device what happened.
    pub(crate) fn raise(&mut self, context: u32, event: AsyncEvent) {
        if let Some(state) = self.contexts.get_mut(&context) {
            state.events.push_back(event);
            self.wake(context);
        }
    }

    /// Tells one opening of a device what happened to a queue pair of its own.
    pub(crate) fn raise_for(&mut self, queue_pair: u32, kind: AsyncEventKind) {
        if let Some(state) = self.queue_pairs.get(&queue_pair) {
            let (context, number) = (state.context, state.number);
            self.raise(context, AsyncEvent { kind, port: None, queue_pair_number: Some(number) });
        }
    }

    /// Tells all openings of a device what happened to it.
    pub(crate) fn raise_for_all(&mut self, device: usize, kind: AsyncEventKind) {
        self.raise_in_all(device, AsyncEvent { kind, port: None, queue_pair_number: None });
    }

    /// Takes the link of a device down, unless it is.
    pub(crate) fn drop_link(&mut self, device: usize) {
        if std::mem::take(&mut self.devices[device].is_link_up) {
            self.raise_for_ports(device, AsyncEventKind::PortError);
        }
    }

    /// Brings the link of a device up, unless it is, and its LAG ports.
    pub(crate) fn raise_link(&mut self, device: usize) {
        self.restore_lag_ports(device);
        if !std::mem::replace(&mut self.devices[device].is_link_up, true) {
            self.raise_for_ports(device, AsyncEventKind::PortActive);
        }
    }

    /// Tells all openings of a device what happened to each of its ports.
    pub(crate) fn raise_for_ports(&mut self, device: usize, kind: AsyncEventKind) {
        for port in 1..=self.devices[device].config.attributes.port_count {
            let port = Some(port);
            self.raise_in_all(device, AsyncEvent { kind, port, queue_pair_number: None });
        }
    }

    /// Puts an event into the queue of each opening of a device.
    pub(crate) fn raise_in_all(&mut self, device: usize, event: AsyncEvent) {
        let openings = self.contexts.iter().filter(|(_, state)| state.device == device);
        let contexts: Vec<u32> = openings.map(|(id, _)| *id).collect();
        for context in contexts {
            self.raise(context, event);
        }
    }

    /// Records a task that waits for an object, and says when it should look by itself.
    pub(crate) fn wait(&mut self, id: u32, waker: Waker) -> Option<Nanos> {
        let until = self.agenda.next_time();
        self.waiting.insert(id, Waiting { waker, until });
        until
    }

    pub(crate) fn stop_waiting(&mut self, id: u32) {
        self.waiting.remove(&id);
    }

    /// Wakes the task that waits for an object.
    pub(crate) fn wake(&mut self, id: u32) {
        self.wakes.extend(self.waiting.remove(&id).map(|waiting| waiting.waker));
    }

    /// Those to be woken: what they wait for is there, or the network's next event is earlier
    /// than they thought.
    pub(crate) fn take_wakes(&mut self) -> Vec<Waker> {
        if let Some(next) = self.agenda.next_time() {
            let too_late = |waiting: &Waiting| waiting.until.is_none_or(|until| until > next);
            let late: Vec<u32> = self
                .waiting
                .iter()
                .filter(|(_, waiting)| too_late(waiting))
                .map(|(id, _)| *id)
                .collect();
            late.into_iter().for_each(|id| self.wake(id));
        }
        std::mem::take(&mut self.wakes)
    }

    /// Bytes that are locked for a device.
    pub(crate) fn locked_bytes(&self, device: usize) -> u64 {
        let regions = self.regions.values().filter(|region| region.device == device);
        let regions: u64 = regions.map(|region| region.memory.len()).sum();
        let queues = self.completion_queues.values().filter(|queue| queue.device == device);
        let completions: u64 = queues.map(|queue| queue.locked).sum();
        let queues = self.receive_queues.values().filter(|queue| queue.device == device);
        let receives: u64 = queues.map(|queue| queue.locked).sum();
        let queue_pairs = self.queue_pairs.values().filter(|state| state.device == device);
        regions + completions + receives + queue_pairs.map(|state| state.locked).sum::<u64>()
    }

    /// The limit on what is locked for a device, and what is locked.
    pub(crate) fn locked_memory(&self, device: usize) -> LockedMemory {
        LockedMemory { locked: self.locked_bytes(device), limit: self.faults.memory_lock_bytes }
    }

    /// Returns the bytes that a queue of `len` bytes locks.
    ///
    /// # Errors
    ///
    /// [`VerbsError::MemoryLock`] when that is beyond the limit.
    pub(crate) fn lock_queue(
        &self,
        device: usize,
        operation: &'static str,
        len: u64,
    ) -> Result<u64, VerbsError> {
        if self.devices[device].config.queue_memory == SimQueueMemory::Kernel {
            return Ok(0);
        }
        let memory = self.locked_memory(device);
        match memory.limit.is_some_and(|limit| memory.locked + len > limit) {
            true => Err(VerbsError::out_of_memory(operation, len, memory, None)),
            false => Ok(len),
        }
    }

    pub(crate) fn census(&self) -> SimCensus {
        SimCensus {
            contexts: self.contexts.len(),
            regions: self.regions.len(),
            registered_bytes: self.regions.values().map(|region| region.memory.len()).sum(),
            locked_bytes: (0..self.devices.len()).map(|device| self.locked_bytes(device)).sum(),
            windows: self.windows.len(),
            bound_windows: self.windows.values().filter(|window| window.bound.is_some()).count(),
            completion_queues: self.completion_queues.len(),
            receive_queues: self.receive_queues.len(),
            queue_pairs: self.queue_pairs.len(),
            requests: self.ledger.len(),
        }
    }
}
