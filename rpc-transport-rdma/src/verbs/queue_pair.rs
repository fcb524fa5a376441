//! A queue pair that owns what its device uses.
//!
//! ```text
//!            connect             halt, in two steps where the device's part may take long
//! Initial ------------> Ready -----------> Halting ----------> Drained
//!    |                    | a request        ^    the drain WR
//!    |                    v failed           |    came back
//!    |                  Failed --------------'
//!    '-------------- halt (nothing was ever posted) -----------> Drained
//! ```
//!
//! Work goes in by value and comes back by value with its completion. Closing in order: halt, keep
//! giving it its completions until [`QueuePair::is_drained`], drop. Dropped before that, it is
//! destroyed first and frees its buffers after; if even destroying fails they are leaked (V5).

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::mem;

use super::in_flight::InFlight;
use super::{
    Agreement, Attachment, Binding, Completion, CompletionError, ConnectError, ConnectOptions,
    Done, Endpoint, FirmwareCommand, LastReceive, Leftover, LinkLayer, PathAttributes, Port,
    PostError, QueuePairConfig, RawMemoryWindow, RawOperation, RawQueuePair, RawSend,
    UnknownCompletion, VerbsError, Window, Work, WorkId, WorkKind, WorkStatus,
};
use crate::memory::MemoryWindows;
use crate::sys::provider::QueueIdentity;
use crate::verbs::lost_receives::Farewell;
use crate::verbs::spare_queue_pair::{SpareQueuePair, create};
use crate::verbs::work::{Parts, work_done};

/// One end of a reliable connection.
pub struct QueuePair {
    /// Taken by `destroy`, and while the device halts it.
    raw: Option<Box<dyn RawQueuePair>>,
    /// The drain WR is the entry without work.
    in_flight: InFlight<Option<Work>>,
    /// Allocated after the queue pair and gone before it, whatever they are bound to.
    windows: MemoryWindows,
    requests: Vec<RawSend>,
    state: QueuePairState,
    identity: QueueIdentity,
    config: QueuePairConfig,
    local: Endpoint,
    port: Port,
    attachment: Attachment,
    receiving: Receiving,
    /// Ends that may read through it.
    readers: Readers,
}

/// The receives that it may have of the shared receive queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Receiving {
    /// Nothing: it was never connected.
    Never,
    /// Any receive. It has a place among those that do.
    Any(usize),
    /// The receives that it took before the device reported the last one.
    Ended(usize),
}

/// An end that may read through a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Readers {
    Peer,
    None,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum QueuePairState {
    Initial,
    Ready,
    Failed,
    /// With the device, to be halted.
    BeingHalted,
    Halting,
    Drained,
}

/// A queue pair of the device on its way to the error state.
#[derive(Debug)]
pub(crate) struct HaltingQueuePair {
    raw: Box<dyn RawQueuePair>,
    /// State to which it returns if it cannot be halted.
    before: QueuePairState,
    /// The device's answer, once there is one.
    answer: Option<Result<(), VerbsError>>,
}

impl HaltingQueuePair {
    pub(crate) fn number(&self) -> u32 {
        self.raw.number()
    }

    /// Moves it to the error state. It may wait for the device's firmware.
    pub(crate) fn carry_out(mut self) -> Self {
        self.answer = Some(self.raw.set_error());
        self
    }
}

impl QueuePair {
    /// Makes a queue pair that is not connected yet.
    ///
    /// # Errors
    ///
    /// [`VerbsError::LimitExceeded`], [`VerbsError::CompletionQueueFull`] when its completions
    /// would not fit, [`VerbsError::ForeignObject`] when the port is another device's, or what the
    /// system said.
    pub fn new(
        attachment: &Attachment,
        port: &Port,
        config: &QueuePairConfig,
    ) -> Result<Self, VerbsError> {
        let identity = config.check(attachment, port)?;
        let budget = &attachment.completion_queue().budget;
        budget.claim(config.completions())?;
        let raw = create(attachment, port, config);
        let raw = raw.inspect_err(|_| budget.release(config.completions()))?;
        Ok(Self::with_raw(raw, identity, config, port, attachment))
    }

