//! The call that is being handled, for code that runs inside its handler.
//!
//! It is a task-local of the handler, its stream included. Nothing is allocated for it unless a
//! handler asks: the token by which work elsewhere learns of the call's end is made at that moment.

use std::cell::OnceCell;
use std::future::Future;
use std::sync::Arc;

use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};
use tonic::Status;

use crate::call::refusal;
use crate::payload::buffer::{Buffer, any_buffer, buffer_of};
use crate::server::PeerInfo;
use crate::server::call::time_limit::TimeLimit;
use crate::{Deadline, MethodDescriptor};

tokio::task_local! {
    static CURRENT: CallScope;
}

/// What a handler can know of its call beside the request.
///
/// When the client gives the call up, its deadline passes or the connection ends, the handler is
/// dropped where it waits. [`CallContext::cancellation`] is for what the handler has started
/// elsewhere, a thread or a task of its own, which is not dropped with the call.
///
/// # Examples
///
/// ```
/// use farcall::server::CallContext;
/// use farcall::{Code, Status};
///
/// async fn search() -> Result<u64, Status> {
///     let call = CallContext::current().ok_or_else(|| Status::internal("not in a handler"))?;
///     let searching = tokio::task::spawn_blocking(move || {
///         // Stops once the call has been given up.
///         (0..1_000_000).take_while(|_| !call.is_cancelled()).sum()
///     });
///     searching.await.map_err(|error| Status::new(Code::Internal, error.to_string()))
/// }
/// ```
#[derive(Debug, Clone)]
pub struct CallContext {
    method: &'static MethodDescriptor,
    deadline: Option<Deadline>,
    peer: Arc<PeerInfo>,
    cancellation: CancellationToken,
}

impl CallContext {
    /// The call that is being handled; `None` outside of a handler. The first time that a call is
    /// asked for its context costs an allocation.
    #[must_use]
    pub fn current() -> Option<Self> {
        Self::with_current(CallScope::context)
    }

    /// The method.
    #[must_use]
    pub fn method(&self) -> &'static MethodDescriptor {
        self.method
    }

    /// When the call ends at the latest.
    #[must_use]
    pub fn deadline(&self) -> Option<Deadline> {
        self.deadline
    }

    /// The connection that the call came in on.
    #[must_use]
    pub fn peer(&self) -> &Arc<PeerInfo> {
        &self.peer
    }

    /// Fires when the handler, or the stream that it returned, is given up before it has ended: by
    /// the client, the deadline, the end of the connection, a layer, or a panic. A handler that
    /// ends by itself does not fire it.
    #[must_use]
    pub fn cancellation(&self) -> &CancellationToken {
        &self.cancellation
    }

    /// Whether the call has been given up.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cancellation.is_cancelled()
    }

    /// Waits until the call is given up; for ever when its handler ends by itself.
    ///
    /// # Cancel safety
    ///
    /// Cancelling loses nothing.
    pub fn cancelled(&self) -> WaitForCancellationFuture<'_> {
        self.cancellation.cancelled()
    }

    pub(in crate::server) fn with_current<T>(look: impl FnOnce(&CallScope) -> T) -> Option<T> {
        CURRENT.try_with(look).ok()
    }
}

impl PeerInfo {
    /// The connection of the call that is being handled; `None` outside of one. Costs nothing but
    /// a count of references.
    #[must_use]
    pub fn current() -> Option<Arc<Self>> {
        CallContext::with_current(|running| Arc::clone(running.peer()))
    }
}

/// Memory of exactly `len` bytes that a message's `bytes` field can be sent from, with unspecified
/// contents.
///
/// On a host with RDMA, and once a connection uses it, the memory is registered, and a field of at
/// least 64 KiB that lies in it is read by the peer from where it lies. Applications are lent at
/// most half of what a device may send from (`rdma.max_source_bytes`); beyond that, before the
/// first connection, and everywhere else the memory is plain, and the field is copied once.
/// [`Buffer::is_registered`] tells.
///
/// Where the keys of a device reach a whole buffer (`RkeyScope::Region`), a peer that is sent any
/// slice of it can read all of it, and what its next user writes, for as long as it stays
/// registered. There a buffer is zero when it is lent, so that it never shows an earlier user's
/// bytes; slices for peers that must not see each other's belong in buffers of their own. Where
/// windows are used (`RkeyScope::Window`), a peer reads the slice alone.
///
/// In a handler the memory belongs to the device of the connection that its call came in on, so
/// that it is right for the answer; elsewhere to the one with the most connections. What goes out
/// by another device, or under other rules on the same one, is copied.
/// `Channel::buffer` is right for requests.
///
/// The memory is in use until the last `Bytes` made from it are gone and the peer has read them.
///
/// # Cancel safety
///
/// This function is cancel safe: no memory stays taken. It never waits for memory to become free;
/// registering a long buffer for the first time takes milliseconds, on another thread.
///
/// # Examples
///
/// ```
/// # async fn example() {
/// let mut buffer = farcall::buffer(1 << 20).await;
/// buffer.fill(7);
/// let payload: bytes::Bytes = buffer.freeze();
/// // A message with `payload` in a `bytes` field goes out without a copy.
/// # }
/// ```
pub async fn buffer(len: usize) -> Buffer {
    match PeerInfo::current().and_then(|peer| peer.buffers.source()) {
        Some(source) => buffer_of(Some(source), len).await,
        None => any_buffer(len).await,
    }
}

