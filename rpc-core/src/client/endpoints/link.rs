//! The subchannel to one endpoint, as the driver sees it.
//!
//! gRPC's health checking is a part of it, as a client does it: a server that says that it does not
//! serve gets no calls while its connection stays (gRPC's A17).

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use prost::Message;
use tokio::sync::{Mutex, watch};
use tokio::time::sleep;
use tonic::{Code, Request, Status, Streaming};

use super::driver::{Backoff, Link};
use super::shared::now;
use crate::balance::Connectivity;
use crate::client::attempts::SharedAttempts;
use crate::client::subchannel::Subchannel;
use crate::client::{CallRules, Caller, server_streaming};
use crate::{CallKind, Idempotency, MethodDescriptor};

/// The pause after an attempt that cannot succeed in this process: the list may change.
const HOPELESS_PAUSE: Duration = Duration::from_secs(60);

/// Rules of the health watch. A server without the service has no line in the log for it.
const WATCH_RULES: CallRules = CallRules { log_failures: false, ..CallRules::DEFAULT };

/// Between two attempts to watch a server whose watch has failed.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// The value of a response's status that stands for a server which serves.
const SERVING: i32 = 1;

static WATCH: MethodDescriptor = MethodDescriptor::new(
    "/grpc.health.v1.Health/Watch",
    CallKind::ServerStreaming,
    Idempotency::NoSideEffects,
);

/// The subchannel to an endpoint, and what its server says of itself where that is asked for.
#[derive(Debug, Clone)]
pub(super) struct EndpointLink {
    pub(super) subchannel: Subchannel,
    watch: Option<HealthWatch>,
}

impl EndpointLink {
    pub(super) fn new(subchannel: Subchannel, health_check: Option<&str>) -> Self {
        Self { subchannel, watch: health_check.map(HealthWatch::new) }
    }

    /// Waits until the server says something else of itself; for ever where it is not asked.
    async fn health_changed(&self) {
        let Some(watch) = &self.watch else { return std::future::pending().await };
        let route = self.subchannel.route(&WATCH_RULES, Some(SharedAttempts::none()));
        watch.changed(&route, watch.health()).await;
    }
}

impl Link for EndpointLink {
    async fn connect(&self, backoff: Backoff) -> Result<(), (String, Instant)> {
        if let Some(watch) = &self.watch {
            // The health of the connection before says nothing of this one.
            watch.reset().await;
        }
        if backoff == Backoff::Reset {
            self.subchannel.managers().iter().for_each(|manager| manager.reset_backoff());
        }
        let manager = &self.subchannel.here().into_owned().manager;
        let Err(error) = manager.connection().await else { return Ok(()) };
        let due = match error.may_pass() {
            true => manager.next_connect(),
            false => now() + HOPELESS_PAUSE,
        };
        Err((error.reason(), due))
    }

    fn state(&self) -> Connectivity {
        // A subchannel without a connection is idle, and not failed: the driver decides on the next
        // attempt.
        let Some(info) = self.subchannel.here().manager.info() else { return Connectivity::Idle };
        match self.watch.as_ref().map_or(Health::Serves, HealthWatch::health) {
            Health::Unknown => Connectivity::Connecting,
            Health::Serves => Connectivity::Ready { is_upgraded: info.is_upgraded },
            Health::DoesNotServe => Connectivity::TransientFailure,
        }
    }

    fn disconnect(&self) {
        for manager in self.subchannel.managers() {
            if let Some(connection) = manager.open() {
                // Not closed: calls in flight end on it.
                connection.retire();
            }
        }
    }

    fn set_alternatives(&self, alternatives: &Arc<[SocketAddr]>) {
        self.subchannel.manager.set_alternatives(alternatives);
    }

    async fn left(&self, state: Connectivity) {
        let subchannel = self.subchannel.here().into_owned();
        loop {
            // Before the look, so that no connection made after it is missed.
            let connected = subchannel.manager.connected();
            let Some(connection) = subchannel.manager.open() else { return };
            if self.state() != state {
                return;
            }
            let ended = connection.ended();
            let is_renewed = tokio::select! {
                () = ended.cancelled() => true,
                () = connected => true,
                () = self.health_changed() => false,
            };
            // The watch would keep a connection whose place another has taken. It is reset outside
            // of the `select!`, since `changed` holds the watch's lock while it waits.
            if is_renewed && let Some(watch) = &self.watch {
                watch.reset().await;
            }
        }
    }
}

#[derive(Clone, PartialEq, Message)]
struct HealthCheckRequest {
    #[prost(string, tag = "1")]
    service: String,
}

#[derive(Clone, PartialEq, Message)]
struct HealthCheckResponse {
    #[prost(int32, tag = "1")]
    status: i32,
}

/// A server's report on its health.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Health {
    /// Nothing on this connection yet.
    #[default]
    Unknown,
    Serves,
    /// It says that it does not serve, or its watch has failed.
    DoesNotServe,
}

/// The watch of one endpoint, of a service by its name.
#[derive(Clone)]
struct HealthWatch {
    service: Arc<str>,
    health: Arc<watch::Sender<Health>>,
    /// The stream of the present connection.
    stream: Arc<Mutex<Option<Streaming<HealthCheckResponse>>>>,
}

impl fmt::Debug for HealthWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HealthWatch")
            .field("service", &self.service)
            .field("health", &*self.health.borrow())
            .finish_non_exhaustive()
    }
}

impl HealthWatch {
    pub(super) fn new(service: &str) -> Self {
        let (health, stream) = (Arc::default(), Arc::default());
        Self { service: service.into(), health, stream }
    }

    fn health(&self) -> Health {
        *self.health.borrow()
    }

    /// Begins anew, for another connection.
    pub(super) async fn reset(&self) {
        *self.stream.lock().await = None;
        self.health.send_replace(Health::Unknown);
    }

    /// Waits until the server's word is another than `known`.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe: the stream stays.
    pub(super) async fn changed(&self, caller: &impl Caller, known: Health) {
        // Held while it waits, so that the clones of a link share one watch. A `reset` beside it
        // would wait for the server.
        let mut stream = self.stream.lock().await;
        while self.health() == known {
            let said = match &mut *stream {
                Some(responses) => responses.message().await,
                None => match self.watch(caller).await {
                    Ok(responses) => {
                        *stream = Some(responses);
                        continue;
                    }
                    Err(status) => Err(status),
                },
            };
            let has_service = !matches!(&said, Err(status) if status.code() == Code::Unimplemented);
            let health = match said {
                Ok(Some(HealthCheckResponse { status: SERVING })) => Health::Serves,
                Ok(Some(_)) => Health::DoesNotServe,
                // A server without the service is taken at its connection's word.
                Err(_) if !has_service => Health::Serves,
                Ok(None) | Err(_) => {
                    *stream = None;
                    Health::DoesNotServe
                }
            };
            let is_known = self.health.send_replace(health) == health;
            if is_known && !has_service {
                // It is not asked again on this connection.
                return std::future::pending().await;
            }
            if is_known {
                // A watch that fails again and again.
                sleep(RETRY_DELAY).await;
            }
        }
    }

    async fn watch(&self, caller: &impl Caller) -> Result<Streaming<HealthCheckResponse>, Status> {
        let request = HealthCheckRequest { service: (*self.service).to_owned() };
        let response = server_streaming(caller, &WATCH, Request::new(request)).await?;
        Ok(response.into_inner())
    }
}
