//! A queue pair that owns what its device uses.
//!
//! ```text
//!            connect             halt
//! Initial ------------> Ready -----------> Halting ----------> Drained
//!    |                    | a request        ^    the marker
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
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::mem;

use super::endpoint::NUMBER_24_MAX;
use super::in_flight::InFlight;
use super::work_id::QueueIdentity;
use super::{
    Agreement, Attachment, Completion, CompletionError, ConnectError, ConnectOptions, Done,
    Endpoint, PathAttributes, Port, QueuePairRequest, RawOperation, RawQueuePair, RawSegment,
    RawSend, VerbsError, Work, WorkId, WorkKind, WorkStatus,
};

/// Size and name of a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueuePairConfig {
    /// Requests in flight at most, 1 to 16382; 256 by default.
    pub send_depth: u32,
    /// Messages up to this length are copied when posting, if the device can; 220 by default.
    pub inline_max: u32,
    /// READs outstanding at most in each direction; 16 by default.
    pub reads_max: u8,
    /// Tag of its completions, at most [`WorkId::TAG_MAX`]; 0 by default.
    pub tag: u32,
}

impl Default for QueuePairConfig {
    fn default() -> Self {
        Self { send_depth: 256, inline_max: 220, reads_max: 16, tag: 0 }
    }
}

/// One end of a reliable connection.
pub struct QueuePair {
    /// Taken by `drop` only.
    raw: Option<Box<dyn RawQueuePair>>,
    /// The marker is the entry without work.
    in_flight: InFlight<Option<Work>>,
    requests: Vec<RawSend>,
    state: State,
    identity: QueueIdentity,
    config: QueuePairConfig,
    local: Endpoint,
    port: Port,
    attachment: Attachment,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Initial,
    Ready,
    Failed,
    Halting,
    Drained,
}

