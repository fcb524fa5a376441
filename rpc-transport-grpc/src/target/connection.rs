//! A connection to a server of gRPC, and the calls on it.

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use futures::future::BoxFuture;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
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

/// The stream of a server of gRPC.
pub(super) type ServerStream = FirstFrame<ReadToEnd<Box<dyn Bootstrap>>>;

/// What an attempt to connect has opened.
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

/// The client's end of a connection over HTTP/2.
pub(super) struct GrpcConnection {
    /// Absent once no calls are to be started: hyper closes a connection without senders after its
    /// last call.
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
        let said = Arc::clone(&goodbye);
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
            // Also when the task is dropped where it waits, and then before hyper's connection:
            // calls that find that gone ask for the reason.
            let _ended = ended;
            let ended = driver.as_mut().await;
            let failed = |error| {
                let message = said.explain(call::words_of(&error));
                CloseReason::Failed(Reason::new(message, error))
            };
            let reason = ended.map_or_else(failed, |()| CloseReason::Peer);
            // Before the guard fires the token: its waiters ask for the reason.
            let _ = this.reason.set(reason);
        });
        let _ = connection.driver.set(task.abort_handle());
        connection
    }

    fn sender(&self) -> Option<SendRequest<Body>> {
        self.sender.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn forget_sender(&self) {
        self.sender.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

/// Counts a call while it is there.
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
            let Some(sender) = self.sender() else {
                let words = format!("the connection to {} takes no more calls", self.server.name);
                let words = self.server.goodbye.explain(words);
                return Err(NotExecuted::mark(Status::unavailable(words)));
            };
            let server = self.server.clone();
            let in_flight = InFlight::new(Arc::clone(&self));
            let reply = call::make(sender, server, call, Box::new(in_flight)).await;
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
        let sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        !self.ended.is_cancelled() && sender.as_ref().is_some_and(|sender| !sender.is_closed())
    }

    fn closed(&self) -> Option<CloseReason> {
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
        self.forget_sender();
    }

    fn close(&self) {
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
