//! What is on a simulated network: its tables, its clock and what will happen.
//!
//! What the objects do to each other is in `steps`.

mod agenda;
mod completion_queue;
mod network;
mod numbers;
mod queue_pair;
mod receive_queue;
mod region;
mod script;
mod span_ledger;
mod window;

pub(crate) use agenda::{Answer, Event, Nanos, Packet};
pub(crate) use completion_queue::{CompletionQueueState, Entry, LateWrite, Origin};
pub(crate) use network::{ContextState, DeviceState, NetworkState};
pub(crate) use numbers::{
    RETRY_FOR_EVER, acknowledgement_timeout, failed, nanos, opcode, rnr_timer, status,
};
pub(crate) use queue_pair::{HeldReceive, Phase, QueuePairState, Request, Wire};
pub(crate) use receive_queue::{Posted, ReceiveQueueState};
pub(crate) use region::RegionState;
pub(crate) use script::Script;
pub(crate) use span_ledger::{SpanId, Usage};
pub(crate) use window::{Bound, WindowState};
