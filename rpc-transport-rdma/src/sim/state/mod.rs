//! The state of a simulated network: its tables, its clock and its agenda.
//!
//! `steps` has the effects of objects on each other.

mod agenda;
mod lag_port;
mod memory;
mod network;
mod numbers;
mod queue_pair;
mod queues;

pub(crate) use agenda::{Answer, Event, Packet};
pub(crate) use lag_port::{LagPort, LagPortId, LagPortPhase};
pub(crate) use memory::{Bound, RegionState, SpanId, Usage, WindowState};
pub(crate) use network::{ContextState, DeviceState, NetworkState, Script};
pub(crate) use numbers::{
    Nanos, RETRY_FOR_EVER, acknowledgement_timeout, failed, nanos, opcode, rnr_timer, status,
};
pub(crate) use queue_pair::{HeldReceive, Phase, QueuePairState, Request, Wire};
pub(crate) use queues::{
    CompletionQueueState, Entry, LateWrite, Origin, Posted, ReceiveQueueState,
};