    /// Takes a queue pair of the device in INIT, whose completions have been claimed.
    fn with_raw(
        raw: Box<dyn RawQueuePair>,
        identity: QueueIdentity,
        config: &QueuePairConfig,
        port: &Port,
        attachment: &Attachment,
    ) -> Self {
        Self {
            local: config.local_endpoint(raw.number(), port),
            raw: Some(raw),
            in_flight: InFlight::with_capacity(config.completions() as usize),
            windows: MemoryWindows::new(attachment.device(), identity),
            requests: Vec::new(),
            state: QueuePairState::Initial,
            identity,
            config: *config,
            port: port.clone(),
            attachment: attachment.clone(),
            receiving: Receiving::Never,
            readers: Readers::Peer,
        }
    }

    /// Makes a queue pair of a spare that [fits](SpareQueuePair::fits) the port.
    ///
    /// # Errors
    ///
    /// [`VerbsError::CompletionQueueFull`] when its completions would not fit.
    pub(crate) fn from_spare(
        mut spare: SpareQueuePair,
        port: &Port,
        tag: u32,
    ) -> Result<Self, VerbsError> {
        let config = QueuePairConfig { tag, ..spare.config };
        let attachment = spare.attachment.clone();
        let identity = config.check(&attachment, port)?;
        attachment.completion_queue().budget.claim(config.completions())?;
        let raw = spare.raw.take().expect("only using and destroying take it");
        Ok(Self::with_raw(raw, identity, &config, port, &attachment))
    }

    /// Takes the device's queue pair away for another connection. `None` if it was ever connected.
    pub(crate) fn into_spare(mut self) -> Option<SpareQueuePair> {
        if self.state != QueuePairState::Initial {
            return None;
        }
        let raw = self.raw.take()?;
        // Nothing was posted and no message could come, so nothing has completed.
        self.attachment.completion_queue().budget.release(self.config.completions());
        Some(SpareQueuePair::new(raw, &self.config, &self.port, &self.attachment))
    }

    /// This end as the peer needs to know it.
    #[must_use]
    pub fn endpoint(&self) -> Endpoint {
        self.local
    }

    /// Makes it serve no READ of its peer once it is connected, and take next to nothing of the
    /// device's resources for READs. Without this it serves them.
    pub fn refuse_reads(&mut self) {
        self.readers = Readers::None;
    }

    /// Connects it to its peer. The system may look up the peer's address meanwhile, which can
    /// block for as long as address resolution takes: not for a latency-critical task.
    ///
    /// # Errors
    ///
    /// [`ConnectError`] says what does not fit. After [`ConnectError::Verbs`] the queue pair is
    /// fit for nothing but dropping.
    pub fn connect(
        &mut self,
        remote: &Endpoint,
        options: &ConnectOptions,
    ) -> Result<Agreement, ConnectError> {
        if self.state != QueuePairState::Initial {
            return Err(ConnectError::NotInitial);
        }
        options.check()?;
        let mut agreement = self.local.agree(remote)?;
        if self.readers == Readers::None {
            agreement.reads_in = 1;
        }
        let is_global = self.local.link_layer == LinkLayer::Ethernet
            || self.local.needs_global_route
            || remote.needs_global_route;
        let traffic_class = options.traffic_class.unwrap_or(self.port.attributes.traffic_class);
        let path = PathAttributes {
            port: self.port.number,
            gid_index: self.port.gid_index,
            packet_sequence_number: self.local.packet_sequence_number,
            remote: *remote,
            agreement,
            traffic_class,
            is_global,
            serves_reads: self.readers == Readers::Peer,
            options: *options,
        };
        // Before its peer can send anything.
        let place = self.attachment.receivers().enter(self.number());
        self.receiving = Receiving::Any(place);
        let result = {
            let device = self.attachment.device().clone();
            let _awaited = device.commands().await_firmware(FirmwareCommand::ModifyQueuePair);
            self.raw().connect(&path)
        };
        self.state = if result.is_ok() { QueuePairState::Ready } else { QueuePairState::Failed };
        result?;
        Ok(agreement)
    }

