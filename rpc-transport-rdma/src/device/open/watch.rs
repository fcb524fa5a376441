//! The task that waits for what happens to one device, and acts on it.
//!
//! It lives as long as the device has a worker. If it goes before, because its runtime does, the
//! workers that are left end too: no task would receive their ports' events any more.
//! What an event asks for is decided purely ([`Response`]).

use std::future::poll_fn;
use std::sync::Arc;

use rpc_core::Reason;
use rpc_core::transport::CloseReason;

use crate::connection::Connection;
use crate::device::open::cache::SharedCache;
use crate::device::{FoundPort, ports_of};
use crate::verbs::{AsyncEvent, Device, VerbsError};
use crate::{AsyncEventKind, DeviceEvent};

/// The task of one opening of a device.
pub(crate) struct Watch {
    device: Device,
    shared: Arc<SharedCache>,
    is_over: bool,
}

impl Watch {
    pub(super) fn new(device: Device, shared: Arc<SharedCache>) -> Self {
        Self { device, shared, is_over: false }
    }

    pub(crate) async fn run(mut self) {
        while let Some(stop) = self.shared.next_stop(&self.device) {
            let event = poll_fn(|context| self.device.poll_async_event(context));
            let event = tokio::select! {
                () = stop.cancelled() => continue,
                event = event => event,
            };
            match event {
                Ok(event) => self.handle(&event).await,
                Err(error) => {
                    let message = format!("{} is lost: {error}", self.device.name());
                    self.lose(Reason::new(message, error));
                }
            }
            // Events without end must not starve other tasks.
            tokio::task::consume_budget().await;
        }
        self.is_over = true;
    }

    async fn handle(&self, event: &AsyncEvent) {
        let device = self.device.name();
        self.shared.count(&self.device, event.kind);
        let kind = event.kind;
        let ended = match response(event) {
            Response::Ignore => 0,
            Response::LookAgain => {
                self.shared.forget();
                self.tell_ports().await;
                0
            }
            Response::EndPort(port) => {
                let ended = self.end_port(port);
                self.tell_ports().await;
                ended
            }
            Response::CheckAddresses => self.check_addresses().await,
            Response::EndQueuePair(number) => self.end_queue_pair(number, event),
            Response::EndWorkers => {
                let message = format!("a queue of {device} broke ({kind:?})");
                self.end_workers(Reason::new(message, DeviceEvent::new(kind)))
            }
            Response::EndDevice => {
                let message = format!("the RDMA device {device} is gone ({kind:?})");
                self.lose(Reason::new(message, DeviceEvent::new(kind)));
                return;
            }
            Response::Replenish => {
                self.shared
                    .workers(&self.device)
                    .iter()
                    .for_each(|worker| worker.handle_receive_limit());
                return;
            }
            // Not logged: it comes with every connection that ends.
            Response::EndReceives(number) => {
                let workers = self.shared.workers(&self.device);
                return workers.iter().for_each(|worker| worker.handle_last_receive(number));
            }
        };
        let (port, queue_pair) = (event.port, event.queue_pair_number);
        match response(event) {
            Response::Ignore | Response::LookAgain => {
                rpc_core::limited_log!(
                    target: "farcall::rdma",
                    of_process,
                    INFO,
                    "an RDMA device event without consequence",
                    device,
                    ?kind,
                    port,
                    queue_pair
                );
            }
            _ => rpc_core::limited_log!(
                target: "farcall::rdma",
                of_process,
                WARN,
                "an RDMA device event",
                device,
                ?kind,
                port,
                queue_pair,
                ended
            ),
        }
    }

    fn end_port(&self, port: Option<u8>) -> usize {
        self.shared.forget();
        let device = self.device.name();
        let message = match port {
            Some(port) => format!("port {port} of {device} went down (PortError)"),
            None => format!("a port of {device} went down (PortError)"),
        };
        let reason = Reason::new(message, DeviceEvent::new(AsyncEventKind::PortError));
        self.end_where(reason, |connection| port.is_none_or(|port| port == connection.reach.port))
    }

    /// Ends the connections whose address has disappeared from their port.
    async fn check_addresses(&self) -> usize {
        self.shared.forget();
        let name = self.device.name();
        match self.look().await {
            Ok(found) => {
                self.shared.tell_ports(Some(name), &found);
                self.end_where(
                    format!("{name} has the address of the connection no more").into(),
                    |connection| connection.reach.is_lost(&found),
                )
            }
            Err(error) => {
                rpc_core::limited_log!(
                    target: "farcall::rdma",
                    of_process, WARN, "cannot ask for a device's addresses", device = name, %error
                );
                0
            }
        }
    }

    /// Logs which ports can serve that could not, and the reverse. A device that does not say is
    /// told of by the next search.
    async fn tell_ports(&self) {
        if let Ok(found) = self.look().await {
            self.shared.tell_ports(Some(self.device.name()), &found);
        }
    }

    /// Queries the ports' current state. The query may wait for the device's firmware.
    async fn look(&self) -> Result<Vec<FoundPort>, VerbsError> {
        let device = self.device.clone();
        let looked = tokio::task::spawn_blocking(move || ports_of(&device)).await;
        looked.unwrap_or(Err(VerbsError::NoRuntime))
    }

