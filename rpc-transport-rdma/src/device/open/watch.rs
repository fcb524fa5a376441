//! The task that waits for what happens to one device, and acts on it.
//!
//! It lives as long as the device has a worker. If it goes before, because its runtime does, the
//! workers that are left end too: no task would receive their ports' events any more.
//! [`Response`] decides purely on each event, and [`Inquiry`] on the questions to the device.

use std::future::poll_fn;
use std::sync::Arc;

use rpc_core::Reason;
use rpc_core::transport::CloseReason;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::connection::Connection;
use crate::device::open::cache::SharedCache;
use crate::device::open::inquiry::{Inquiry, PORT_GRACE};
use crate::device::open::response::{Response, response};
use crate::device::{FoundPort, ports_of};
use crate::sys::provider::commands::on_lane;
use crate::verbs::{AsyncEvent, Device, FirmwareCommand, PortState, VerbsError};
use crate::worker::WorkerShared;
use crate::{AsyncEventKind, DeviceEvent};

/// The answer to a query of a device's ports.
type Ports = Result<Vec<FoundPort>, VerbsError>;

/// The opening of a device that is watched.
#[derive(Clone)]
struct Watched {
    device: Device,
    shared: Arc<SharedCache>,
}

/// The task of one opening of a device.
pub(crate) struct Watch {
    watched: Watched,
    is_over: bool,
    inquiry: Inquiry,
}

impl Watch {
    pub(super) fn new(device: Device, shared: Arc<SharedCache>) -> Self {
        let watched = Watched { device, shared };
        Self { watched, is_over: false, inquiry: Inquiry::default() }
    }