/// Why work was not posted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PostError {
    /// The queue pair is not connected, has failed or is halted. Nothing was posted.
    #[error("the queue pair is not ready: it is not connected, has failed or is halted")]
    NotReady,
    /// The request at this place of the batch cannot be. Nothing was posted.
    #[error("request {index} of the batch is invalid: {reason}")]
    Invalid {
        /// Its place in the batch.
        index: usize,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The device refused. What it accepted is in flight and the rest is still in the batch; there
    /// is no undo, so the queue pair has failed and wants to be halted.
    #[error("the device took {accepted} requests and refused the next")]
    Device {
        /// How many are in flight.
        accepted: usize,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

/// A completion was given to a queue pair that has no such work in flight.
#[derive(Debug, thiserror::Error)]
#[error("a completion of {0:?}, which this queue pair has not in flight")]
pub struct UnknownCompletion(pub WorkId);

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
        let identity = check(attachment, port, config)?;
        let completions = config.send_depth + 1;
        attachment.completion_queue().budget.claim(completions)?;
        let request = QueuePairRequest {
            port: port.number,
            completion_queue: &attachment.completion_queue().raw,
            shared_receive_queue: attachment.shared_receive_queue(),
            // One more for the marker, which must find room when everything else is in flight.
            send_depth: completions,
            inline_max: config.inline_max,
        };
        let raw = attachment.device().raw().create_queue_pair(&request).inspect_err(|_| {
            attachment.completion_queue().budget.retire(completions);
        })?;
        Ok(Self {
            local: local_endpoint(raw.number(), port, config),
            raw: Some(raw),
            in_flight: InFlight::with_capacity(completions as usize),
            requests: Vec::new(),
            state: State::Initial,
            identity,
            config: *config,
            port: port.clone(),
            attachment: attachment.clone(),
        })
    }

    /// This end as the peer needs to know it.
    #[must_use]
    pub fn endpoint(&self) -> Endpoint {
        self.local
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
        if self.state != State::Initial {
            return Err(ConnectError::NotInitial);
        }
        options.check()?;
        let agreement = self.local.agree(remote)?;
        let path = PathAttributes {
            port: self.port.number,
            gid_index: self.port.gid_index,
            packet_sequence_number: self.local.packet_sequence_number,
            remote: *remote,
            agreement,
            options: *options,
        };
        let result = self.raw().connect(&path);
        self.state = if result.is_ok() { State::Ready } else { State::Failed };
        result?;
        Ok(agreement)
    }

    /// Posts as much of the batch as the send queue has room for, with one call into the device,
    /// and returns how many. The last of them asks for a completion. What does not fit, or the
    /// device cannot take now, stays in the batch for after a completion.
    ///
    /// # Errors
    ///
    /// [`PostError`]; what is in flight by then is no longer in the batch.
    pub fn post(&mut self, batch: &mut VecDeque<Work>) -> Result<usize, PostError> {
        if self.state != State::Ready {
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
        if outcome.is_err() && self.state == State::Ready {
            self.state = State::Failed;
        }
        for remaining in (0..ended).rev() {
            // V3: the device is done with everything up to the completed request.
            match self.in_flight.pop() {
                Some(Some(work)) => {
                    let outcome = if remaining == 0 { outcome } else { earlier(outcome) };
                    done.push(Done { work, outcome });
                }
                Some(None) => self.state = State::Drained,
                None => break,
            }
        }
        Ok(())
    }

    /// Stops it: everything in flight will come back as flushed, and after that a marker, which
    /// makes it drained. Does nothing when it is halted already.
    ///
    /// # Errors
    ///
    /// What the system said; it may be tried again, and dropping is safe at any time.
    pub fn halt(&mut self) -> Result<(), VerbsError> {
        if matches!(self.state, State::Halting | State::Drained) {
            return Ok(());
        }
        self.raw().set_error()?;
        if self.state == State::Initial {
            self.state = State::Drained;
            return Ok(());
        }
        let position = self.in_flight.next_position();
        let marker = RawSend {
            work_id: self.identity.work_id(WorkKind::Marker, position).to_u64(),
            // In the error state nothing is sent; every request is flushed.
            operation: RawOperation::Send,
            segment: None,
            signaled: true,
            inline: false,
        };
        self.in_flight.push(None, true);
        // SAFETY: V2: a request without a segment names no memory.
        let posted = unsafe { self.raw().post_send(&[marker]) };
        match posted {
            Err(partial) if partial.accepted == 0 => {
                let refused = self.in_flight.take_back(1).count();
                debug_assert_eq!(refused, 1);
                let source = io::Error::from_raw_os_error(partial.errno);
                Err(VerbsError::system("post the marker of a halted queue pair", source))
            }
            // If the device may have it, a second marker could find no room.
            _ => {
                self.state = State::Halting;
                Ok(())
            }
        }
    }

    /// Whether it was halted and everything has come back.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.state == State::Drained
    }

    /// Whether work can be posted: it is connected and nothing has failed.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.state == State::Ready
    }

    /// Number of requests in flight, the marker included.
    #[must_use]
    pub fn in_flight_len(&self) -> usize {
        self.in_flight.len()
    }

    /// Number of requests that can be posted now.
    #[must_use]
    pub fn room(&self) -> usize {
        (self.config.send_depth as usize).saturating_sub(self.in_flight.len())
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

    /// Hands `self.requests` to the device; what it refuses goes back to the batch.
    fn post_requests(&mut self, batch: &mut VecDeque<Work>) -> Result<usize, PostError> {
        let count = self.requests.len();
        let raw = self.raw.as_mut().expect("only drop takes the queue pair");
        // SAFETY: V2: the segments are of slots and sinks that were checked to hold them and are
        // in `in_flight` now, which gives them back only by completion, refusal or destruction.
        let Err(partial) = (unsafe { raw.post_send(&self.requests) }) else {
            return Ok(count);
        };
        // V4: only what the device surely does not have goes back.
        let accepted = partial.accepted.min(count);
        for work in self.in_flight.take_back(count - accepted).flatten() {
            batch.push_front(work);
        }
        // A full queue is no error as long as some completion will come to say that it no longer
        // is. Without one the rest, and what was accepted without asking for a completion, would
        // wait for ever.
        if partial.errno == libc::ENOMEM && self.in_flight.has_signaled() {
            return Ok(accepted);
        }
        self.state = State::Failed;
        let source = io::Error::from_raw_os_error(partial.errno);
        Err(PostError::Device { accepted, source })
    }

    /// A piece of work as the device needs it, or what is wrong with it.
    fn request(&self, work: &Work, position: u16) -> Result<RawSend, &'static str> {
        let (kind, operation, segment) = match work {
            Work::Send { slot, len } => {
                if *len as usize > slot.len() {
                    return Err("the message is longer than its slot");
                }
                (WorkKind::Send, RawOperation::Send, slot.segment(*len))
            }
            Work::Read { sink, offset, len, remote } => {
                let segment = sink.segment(*offset, *len);
                let segment = segment.ok_or("the READ does not fit its sink")?;
                (WorkKind::Read, RawOperation::Read(*remote), segment)
            }
        };
        if segment.len > self.message_len_max() {
            return Err("it is longer than the port's longest message");
        }
        if segment.len == 0 && kind == WorkKind::Read {
            return Err("a READ of nothing");
        }
        let segment = (segment.len > 0).then_some(segment);
        let inline = kind == WorkKind::Send && segment.is_some_and(|it| self.fits_inline(it));
        let work_id = self.identity.work_id(kind, position).to_u64();
        Ok(RawSend { work_id, operation, segment, signaled: false, inline })
    }

    fn fits_inline(&self, segment: RawSegment) -> bool {
        segment.len <= self.inline_max()
    }

    fn raw(&mut self) -> &mut dyn RawQueuePair {
        self.raw.as_deref_mut().expect("only drop takes the queue pair")
    }
}

