//! The task that waits for what happens to one device, and acts on it.
//!
//! It lives as long as the device has a worker. If it goes before, because its runtime does, the
//! workers that are left end too: no task would receive their ports' events any more.
//! What an event asks for is decided purely ([`Response`]).

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use rpc_core::Reason;
use rpc_core::transport::CloseReason;
use tokio::time::Instant;

use crate::connection::Connection;
use crate::device::open::cache::SharedCache;
use crate::device::{FoundPort, ports_of};
use crate::verbs::{AsyncEvent, Device, PortState, VerbsError};
use crate::{AsyncEventKind, DeviceEvent};

/// Time for which the connections of a port stay that went down. A cable that is seated anew, or a
/// bond that changes its port, is back in less, and retransmissions bridge about as much: the queue
/// pairs of a dead link give up by themselves.
const PORT_GRACE: Duration = Duration::from_secs(2);

/// Number of the event that tells of another table of partitions (`IBV_EVENT_PKEY_CHANGE`).
const PARTITION_CHANGE: i32 = 12;

/// The task of one opening of a device.
pub(crate) struct Watch {
    device: Device,
    shared: Arc<SharedCache>,
    is_over: bool,
    /// Ports that went down and were not reported as active since, and when their connections end.
    /// `None` stands for all ports.
    suspects: HashMap<Option<u8>, Instant>,
}

impl Watch {
    pub(super) fn new(device: Device, shared: Arc<SharedCache>) -> Self {
        Self { device, shared, is_over: false, suspects: HashMap::new() }
    }

    pub(crate) async fn run(mut self) {
        while let Some(stop) = self.shared.next_stop(&self.device) {
            let event = poll_fn(|context| self.device.poll_async_event(context));
            let suspect = self.suspects.iter().min_by_key(|(_, until)| **until);
            let suspect = suspect.map(|(port, until)| (*port, *until));
            let expired = async {
                match suspect {
                    Some((port, until)) => {
                        tokio::time::sleep_until(until).await;
                        port
                    }
                    None => std::future::pending().await,
                }
            };
            let event = tokio::select! {
                // An event that has come before the end of the grace counts.
                biased;
                () = stop.cancelled() => continue,
                event = event => event,
                port = expired => {
                    self.suspects.remove(&port);
                    self.end_suspect(port).await;
                    continue;
                }
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

    async fn handle(&mut self, event: &AsyncEvent) {
        let device = self.device.name();
        self.shared.count(&self.device, event.kind);
        let kind = event.kind;
        let ended = match response(event) {
            Response::Ignore => 0,
            Response::Trust(port) => {
                match port {
                    Some(_) => drop(self.suspects.remove(&port)),
                    None => self.suspects.clear(),
                }
                self.shared.forget();
                self.tell_ports().await;
                0
            }
            Response::Suspect(port) => {
                // A second report in a row does not lengthen the first one's grace.
                let until = Instant::now() + PORT_GRACE;
                self.suspects.entry(port).or_insert(until);
                // No new connection finds the port while it is down.
                self.shared.forget();
                self.tell_ports().await;
                0
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
            Response::Ignore | Response::Trust(_) => {
                rpc_core::limited_log!(
                    target: "farcall::rdma",
                    process_wide,
                    INFO,
                    "ignored an RDMA device event",
                    device,
                    ?kind,
                    port,
                    queue_pair
                );
            }
            _ => rpc_core::limited_log!(
                target: "farcall::rdma",
                process_wide,
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

    /// Ends the connections of a port that has been down for its grace.
    async fn end_suspect(&self, suspect: Option<u8>) {
        // A report of its return may be lost in an overflow of the kernel's queue.
        let found = self.look().await;
        let is_active = |port: u8| {
            let mut ports = found.iter().flatten();
            ports.any(|it| it.port == port && it.attributes.state == PortState::Active)
        };
        let (device, grace) = (self.device.name(), PORT_GRACE);
        let message = match suspect {
            Some(port) => format!("port {port} of {device} went down (PortError) for {grace:?}"),
            None => format!("a port of {device} went down (PortError) for {grace:?}"),
        };
        let reason = Reason::new(message, DeviceEvent::new(AsyncEventKind::PortError));
        let ended = self.end_where(reason, |connection| {
            let port = connection.reach.port;
            suspect.is_none_or(|suspect| suspect == port) && !is_active(port)
        });
        rpc_core::limited_log!(
            target: "farcall::rdma",
            process_wide,
            WARN,
            "an RDMA port stays down",
            device,
            port = suspect,
            ended
        );
    }

    /// Ends the connections whose address has disappeared from their port.
    async fn check_addresses(&self) -> usize {
        self.shared.forget();
        let name = self.device.name();
        match self.look().await {
            Ok(found) => {
                self.shared.tell_ports(Some(name), &found);
                self.end_where(
                    format!("{name} no longer has the connection's address").into(),
                    |connection| connection.reach.is_lost(&found),
                )
            }
            Err(error) => {
                rpc_core::limited_log!(
                    target: "farcall::rdma",
                    process_wide, WARN, "cannot ask for a device's addresses", device = name, %error
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
    /// A port is back, or all are: ports are looked up anew.
    Trust(Option<u8>),
    /// A port went down: its connections end unless it comes back soon; those of all ports if the
    /// event names none.
    Suspect(Option<u8>),
    /// The addresses or partitions of ports may have changed: they are looked up anew, and
    /// connections whose own address is gone end.
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
        AsyncEventKind::PortActive => Response::Trust(event.port),
        AsyncEventKind::PortError => Response::Suspect(event.port),
        // A queue pair in a partition by its old place in the table would reach no peer.
        AsyncEventKind::GidChange
        | AsyncEventKind::LidChange
        | AsyncEventKind::Other(PARTITION_CHANGE) => Response::CheckAddresses,
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
            (AsyncEventKind::PortActive, Response::Trust(Some(2))),
            (AsyncEventKind::PortError, Response::Suspect(Some(2))),
            (AsyncEventKind::GidChange, Response::CheckAddresses),
            (AsyncEventKind::LidChange, Response::CheckAddresses),
            (AsyncEventKind::Other(PARTITION_CHANGE), Response::CheckAddresses),
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
        assert_eq!(response(&event(AsyncEventKind::PortError)), Response::Suspect(None));
    }
}