    /// Allocates a memory window, which only this queue pair can bind. It exists as long as the
    /// queue pair, wherever the value goes.
    ///
    /// # Errors
    ///
    /// Returns the system's error, for example that the device has none left.
    pub fn allocate_window(&mut self) -> Result<Window, VerbsError> {
        self.windows.allocate()
    }

    /// Deallocates a window whatever it is bound to: its key is dead when this returns. A message
    /// that takes the key away afterwards fails the queue pair.
    ///
    /// A binding of another queue pair is none of this one's, and is only dropped.
    ///
    /// # Errors
    ///
    /// Returns the device's error. The peer may go on reading until this queue pair is destroyed.
    pub fn deallocate_window(&mut self, binding: Binding) -> Result<(), VerbsError> {
        self.windows.deallocate(binding)
    }

    /// Takes a window that was allocated after this queue pair.
    pub(crate) fn adopt_window(&mut self, raw: Box<dyn RawMemoryWindow>) -> Window {
        self.windows.adopt(raw)
    }

    /// Gives the window of a binding up, for the caller to deallocate before it drops the binding.
    pub(crate) fn detach_window(&mut self, binding: &Binding) -> Option<Box<dyn RawMemoryWindow>> {
        self.windows.detach(binding)
    }

    /// Posts as much of the batch as the send queue has room for, with one call into the device,
    /// and returns how many. The last of them asks for a completion. What does not fit, or the
    /// device cannot take now, stays in the batch for after a completion, or for later when
    /// [`QueuePair::will_complete`] says that none will come.
    ///
    /// # Errors
    ///
    /// [`PostError`]; what is in flight by then is no longer in the batch.
    pub fn post(&mut self, batch: &mut VecDeque<Work>) -> Result<usize, PostError> {
        if self.state != QueuePairState::Ready {
            return Err(PostError::NotReady);
        }
        let count = batch.len().min(self.room());
        if count == 0 {
            return Ok(0);
        }
        self.requests.clear();
        let first = self.in_flight.next_position();
        let positions = (0..WorkId::POSITIONS).map(|i| (first + i) % WorkId::POSITIONS);
        for (index, (work, position)) in batch.iter().take(count).zip(positions).enumerate() {
            let invalid = |reason| PostError::Invalid { index, reason };
            let mut request = self.request(work, position).map_err(invalid)?;
            request.signaled = index + 1 == count;
            self.requests.push(request);
        }
        // The work is in flight before the device hears of it, so that nothing between here and
        // the device's answer, a panic included, can free memory that the device has.
        for (index, work) in batch.drain(..count).enumerate() {
            self.in_flight.push(Some(work), index + 1 == count);
        }
        self.post_requests(batch)
    }