/// The outcome of requests before the one that a completion names: they succeeded with it, and are
/// reported as flushed when it failed, because nobody knows any more.
fn earlier(outcome: Result<(), CompletionError>) -> Result<(), CompletionError> {
    outcome.map_err(|error| CompletionError { status: WorkStatus::Flushed, ..error })
}

/// Checks a configuration against the device and the format of work ids.
fn check(
    attachment: &Attachment,
    port: &Port,
    config: &QueuePairConfig,
) -> Result<QueueIdentity, VerbsError> {
    if !attachment.device().is_same(&port.device) {
        return Err(VerbsError::ForeignObject { what: "the port" });
    }
    // Less one for the marker, and positions must outnumber what is in flight.
    let device_max = port.device.attributes().send_depth_max.saturating_sub(1);
    let max = device_max.min(u32::from(WorkId::POSITIONS) - 2);
    if config.send_depth == 0 || config.send_depth > max {
        let asked = config.send_depth.into();
        return Err(VerbsError::LimitExceeded { what: "send depth", asked, max: max.into() });
    }
    QueueIdentity::new(config.tag)
}

fn local_endpoint(queue_pair_number: u32, port: &Port, config: &QueuePairConfig) -> Endpoint {
    let device = port.device.attributes();
    // A new hasher is seeded at random; that is enough for a number which only has to differ from
    // the last connection's, so that its late packets are not taken for ours.
    #[allow(clippy::cast_possible_truncation)]
    let random = RandomState::new().build_hasher().finish() as u32;
    Endpoint {
        queue_pair_number,
        packet_sequence_number: random & NUMBER_24_MAX,
        gid: port.gid,
        lid: port.attributes.lid,
        mtu: port.attributes.active_mtu,
        reads_max: config.reads_max.min(device.reads_in_max).min(device.reads_out_max),
        link_layer: port.attributes.link_layer,
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        let Some(mut raw) = self.raw.take() else { return };
        if self.in_flight.len() > 0
            && let Err(error) = raw.set_error()
        {
            tracing::debug!(%error, number = self.number(), "cannot halt before destroying");
        }
        match raw.destroy() {
            // V5: the device has forgotten the queue pair, so dropping `in_flight` is safe now.
            // Completions that still lie in the queue name this queue's serial and find nobody.
            Ok(()) => {
                self.attachment.completion_queue().budget.retire(self.config.send_depth + 1);
            }
            Err(error) => {
                let in_flight = mem::replace(&mut self.in_flight, InFlight::with_capacity(0));
                let (number, leaked) = (self.local.queue_pair_number, in_flight.len());
                tracing::error!(%error, number, leaked, "a queue pair's buffers are leaked");
                mem::forget(in_flight);
            }
        }
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
