//! The buffers of a connection over verbs.

use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;

use crate::connection::rndv_payload::RndvPayload;
use crate::fair::semaphore::PeerShare;
use crate::memory::{Sink, Slot};
use crate::proto::connection::{ArrivalOf, Buffers, ConnectionState};
use crate::proto::rndv::memory_windows::Bind;
use crate::verbs::{Binding, RemoteKey, RemoteMemory, Window};

/// Registered memory, and windows of a queue pair.
#[derive(Debug)]
pub(crate) struct VerbsBuffers;

/// The state of a connection over verbs, and what goes into it and comes out.
pub(crate) type State = ConnectionState<VerbsBuffers>;
pub(crate) type Event<'a> = crate::proto::connection::Event<'a, VerbsBuffers>;
pub(crate) type Action = crate::proto::connection::Action<VerbsBuffers>;
pub(crate) type Outgoing = crate::proto::connection::Outgoing<VerbsBuffers>;
pub(crate) type Arrival = ArrivalOf<VerbsBuffers>;

impl Buffers for VerbsBuffers {
    type Slot = Slot;
    /// Of the frames that the connection may have waiting.
    type Permit = OwnedSemaphorePermit;
    type Payload = RndvPayload;
    type Binding = Binding;
    type Sink = Arc<Sink>;
    type Share = PeerShare;
}

impl Bind for Binding {
    type Window = Window;

    fn remote(&self) -> RemoteMemory {
        self.remote()
    }

    fn handle_invalidated(&mut self, key: RemoteKey) -> bool {
        self.handle_invalidated(key)
    }

    fn into_window(self) -> Result<Window, Self> {
        self.into_window()
    }
}