    /// Takes back everything that ended with a completion of this queue pair and appends it to
    /// `done` in the order of posting.
    ///
    /// # Errors
    ///
    /// [`UnknownCompletion`] when no such work is in flight, for example because the completion is
    /// an older queue pair's that had the same tag.
    pub fn handle_completion(
        &mut self,
        completion: Completion,
        done: &mut Vec<Done>,
    ) -> Result<(), UnknownCompletion> {
        let (work_id, queue_pair_number, outcome) = completion.into_parts();
        let is_ours = self.identity.owns(work_id)
            && work_id.kind() != WorkKind::Receive
            && queue_pair_number == self.local.queue_pair_number;
        let ended = if is_ours { self.in_flight.ended_by(work_id.position()) } else { None };
        let Some(ended) = ended else { return Err(UnknownCompletion(work_id)) };
        let outcome = outcome.map(|_| ());
        if outcome.is_err() && self.state == QueuePairState::Ready {
            self.state = QueuePairState::Failed;
        }
        for remaining in (0..ended).rev() {
            // V3: the device is done with everything up to the completed request.
            match self.in_flight.pop() {
                Some(Some(mut work)) => {
                    let outcome = if remaining == 0 { outcome } else { earlier(outcome) };
                    if outcome.is_ok() {
                        work_done(&mut work, &mut self.windows);
                    }
                    done.push(Done { work, outcome });
                }
                Some(None) => self.state = QueuePairState::Drained,
                None => break,
            }
        }
        Ok(())
    }

    /// Stops it: everything in flight will come back as flushed, and after that a drain WR, which
    /// makes it drained. Does nothing when it is halted already.
    ///
    /// # Errors
    ///
    /// Returns the system's error; it may be tried again, and dropping is safe at any time.
    pub fn halt(&mut self) -> Result<(), VerbsError> {
        match self.begin_halt() {
            Some(halting) => self.finish_halt(halting.carry_out()),
            None => Ok(()),
        }
    }

    /// Begins to stop it: it takes no posts from here on. `None` if it is halted already. What is
    /// returned comes back by [`finish_halt`](Self::finish_halt), after the device's part or
    /// without. The device goes on with what is in flight meanwhile.
    pub(crate) fn begin_halt(&mut self) -> Option<HaltingQueuePair> {
        use QueuePairState::{BeingHalted, Failed, Initial, Ready};
        let before = self.state;
        let raw = match before {
            Initial | Ready | Failed => self.raw.take()?,
            _ => return None,
        };
        self.state = BeingHalted;
        Some(HaltingQueuePair { raw, before, answer: None })
    }

    /// Returns true if it is away to be halted.
    pub(crate) fn is_being_halted(&self) -> bool {
        self.state == QueuePairState::BeingHalted
    }

    /// Takes it back from the device, and posts the drain WR if it is halted.
    ///
    /// # Errors
    ///
    /// Returns the system's error; it may be halted again then, and dropping is safe at any time.
    pub(crate) fn finish_halt(&mut self, halting: HaltingQueuePair) -> Result<(), VerbsError> {
        let HaltingQueuePair { raw, before, answer } = halting;
        (self.raw, self.state) = (Some(raw), before);
        match answer {
            None => return Ok(()),
            Some(answer) => answer?,
        }
        if before == QueuePairState::Initial {
            self.state = QueuePairState::Drained;
            return Ok(());
        }
        let position = self.in_flight.next_position();
        let drain_wr = RawSend {
            work_id: self.identity.work_id(WorkKind::Drain, position).to_u64(),
            // In the error state nothing is sent; every request is flushed.
            operation: RawOperation::Send,
            segment: None,
            signaled: true,
            inline: false,
        };
        self.in_flight.push(None, true);
        // SAFETY: V2: a request without a segment names no memory.
        let posted = unsafe { self.raw().post_send(&[drain_wr]) };
        match posted {
            Err(partial) if partial.accepted == 0 => {
                let refused = self.in_flight.take_back(1).count();
                debug_assert_eq!(refused, 1);
                let source = io::Error::from_raw_os_error(partial.errno);
                Err(VerbsError::system("post the drain WR of a halted queue pair", source))
            }
            // If the device may have it, a second drain WR could find no room.
            _ => {
                self.state = QueuePairState::Halting;
                Ok(())
            }
        }
    }