    fn end_queue_pair(&self, number: u32, event: &AsyncEvent) -> usize {
        let (device, kind) = (self.device.name(), event.kind);
        let message = format!("queue pair {number} of {device} broke ({kind:?})");
        let reason = Reason::new(message, DeviceEvent::new(kind));
        self.end_where(reason, |connection| connection.numbers().any(|of| of == number))
    }

    fn end_where(&self, reason: Reason, is_concerned: impl Fn(&Connection) -> bool) -> usize {
        let reason = CloseReason::Failed(reason);
        let workers = self.shared.workers(&self.device);
        workers.iter().map(|worker| worker.end_connections(&reason, &is_concerned)).sum()
    }

    fn end_workers(&self, reason: Reason) -> usize {
        let reason = CloseReason::Failed(reason);
        self.shared.workers(&self.device).iter().map(|worker| worker.lose(&reason)).sum()
    }

    /// Gives the device up: its workers and connections end, and nothing here keeps it open.
    fn lose(&self, reason: Reason) {
        self.shared.tell_ports(Some(self.device.name()), &[]);
        let reason = CloseReason::Failed(reason);
        let ended = self.let_go(&reason);
        tracing::error!(
            target: "farcall::rdma",
            device = self.device.name(), %reason, ended, "an RDMA device is lost"
        );
    }

    fn let_go(&self, reason: &CloseReason) -> usize {
        let workers = self.shared.remove(&self.device);
        workers.iter().map(|worker| worker.lose(reason)).sum()
    }
}

/// Also when the runtime goes away: no task would wait for the device's events.
impl Drop for Watch {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        self.let_go(&rpc_core::transport::task_dropped());
    }
}

/// A response to an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Response {
    /// It is counted, and nothing follows from it.
    Ignore,
    /// Ports may be usable that were not: they are looked up anew.
    LookAgain,
    /// The connections of a port end; those of all ports if the event names none.
    EndPort(Option<u8>),
    /// The addresses of ports may have changed: connections whose own is gone end.
    CheckAddresses,
    /// The connection of a queue pair ends.
    EndQueuePair(u32),
    /// A queue that connections share is broken: the workers of the device end.
    EndWorkers,
    /// The device is gone.
    EndDevice,
    /// A shared receive queue runs low.
    Replenish,
    /// A queue pair in the error state takes no more receives.
    EndReceives(u32),
}

/// Returns the response to `event`.
pub(super) fn response(event: &AsyncEvent) -> Response {
    match event.kind {
        AsyncEventKind::PortActive => Response::LookAgain,
        AsyncEventKind::PortError => Response::EndPort(event.port),
        AsyncEventKind::GidChange | AsyncEventKind::LidChange => Response::CheckAddresses,
        AsyncEventKind::QueuePairFatal
        | AsyncEventKind::QueuePairRequestError
        | AsyncEventKind::QueuePairAccessError => {
            event.queue_pair_number.map_or(Response::Ignore, Response::EndQueuePair)
        }
        AsyncEventKind::CompletionQueueError | AsyncEventKind::SharedReceiveQueueError => {
            Response::EndWorkers
        }
        AsyncEventKind::DeviceFatal => Response::EndDevice,
        AsyncEventKind::ReceiveLimit => Response::Replenish,
        // It may never come: what waits for it has a bound.
        AsyncEventKind::LastReceiveReached => {
            event.queue_pair_number.map_or(Response::Ignore, Response::EndReceives)
        }
        AsyncEventKind::Other(_) => Response::Ignore,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(kind: AsyncEventKind) -> Response {
        response(&AsyncEvent { kind, port: Some(2), queue_pair_number: Some(17) })
    }

    #[test]
    fn each_kind_of_event_has_its_response() {
        let expected = [
            (AsyncEventKind::CompletionQueueError, Response::EndWorkers),
            (AsyncEventKind::SharedReceiveQueueError, Response::EndWorkers),
            (AsyncEventKind::QueuePairFatal, Response::EndQueuePair(17)),
            (AsyncEventKind::QueuePairRequestError, Response::EndQueuePair(17)),
            (AsyncEventKind::QueuePairAccessError, Response::EndQueuePair(17)),
            (AsyncEventKind::DeviceFatal, Response::EndDevice),
            (AsyncEventKind::PortActive, Response::LookAgain),
            (AsyncEventKind::PortError, Response::EndPort(Some(2))),
            (AsyncEventKind::GidChange, Response::CheckAddresses),
            (AsyncEventKind::LidChange, Response::CheckAddresses),
            (AsyncEventKind::ReceiveLimit, Response::Replenish),
            (AsyncEventKind::LastReceiveReached, Response::EndReceives(17)),
            (AsyncEventKind::Other(99), Response::Ignore),
        ];
        for (kind, response) in expected {
            assert_eq!(of(kind), response, "{kind:?}");
        }
    }

    #[test]
    fn an_event_without_its_subject_harms_nothing_else() {
        let event = |kind| AsyncEvent { kind, port: None, queue_pair_number: None };
        assert_eq!(response(&event(AsyncEventKind::QueuePairFatal)), Response::Ignore);
        assert_eq!(response(&event(AsyncEventKind::PortError)), Response::EndPort(None));
    }
}