/// The call that a task handles: the value of the task-local.
#[derive(Debug)]
pub(in crate::server) struct CallScope {
    method: &'static MethodDescriptor,
    time_limit: TimeLimit,
    peer: Arc<PeerInfo>,
    cancellation: OnceCell<CancellationToken>,
}

impl CallScope {
    pub(in crate::server) fn new(
        method: &'static MethodDescriptor,
        time_limit: TimeLimit,
        peer: Arc<PeerInfo>,
    ) -> Self {
        Self { method, time_limit, peer, cancellation: OnceCell::new() }
    }

    pub(in crate::server) fn method(&self) -> &'static MethodDescriptor {
        self.method
    }

    pub(in crate::server) fn time_limit(&self) -> TimeLimit {
        self.time_limit
    }

    pub(in crate::server) fn deadline(&self) -> Option<Deadline> {
        self.time_limit.deadline()
    }

    pub(in crate::server) fn peer(&self) -> &Arc<PeerInfo> {
        &self.peer
    }

    /// Runs a handler as this call's; calls that it makes inherit the call's deadline.
    pub(in crate::server) fn scope<F: Future<Output = ()>>(
        self,
        handler: F,
    ) -> impl Future<Output = ()> + use<F> {
        let deadline = self.deadline();
        CURRENT.scope(self, Deadline::of_call(deadline, handler))
    }

    fn context(&self) -> CallContext {
        CallContext {
            method: self.method,
            deadline: self.deadline(),
            peer: Arc::clone(&self.peer),
            cancellation: self.cancellation.get_or_init(CancellationToken::new).clone(),
        }
    }
}

/// The status of the call that is being handled, when its time is over.
pub(in crate::server) fn time_exceeded() -> Status {
    let exceeded = CallContext::with_current(|running| running.time_limit.exceeded());
    exceeded.unwrap_or_else(refusal::deadline_exceeded)
}

/// The drop guard of a handler. Dropped before the handler has ended, it fires the call's
/// cancellation token.
#[derive(Debug)]
#[must_use]
pub(in crate::server) struct CancelOnDrop {
    is_finished: bool,
}

impl CancelOnDrop {
    pub(in crate::server) fn new() -> Self {
        Self { is_finished: false }
    }

    /// Records that the handler has ended by itself.
    pub(in crate::server) fn finish(mut self) {
        self.is_finished = true;
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if !self.is_finished {
            // A task-local future drops what it runs inside its scope.
            CallContext::with_current(|running| {
                running.cancellation.get().map(CancellationToken::cancel)
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::Addresses;
    use crate::{CallKind, Idempotency};

    static METHOD: MethodDescriptor = MethodDescriptor {
        path: "/t.T/M",
        kind: CallKind::Unary,
        idempotency: Idempotency::Unknown,
        detach: crate::Detach::NONE,
    };

    fn running() -> CallScope {
        let peer = PeerInfo::new("none", Addresses::default());
        CallScope::new(&METHOD, TimeLimit::None, Arc::new(peer))
    }

    #[tokio::test]
    async fn there_is_a_context_inside_a_call_only() {
        assert!(CallContext::current().is_none());
        assert!(PeerInfo::current().is_none());
        let handler = async {
            assert_eq!(CallContext::current().map(|call| call.method().path), Some("/t.T/M"));
            assert_eq!(PeerInfo::current().map(|peer| peer.transport), Some("none"));
        };
        running().scope(handler).await;
    }

    #[tokio::test]
    async fn dropping_the_handler_fires_the_token_and_ending_does_not() {
        let (sender, receiver) = std::sync::mpsc::channel();
        let handler = |wait| {
            let sender = sender.clone();
            running().scope(async move {
                let cancel_on_drop = CancelOnDrop::new();
                sender.send(CallContext::current().unwrap()).unwrap();
                if wait {
                    std::future::pending::<()>().await;
                }
                cancel_on_drop.finish();
            })
        };
        {
            let mut dropped = Box::pin(handler(true));
            assert!(futures::poll!(&mut dropped).is_pending());
        }
        handler(false).await;
        let [dropped, ended] = [receiver.recv().unwrap(), receiver.recv().unwrap()];
        assert!(dropped.is_cancelled());
        assert!(!ended.is_cancelled());
    }
}
