//! What can be wrong with posting work and with taking it back.

use std::io;

use super::WorkId;

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