    pub(crate) async fn run(mut self) {
        // The answer to the query that the firmware has. An event must not wait for it: that of a
        // device that is gone comes while the firmware hangs.
        let mut query: Option<oneshot::Receiver<Ports>> = None;
        while let Some(stop) = self.watched.shared.next_stop(&self.watched.device) {
            if self.inquiry.begin_query() {
                query = Some(self.watched.query());
            }
            let event = poll_fn(|context| self.watched.device.poll_async_event(context));
            let deadline = self.inquiry.next_deadline();
            let expired = async {
                match deadline {
                    Some(deadline) => tokio::time::sleep_until(deadline).await,
                    None => std::future::pending().await,
                }
            };
            let answered = async {
                match &mut query {
                    Some(query) => query.await.unwrap_or(Err(VerbsError::NoRuntime)),
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                // An event that has come before the end of the grace counts.
                biased;
                () = stop.cancelled() => {}
                event = event => self.handle_next(event),
                ports = answered => {
                    query = None;
                    self.handle_answer(ports);
                }
                () = expired => {
                    for port in self.inquiry.handle_deadline(Instant::now()) {
                        self.watched.end_suspect(port, &[]);
                    }
                }
            }
            // Events without end must not starve other tasks.
            tokio::task::consume_budget().await;
        }
        self.is_over = true;
    }

    fn handle_next(&mut self, event: Result<AsyncEvent, VerbsError>) {
        match event {
            Ok(event) => self.handle(&event),
            Err(error) => {
                let message = format!("{} is lost: {error}", self.watched.device.name());
                self.watched.lose(Reason::new(message, error));
            }
        }
    }

    /// Acts on the ports as a query has found them.
    fn handle_answer(&mut self, ports: Ports) {
        let _on_lane = on_lane();
        let (questions, suspects) = self.inquiry.handle_answer();
        let device = self.watched.device.name();
        // If the device does not answer, the next search logs the ports that can serve.
        match &ports {
            Ok(found) => self.watched.shared.tell_ports(Some(device), found),
            Err(error) if questions.addresses.is_some() => rpc_core::limited_log!(
                target: "farcall::rdma",
                process_wide, WARN, "cannot ask for a device's addresses", device, %error
            ),
            Err(_) => {}
        }
        if let (Some(kind), Ok(found)) = (questions.addresses, &ports) {
            self.watched.end_unreachable(kind, found);
        }
        let found = ports.unwrap_or_default();
        for port in suspects {
            self.watched.end_suspect(port, &found);
        }
    }

    fn handle(&mut self, event: &AsyncEvent) {
        let _on_lane = on_lane();
        let device = self.watched.device.name();
        self.watched.shared.count(&self.watched.device, event.kind);
        let kind = event.kind;
        let ended = match response(event) {
            Response::Ignore => 0,
            Response::Trust(port) => {
                self.watched.shared.forget();
                self.inquiry.trust(port);
                0
            }
            Response::Suspect(port) => {
                // No new connection finds the port while it is down.
                self.watched.shared.forget();
                self.inquiry.suspect(port, Instant::now());
                self.watched.each_worker(WorkerShared::flush_spares);
                0
            }
            Response::CheckAddresses => {
                self.watched.shared.forget();
                self.watched.each_worker(WorkerShared::flush_spares);
                return self.inquiry.check_addresses(kind);
            }
            Response::EndQueuePair(number) => self.watched.end_queue_pair(number, event),
            Response::EndWorkers => {
                let message = format!("a queue of {device} broke ({kind:?})");
                self.watched.end_workers(Reason::new(message, DeviceEvent::new(kind)))
            }
            Response::EndDevice => {
                let message = format!("the RDMA device {device} is gone ({kind:?})");
                self.watched.lose(Reason::new(message, DeviceEvent::new(kind)));
                return;
            }
            Response::Replenish => {
                return self.watched.each_worker(WorkerShared::handle_receive_limit);
            }
            // Not logged: it comes with every connection that ends.
            Response::EndReceives(number) => {
                return self.watched.each_worker(|worker| worker.handle_last_receive(number));
            }
        };
        self.watched.log(event, ended);
    }
}

impl Watched {
    /// Logs an event, with the number of connections that end by it.
    fn log(&self, event: &AsyncEvent, ended: usize) {
        let (device, kind) = (self.device.name(), event.kind);
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

    /// Ends the connections of a port that has been down for its grace, unless it is among `found`
    /// as active: a report of its return may be lost in an overflow of the kernel's queue. Firmware
    /// that hangs says nothing for the port.
    fn end_suspect(&self, suspect: Option<u8>, found: &[FoundPort]) {
        let is_active = |port: u8| {
            found.iter().any(|it| it.port == port && it.attributes.state == PortState::Active)
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
    fn end_unreachable(&self, kind: AsyncEventKind, found: &[FoundPort]) {
        let device = self.device.name();
        let message = format!("{device} no longer has the connection's address ({kind:?})");
        let reason = Reason::new(message, DeviceEvent::new(kind));
        let ended = self.end_where(reason, |connection| connection.reach.is_lost(found));
        rpc_core::limited_log!(
            target: "farcall::rdma",
            process_wide, WARN, "an RDMA device event", device, ?kind, ended
        );
    }

    /// Queries the ports' current state. The query may wait for the device's firmware.
    fn query(&self) -> oneshot::Receiver<Ports> {
        let (device, (answer, answered)) = (self.device.clone(), oneshot::channel());
        let bulk = &self.device.commands().bulk;
        bulk.push(FirmwareCommand::Query, move || drop(answer.send(ports_of(&device))));
        bulk.serve(&Handle::current());
        answered
    }

    fn end_queue_pair(&self, number: u32, event: &AsyncEvent) -> usize {
        let (device, kind) = (self.device.name(), event.kind);
        let message = format!("queue pair {number} of {device} broke ({kind:?})");
        let reason = Reason::new(message, DeviceEvent::new(kind));
        self.end_where(reason, |connection| connection.numbers().any(|of| of == number))
    }

    fn end_where(&self, reason: Reason, is_concerned: impl Fn(&Connection) -> bool) -> usize {
        let reason = CloseReason::Failed(reason);
        let mut ended = 0;
        self.each_worker(|worker| ended += worker.end_connections(&reason, &is_concerned));
        ended
    }

    fn end_workers(&self, reason: Reason) -> usize {
        let reason = CloseReason::Failed(reason);
        let mut ended = 0;
        self.each_worker(|worker| ended += worker.lose(&reason));
        ended
    }

    fn each_worker(&self, act: impl FnMut(&WorkerShared)) {
        each_of(&self.shared.workers(&self.device), act);
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
        let mut ended = 0;
        each_of(&self.shared.remove(&self.device), |worker| ended += worker.lose(reason));
        ended
    }
}

fn each_of(workers: &[Arc<WorkerShared>], act: impl FnMut(&WorkerShared)) {
    workers.iter().map(|worker| &**worker).for_each(act);
}

/// Also when the runtime goes away: no task would wait for the device's events.
impl Drop for Watch {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        self.watched.let_go(&rpc_core::transport::task_dropped());
    }
}
