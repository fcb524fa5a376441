//! The record of a scripted device, and what it refuses.

use crate::provider::{PartialPost, RawCompletion, RawSend};

/// What a test has a scripted device do, and what the device was given.
///
/// Other devices leave it as it is.
#[derive(Debug, Default)]
pub(crate) struct Script {
    /// Sends that were accepted, each with the number of its queue pair.
    pub(crate) sends: Vec<(u32, RawSend)>,
    pub(crate) send_calls: usize,
    pub(crate) receive_calls: usize,
    /// The next post of sends ends like this.
    pub(crate) refused_sends: Option<PartialPost>,
    /// So many posts of receives end like this.
    pub(crate) refused_receives: Option<(usize, PartialPost)>,
    /// Completions that come just before their queue is armed the next time.
    pub(crate) when_armed: Vec<RawCompletion>,
    /// Completions make no event.
    pub(crate) is_silent: bool,
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
