//! gRPC's health checking, as a client does it: a server that says that it does not serve gets no
//! calls while its connection stays (gRPC's A17).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use prost::Message;
use tokio::sync::{Mutex, watch};
use tokio::time::sleep;
use tonic::{Code, Request, Status, Streaming};

use crate::client::{Caller, server_streaming};
use crate::{CallKind, Detach, Idempotency, MethodDescriptor};

static WATCH: MethodDescriptor = MethodDescriptor {
    path: "/grpc.health.v1.Health/Watch",
    kind: CallKind::ServerStreaming,
    idempotency: Idempotency::NoSideEffects,
    detach: Detach::NONE,
};

/// Between two attempts to watch a server whose watch has failed.
const RETRY_DELAY: Duration = Duration::from_secs(1);

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

/// The value of a response's status that stands for a server which serves.
const SERVING: i32 = 1;

/// What a server has said of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Health {
    /// Nothing on this connection yet.
    #[default]
    Unknown,
    Serves,
    /// It says that it does not serve, or its watch has failed.
    DoesNotServe,
}

/// The watch of one endpoint, of a service by its name.
#[derive(Clone)]
pub(super) struct HealthWatch {
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

    pub(super) fn health(&self) -> Health {
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
