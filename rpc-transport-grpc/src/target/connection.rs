//! A connection to a gRPC server, and the calls on it.

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use futures::future::BoxFuture;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use rpc_core::client::{Connection, EncodedCall, EncodedCalls, EncodedReply};
use rpc_core::connect::{Bootstrap, ConnectionInfo};
use rpc_core::transport::{Addresses, CloseReason, TransportStats};
use rpc_core::{BufferSource, Limits, NotExecuted, Reason, Status};
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;
use tonic::body::Body;

use super::call::{self, Server};
use super::first_frame::FirstFrame;
use super::goodbye::{Goodbye, ReadToEnd};
use super::scheme::Scheme;

/// The byte stream of a gRPC server.
pub(super) type ServerStream = FirstFrame<ReadToEnd<Box<dyn Bootstrap>>>;

/// The parts of a freshly opened connection.
pub(super) struct Opened {
    pub(super) sender: SendRequest<Body>,
    pub(super) driver: http2::Connection<TokioIo<ServerStream>, Body, TokioExecutor>,
    pub(super) goodbye: Arc<Goodbye>,
    pub(super) addresses: Addresses,
    /// The server's address as the user wrote it.
    pub(super) server: Arc<str>,
    pub(super) scheme: Scheme,
    pub(super) authority: String,
    pub(super) limits: Limits,
}

/// The client's end of an HTTP/2 connection.
pub(super) struct GrpcConnection {
    /// Taken when the connection accepts no more calls. hyper closes a connection without senders
    /// after its last call.
    sender: Mutex<Option<SendRequest<Body>>>,
    server: Server,
    addresses: Addresses,
    answered_count: AtomicU64,
    in_flight_count: AtomicUsize,
    ended: CancellationToken,
    reason: OnceLock<CloseReason>,
    driver: OnceLock<AbortHandle>,
}

impl GrpcConnection {
    /// Starts the task that drives the connection.
    pub(super) fn start(opened: Opened) -> Arc<Self> {
        let Opened { sender, driver, goodbye, addresses, server, scheme, authority, limits } =
            opened;
        let last_words = Arc::clone(&goodbye);
        let connection = Arc::new(Self {
            sender: Mutex::new(Some(sender)),
            server: Server { name: server, scheme, authority, limits, goodbye },
            addresses,
            answered_count: AtomicU64::new(0),
            in_flight_count: AtomicUsize::new(0),
            ended: CancellationToken::new(),
            reason: OnceLock::new(),
            driver: OnceLock::new(),
        });
        let this = Arc::clone(&connection);
        let ended = connection.ended.clone().drop_guard();
        let task = tokio::spawn(async move {
            let mut driver = std::pin::pin!(driver);
            // Drops before hyper's connection, also if the runtime drops this task while it waits.
            // Calls that find the connection gone ask for the reason.
            let _ended = ended;
            let ended = driver.as_mut().await;
            let failed = |error| {
                let message = last_words.explain(call::describe(&error));
                CloseReason::Failed(Reason::new(message, error))
            };
            let reason = ended.map_or_else(failed, |()| CloseReason::Peer);
            // Set before the guard cancels the token, because its waiters ask for the reason.
            let _ = this.reason.set(reason);
        });
        // The task needs the connection and the connection its task, so this handle comes last.
        // `close` can only run afterwards: no other code has the connection yet.
        let _ = connection.driver.set(task.abort_handle());
        connection
    }

    fn sender(&self) -> Option<SendRequest<Body>> {
        self.sender.lock().clone()
    }

    fn forget_sender(&self) {
        self.sender.lock().take();
    }
}

/// A guard that counts a call in flight.
struct InFlight(Arc<GrpcConnection>);

impl InFlight {
    fn new(connection: Arc<GrpcConnection>) -> Self {
        connection.in_flight_count.fetch_add(1, Ordering::Relaxed);
        Self(connection)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight_count.fetch_sub(1, Ordering::Relaxed);
    }
}

impl EncodedCalls for GrpcConnection {
    fn call(
        self: Arc<Self>,
        call: EncodedCall,
    ) -> BoxFuture<'static, Result<EncodedReply, Status>> {
        Box::pin(async move {
            // `retire` took the sender. The call never started, so another connection may run it.
            let Some(sender) = self.sender() else {
                let message = format!("the connection to {} takes no more calls", self.server.name);
                let message = self.server.goodbye.explain(message);
                return Err(NotExecuted::mark(Status::unavailable(message)));
            };
            let server = self.server.clone();
            let in_flight = InFlight::new(Arc::clone(&self));
            let reply = call::make(sender, server, call, Box::new(in_flight)).await;
            // A status from the server proves that the connection works, even if the call failed.
            // One that this side made up does not.
            let is_answered = match &reply {
                Ok(_) => true,
                Err(status) => !NotExecuted::matches(status) && self.is_open(),
            };
            if is_answered {
                self.answered_count.fetch_add(1, Ordering::Relaxed);
            }
            reply
        })
    }
}

impl Connection for GrpcConnection {
    fn is_open(&self) -> bool {
        let sender = self.sender.lock();
        !self.ended.is_cancelled() && sender.as_ref().is_some_and(|sender| !sender.is_closed())
    }

    fn closed(&self) -> Option<CloseReason> {
        // The guard fires without a reason only if the runtime dropped the task.
        self.ended
            .is_cancelled()
            .then(|| self.reason.get().cloned().unwrap_or(CloseReason::RuntimeEnded))
    }

    fn answered_count(&self) -> u64 {
        self.answered_count.load(Ordering::Relaxed)
    }

    fn ended(&self) -> CancellationToken {
        self.ended.clone()
    }

    fn retire(&self) {
        // Calls in flight hold their own senders. hyper closes the connection after the last one.
        self.forget_sender();
    }

    fn close(&self) {
        // The first reason wins. Without it, the aborted task would report that the runtime ended.
        let _ = self.reason.set(CloseReason::Local);
        self.forget_sender();
        if let Some(driver) = self.driver.get() {
            driver.abort();
        }
    }

    fn buffers(&self) -> Option<Arc<dyn BufferSource>> {
        None
    }

    fn info(&self) -> ConnectionInfo {
        let in_flight = self.in_flight_count.load(Ordering::Relaxed);
        ConnectionInfo::new("grpc", self.addresses.clone(), in_flight, TransportStats::default())
    }
}

impl fmt::Debug for GrpcConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrpcConnection")
            .field("server", &self.server.name)
            .field("addresses", &self.addresses)
            .finish_non_exhaustive()
    }
}