    /// Returns true if it was halted and all work has come back.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.state == QueuePairState::Drained
    }

    /// Records that the device took the last receive for it, of which an
    /// [asynchronous event](super::AsyncEventKind::LastReceiveReached) tells.
    pub fn handle_last_receive(&mut self) {
        if let Receiving::Any(place) = self.receiving {
            self.receiving = Receiving::Ended(place);
        }
    }

    /// Returns true if the device has not yet reported that it took the last receive for it. The
    /// report comes after the queue pair has failed or was halted, and may never come.
    #[must_use]
    pub fn awaits_last_receive(&self) -> bool {
        let is_told = self.attachment.device().receive_drain().last_receive == LastReceive::Told;
        is_told && matches!(self.receiving, Receiving::Any(_))
    }

    /// Returns true if work can be posted: the queue pair is connected and nothing has failed.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.state == QueuePairState::Ready
    }

    /// Number of requests in flight, the drain WR included.
    #[must_use]
    pub fn in_flight_len(&self) -> usize {
        self.in_flight.len()
    }

    /// Returns true if a completion will come by itself. After a partial post, the work in flight
    /// may have requested none: then the rest of the batch has to be posted again after a while.
    #[must_use]
    pub fn will_complete(&self) -> bool {
        self.in_flight.has_signaled()
    }

    /// Number of requests that can be posted now.
    #[must_use]
    pub fn room(&self) -> usize {
        (self.config.send_depth as usize).saturating_sub(self.in_flight.len())
    }

    /// The port that it uses, as it was when the queue pair was made.
    #[must_use]
    pub fn port(&self) -> &Port {
        &self.port
    }

    /// Its number, which its receives' completions carry.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.local.queue_pair_number
    }

    /// The tag of its sends' completions.
    #[must_use]
    pub fn tag(&self) -> u32 {
        self.identity.tag()
    }

    /// Messages up to this length are copied when posting.
    #[must_use]
    pub fn inline_max(&self) -> u32 {
        self.raw.as_ref().map_or(0, |raw| raw.inline_max())
    }

    /// The longest message and the longest READ of its port.
    #[must_use]
    pub fn message_len_max(&self) -> u32 {
        self.port.attributes.message_len_max
    }

    /// Destroys it and frees its buffers after, as dropping does, and says whether that succeeded.
    /// It is fit for nothing but dropping then.
    ///
    /// # Errors
    ///
    /// Returns the system's error. The queue pair may go on to serve its peer's READs: what these
    /// can reach must be leaked as its buffers are.
    pub(crate) fn destroy(&mut self) -> Result<(), VerbsError> {
        let Some(mut raw) = self.raw.take() else {
            return if self.is_being_halted() { Err(self.leak_in_flight()) } else { Ok(()) };
        };
        if self.in_flight.len() > 0
            && let Err(error) = raw.set_error()
        {
            tracing::debug!(
                target: "farcall::rdma",
                %error, number = self.number(), "cannot halt before destroying"
            );
        }
        // A device may take long to destroy a queue pair that still has a bound window.
        self.windows.deallocate_all();
        let destroyed = raw.destroy();
        match &destroyed {
            // V5: the device has forgotten the queue pair, so freeing `in_flight` is safe now.
            // Completions that still lie in the queue name this queue's serial and match no work.
            Ok(()) => {
                self.in_flight = InFlight::with_capacity(0);
                let budget = &self.attachment.completion_queue().budget;
                let completions = self.config.completions();
                let farewell = self.farewell();
                match (self.state, self.receiving) {
                    // Nothing was posted and no message could come, so nothing has completed.
                    (QueuePairState::Initial, _) => budget.release(completions),
                    (_, Receiving::Never) => {
                        budget.announce(completions);
                        budget.retire(completions);
                    }
                    (_, Receiving::Any(place) | Receiving::Ended(place)) => {
                        // Before the task that polls is woken, which then finds out what is lost.
                        let ticket = budget.announce(completions);
                        self.attachment.receivers().leave(place, farewell, ticket);
                        budget.retire(completions);
                    }
                }
            }
            Err(error) => {
                let (number, leaked) = (self.local.queue_pair_number, self.in_flight.len());
                tracing::error!(
                    target: "farcall::rdma",
                    %error, number, leaked, "a queue pair's buffers are leaked"
                );
                self.leak_in_flight();
            }
        }
        destroyed
    }

    /// Leaks what the device may still use. Returns the error of one that is away to be halted,
    /// whose command was lost: only a panic of its thread does that.
    fn leak_in_flight(&mut self) -> VerbsError {
        let in_flight = mem::replace(&mut self.in_flight, InFlight::with_capacity(0));
        mem::forget(in_flight);
        VerbsError::system("destroy a queue pair", io::Error::from_raw_os_error(libc::EBUSY))
    }

    /// Returns the receives that may be missing if it is destroyed now.
    fn farewell(&self) -> Farewell {
        let leftover = self.attachment.device().receive_drain().leftover;
        let has_ended = self.state == QueuePairState::Drained && !self.awaits_last_receive();
        match leftover {
            Leftover::Nothing if has_ended => Farewell::Clean,
            _ => Farewell::Doubtful,
        }
    }

    /// Hands `self.requests` to the device; what it refuses goes back to the batch.
    fn post_requests(&mut self, batch: &mut VecDeque<Work>) -> Result<usize, PostError> {
        let count = self.requests.len();
        let raw = self.raw.as_mut().expect("only destroying takes the queue pair");
        // SAFETY: V2: the segments are of slots and sinks that were checked to hold them and are
        // in `in_flight` now, which gives them back only by completion, refusal or destruction.
        // V8: so are the bindings, which keep their regions; their windows are in `windows`, and
        // both were checked to be of this device.
        let Err(partial) = (unsafe { raw.post_send(&self.requests) }) else {
            return Ok(count);
        };
        // V4: only what the device surely does not have goes back.
        let accepted = partial.accepted.min(count);
        for work in self.in_flight.take_back(count - accepted).flatten() {
            batch.push_front(work);
        }
        // A full queue is no error: what is in flight will make room. A queue that is full while
        // it is empty will not change, and it is none if the device may have taken everything.
        let is_full = partial.errno == libc::ENOMEM && accepted < count;
        if is_full && self.in_flight.len() > 0 {
            return Ok(accepted);
        }
        self.state = QueuePairState::Failed;
        let source = io::Error::from_raw_os_error(partial.errno);
        Err(PostError::Device { accepted, source })
    }

    /// A piece of work as the device needs it, or what is wrong with it.
    fn request(&self, work: &Work, position: u16) -> Result<RawSend, &'static str> {
        let Parts { kind, operation, segment } = Parts::of(work, &self.windows)?;
        if segment.is_some_and(|segment| segment.len > self.message_len_max()) {
            return Err("it is longer than the port's longest message");
        }
        let fits_inline = segment.is_some_and(|segment| segment.len <= self.inline_max());
        Ok(RawSend {
            work_id: self.identity.work_id(kind, position).to_u64(),
            operation,
            segment,
            signaled: false,
            inline: kind == WorkKind::Send && fits_inline,
        })
    }

    fn raw(&mut self) -> &mut dyn RawQueuePair {
        self.raw.as_deref_mut().expect("only destroying takes the queue pair")
    }
}

/// The outcome of requests before the one that a completion names: they succeeded with it, and are
/// reported as flushed when it failed, because the device no longer says which it was.
fn earlier(outcome: Result<(), CompletionError>) -> Result<(), CompletionError> {
    outcome.map_err(|error| CompletionError { status: WorkStatus::Flushed, ..error })
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        // A failure has been logged, and what the device may still use is leaked.
        let _ = self.destroy();
    }
}

impl fmt::Debug for QueuePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuePair")
            .field("number", &self.number())
            .field("tag", &self.tag())
            .field("state", &self.state)
            .field("in_flight", &self.in_flight.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "queue_pair_tests.rs"]
mod tests;
