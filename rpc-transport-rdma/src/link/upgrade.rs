//! RDMA as an upgrade of a connection that starts on another path.

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::iter;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Weak};
use std::time::Duration;

use rpc_core::connect::{Candidate, Declined, Obstacle, PendingOffer, Upgrade};
use rpc_core::quota::{Charge, PeerKey};
use rpc_core::transport::{Addresses, CloseReason, Counters, PathInfo};
use tokio::time::Instant;

use crate::connection::buffers::State;
use crate::connection::live::Live;
use crate::connection::proof_plan::{ProofPlan, is_affordable};
use crate::connection::queue_pairs::QueuePairs;
use crate::connection::{Connection, ConnectionLimits};
use crate::device::open::{Devices, OnLost};
use crate::device::{Topology, quirks};
use crate::link::candidate::{ConnectedEnd, JoinedPath};
use crate::link::end_queues::EndQueues;
use crate::link::obstacle::{declined, excluded, in_use};
use crate::link::path_memory::{AddressPair, PathMemory};
use crate::link::peer_gid::PeerGid;
use crate::proto::conn_params::{Capabilities, ConnParams};
use crate::proto::connection::{CONTROL_SLOTS, Parts, Rules, Timeouts};
use crate::proto::flow::window::{FlowWindow, HeldQuota};
use crate::proto::rndv::get::{ReadLimits, RndvGet};
use crate::proto::rndv::throttle::ReadThrottle;
use crate::proto::wire::MESSAGE_HEADER_LEN;
use crate::quota::admission::{Admission, Crowded};
use crate::quota::slots::{RESERVE, WINDOW_MIN};
#[cfg(feature = "ibverbs")]
use crate::verbs::Ibverbs;
use crate::verbs::{Device, Mtu, Port, Provider};
use crate::worker::set::WorkerSet;
use crate::worker::{LEAN_FROM, Place, Worker, auto_lanes};
use crate::{
    ConnectOptions, DeviceStatus, DeviceSurvey, LaneInfo, RdmaConfig, RkeyScope, SurveyError,
};

/// Time between two looks for lanes that are not needed any more.
const TRIM_INTERVAL: Duration = Duration::from_secs(10);

/// The reason given where connections that ended hold all slots for short messages. They give them
/// back when their queue pairs are drained, or destroyed after `RdmaConfig::close_timeout`.
const NO_CONTROL_SLOT: &str = "connections that are ending hold all control slots of the lane";

/// Workers that a handshake tries whose last place another handshake takes first.
const SEAT_TRIES: u32 = 8;

/// Windows of one connection at most, so many large frames may be on their way to a peer that has
/// not released them. They are allocated when they are needed.
const MEMORY_WINDOWS_MAX: usize = 256;

/// The way to RDMA. One of these holds the workers of every device that is in use.
pub struct RdmaUpgrade {
    devices: Devices,
    config: RdmaConfig,
    workers: Arc<WorkerSet>,
    paths: Arc<PathMemory>,
}

impl RdmaUpgrade {
    /// The way to the RDMA devices of this host. Nothing is opened before it is needed.
    #[cfg(feature = "ibverbs")]
    #[must_use]
    pub fn new(config: RdmaConfig) -> Self {
        Self::with_provider(Box::new(Ibverbs::new()), config)
    }

    /// The way to the devices of another provider of verbs.
    #[must_use]
    pub fn with_provider(provider: Box<dyn Provider>, config: RdmaConfig) -> Self {
        let workers = Arc::default();
        let devices = Devices::new(provider, &config, drop_workers_of(&workers));
        Self { devices, config, workers, paths: Arc::default() }
    }

    /// Returns the state of each worker in use: its device, its connections, and the memory that
    /// all of them receive into.
    #[must_use]
    pub fn lanes(&self) -> Vec<LaneInfo> {
        let budgets = self.workers.read_budgets();
        self.workers.map(|device, number, worker| LaneInfo {
            device: device.to_owned(),
            number,
            rkey_scope: worker.config.rkey_scope,
            connection_count: worker.connection_count(),
            unproven_count: worker.unproven.count(),
            receive_bytes: worker.receive_bytes,
            receive_slots: worker.config.receive_slots.into(),
            promised_slots: worker.shares.quota().promised(),
            missing_slots: worker.missing_slots(),
            claimed_entries: worker.attachment.claimed_entries(),
            queue_pair_count: worker.queue_pair_count(),
            send_slots_in_use: worker.send_slots_in_use(),
            source_bytes_in_use: worker.sources.bytes_in_use(),
            sink_bytes_in_use: worker.sinks.bytes_in_use(),
            read_bytes_in_use: budgets
                .get(device)
                .map_or(0, |of| of.iter().map(|it| it.total()).sum()),
            registered_bytes: worker.registered_bytes(),
            huge_page_bytes: worker.huge_page_bytes(),
            leases_held: worker.leases.held_count(),
            leases_overdue: worker.leases.overdue_count(),
            activity: worker.activity.snapshot(),
            cancellations: worker.cancellations.snapshot(),
        })
    }

    /// Returns the state of every device that is or was in use, with its events.
    #[must_use]
    pub fn devices(&self) -> Vec<DeviceStatus> {
        self.devices.status()
    }

    /// Surveys all devices of the host. It may block.
    ///
    /// # Errors
    ///
    /// Returns an error if the devices cannot be listed.
    pub fn survey(&self) -> Result<Vec<DeviceSurvey>, SurveyError> {
        self.devices.survey()
    }

    fn port(&self, local: Option<IpAddr>, peer: Option<IpAddr>) -> Result<Port, Declined> {
        let address = local.ok_or_else(|| excluded("the connection has no IP address"))?;
        self.devices.find(address, peer).map_err(|error| declined(&*error))
    }

    /// The worker for a connection through `port`.
    fn worker(&self, port: &Port) -> Result<Arc<Worker>, Declined> {
        let make = |sibling: Option<&Worker>, number| match sibling {
            Some(sibling) => {
                let is_lean = self.workers.connection_count(port.device.name()) >= LEAN_FROM;
                sibling.start_sibling(number, is_lean).map_err(|error| declined(&error))
            }
            None => self.first_worker(port),
        };
        let attach = |worker: &_| self.devices.attach(worker);
        let (name, lanes) = (port.device.name(), self.lane_count(&port.device).into());
        let (worker, watch) = self.workers.find(name, lanes, make, attach)?;
        if let Some(watch) = watch {
            tokio::spawn(watch.run());
        }
        if self.workers.begins_trimming(name, lanes) {
            tokio::spawn(trim(Arc::downgrade(&self.workers), name.to_owned(), lanes));
        }
        Ok(worker)
    }

    fn lane_count(&self, device: &Device) -> u16 {
        let find = || {
            let processors = Topology::current().processors_near(device.name());
            auto_lanes(device.lockable_memory(), processors)
        };
        self.config.lanes.unwrap_or_else(|| self.workers.auto_lanes(device.name(), find))
    }

    fn first_worker(&self, port: &Port) -> Result<Worker, Declined> {
        let rkey_scope = self.config.rkey_scope.on(port).map_err(|error| {
            let (name, text) = (port.device.name(), declined(&error).reason);
            excluded(format!("rdma.rkey_scope is window, but for {name} {text}"))
        })?;
        let lanes = Some(self.lane_count(&port.device));
        let config = RdmaConfig { rkey_scope, lanes, ..self.config.clone() };
        Worker::start(&port.device, &config).map_err(|error| declined(&error))
    }

    /// Takes a place on a worker of the port's device, for a client's end or one of this side.
    fn seat(&self, port: &Port, peer: PeerKey, is_client: bool) -> Result<Seat, Declined> {
        let mut refused = String::new();
        for _ in 0..SEAT_TRIES {
            let worker = self.worker(port)?;
            // This side proves what it offers itself, and waits for no client.
            let unproven = is_client.then(|| worker.shared.take_unproven(peer)).transpose();
            let unproven = unproven.map_err(in_use)?;
            match worker.shared.take_place() {
                Ok((place, holding)) => return Ok(Seat { worker, unproven, place, holding }),
                // Other handshakes have taken what was free when it was chosen.
                Err(text) => refused = text,
            }
        }
        Err(in_use(refused))
    }

    /// Prepares an end for the peer of `offer`, or for one that is not known yet.
    fn prepare(
        &self,
        addresses: &Addresses,
        offer: Option<&ConnParams>,
    ) -> Result<LocalEnd, Declined> {
        self.config.check().map_err(|error| excluded(error.to_string()))?;
        let ip = |address: Option<SocketAddr>| address.map(|address| address.ip());
        let mut port = self.port(ip(addresses.local), ip(addresses.peer))?;
        port.device.check_firmware().map_err(|error| declined(&error))?;
        quirks::check(&port.device, &self.config)?;
        let pair = ip(addresses.peer).map(|peer| AddressPair { local: port.gid, peer });
        // The client's memory is enough: it judges each proof, and the smaller MTU is agreed on.
        if let (Some(pair), None) = (pair, offer) {
            let mtu_max = self.paths.mtu_max(pair, Instant::now());
            let mtu_max = mtu_max.map_err(|text| Declined::with(Obstacle::Unproven, text))?;
            port.attributes.active_mtu = port.attributes.active_mtu.min(mtu_max);
        }
        if let Some(peer) = offer {
            // Before there is a worker, a place or a queue pair, all of which a peer would
            // otherwise take with an offer that cannot be accepted.
            let local = self.config.message_queue_pair(0).local_endpoint(0, &port);
            peer.check(&local, self.config.slot_len)?;
        }
        let name = port.device.name();
        let peer = PeerKey::new(addresses.peer);
        let handshakes = self.workers.admission(name);
        let _under_way = handshakes.begin();
        // Before it takes anything that others could use while it waits.
        let admitted = offer.map(|_| handshakes.admit(peer)).transpose();
        let _admitted = admitted.map_err(|Crowded| {
            in_use(format!("too many handshakes wait for the firmware of {name}"))
        })?;
        let Seat { worker, unproven, place, holding } = self.seat(&port, peer, offer.is_some())?;
        // Keys and queues of one opening of a device mean nothing to another.
        let port = Port { device: worker.shared.attachment.device().clone(), ..port };
        let is_lean = self.workers.connection_count(name) > LEAN_FROM;
        let queues = EndQueues::make(&worker.shared, &port, place.tag, is_lean)?;
        // A new hasher is seeded at random, which is all that an epoch has to be.
        #[allow(clippy::cast_possible_truncation)]
        let epoch = RandomState::new().build_hasher().finish() as u32;
        let paths = Arc::clone(&self.paths);
        // A server without a class of its own uses its client's: READ responses and
        // acknowledgements would travel in another one than the requests, and a lossless class
        // would be half of it.
        let adopted = offer.and_then(|peer| peer.traffic_class);
        let traffic_class = self.config.connect.traffic_class.or(adopted);
        let traffic_class = traffic_class.unwrap_or(port.attributes.traffic_class);
        Ok(LocalEnd {
            worker,
            place,
            queues,
            handshakes,
            holding,
            epoch,
            peer,
            unproven,
            paths,
            pair,
            traffic_class,
        })
    }
}

/// Drops the workers of a device that are not needed, until there are none beyond `lanes`.
async fn trim(workers: Weak<WorkerSet>, device: String, lanes: usize) {
    loop {
        tokio::time::sleep(TRIM_INTERVAL).await;
        let has_more = workers.upgrade().is_some_and(|workers| workers.trim(&device, lanes));
        if !has_more {
            return;
        }
    }
}

impl fmt::Debug for RdmaUpgrade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RdmaUpgrade")
            .field("devices", &self.devices)
            .field("lanes", &self.lanes())
            .finish_non_exhaustive()
    }
}

/// Takes the workers of a lost device out of the list, which would keep the device open.
fn drop_workers_of(workers: &Arc<WorkerSet>) -> OnLost {
    let workers: Weak<WorkerSet> = Arc::downgrade(workers);
    Box::new(move |device: &Device| {
        if let Some(workers) = workers.upgrade() {
            workers.drop_workers_of(device);
        }
    })
}

/// A place on a worker, and what goes with it.
struct Seat {
    worker: Arc<Worker>,
    unproven: Option<Charge<PeerKey>>,
    place: Place,
    holding: HeldQuota,
}

/// One end of a path that knows nothing of the other yet.
struct LocalEnd {
    worker: Arc<Worker>,
    place: Place,
    queues: EndQueues,
    /// The handshakes of the device.
    handshakes: Arc<Admission>,
    /// Behind the queue pairs, so that its slots are promised to no other connection before they
    /// are gone.
    holding: HeldQuota,
    epoch: u32,
    /// Peer whose share of the device's memory it takes.
    peer: PeerKey,
    /// Charge for a client's place until the client is proven.
    unproven: Option<Charge<PeerKey>>,
    paths: Arc<PathMemory>,
    pair: Option<AddressPair>,
    traffic_class: u8,
}

impl LocalEnd {
    fn conn_params(&self) -> ConnParams {
        ConnParams {
            endpoint: self.queues.messages().endpoint(),
            epoch: self.epoch,
            grant: self.holding.window(),
            slot_len: self.worker.shared.config.slot_len,
            has_memory_windows: self.has_memory_windows(),
            read_ends: self.queues.reads().endpoints(),
            traffic_class: Some(self.traffic_class),
            capabilities: self.capabilities(),
        }
    }

    fn capabilities(&self) -> Capabilities {
        let proves = is_affordable(&self.worker.shared.config);
        if proves { Capabilities::OURS } else { Capabilities(0) }
    }

    fn has_memory_windows(&self) -> bool {
        self.worker.shared.config.rkey_scope == RkeyScope::Window
    }

    /// Returns the maximum number of a connection's memory windows: as many as fit if every
    /// connection of one lane had that many.
    fn memory_windows_max(&self) -> usize {
        let device_max = self.worker.shared.attachment.device().attributes().windows_max;
        let share = device_max / self.worker.shared.config.max_connections.max(1);
        if self.has_memory_windows() { (share as usize).clamp(1, MEMORY_WINDOWS_MAX) } else { 0 }
    }

    /// Joins the end with its peer's, and registers it with its worker.
    ///
    /// First everything that can fail without the peer, then the connection, then the place in the
    /// worker's table: from ready-to-receive on the peer's device can fill receive slots, and those
    /// of a queue pair that is destroyed at once may be lost. Registering comes last because the
    /// worker's task takes the lock of every registered connection, and connecting may block while
    /// the system looks up an address. No message falls between the two: the client speaks first,
    /// with a probe that it sends when it has registered, and learns the server's queue pairs from
    /// an answer that is sent when the server has. A message that comes all the same is dropped,
    /// which costs its sender the credit.
    fn join(mut self, peer: &ConnParams) -> Result<ConnectedEnd, Declined> {
        let (port, handshakes) =
            (self.queues.messages().port().clone(), Arc::clone(&self.handshakes));
        let under_way = handshakes.begin();
        let unproven = self.unproven.take();
        let shared = Arc::clone(&self.worker.shared);
        let slot_len = peer.check(&self.queues.messages().endpoint(), shared.config.slot_len)?;
        let frame_len_max = slot_len as usize - MESSAGE_HEADER_LEN;
        let counters = Arc::default();
        let agreed = self.queues.messages().endpoint().agree(&peer.endpoint);
        let mtu = agreed.map_err(|error| declined(&error))?.mtu;
        let queues = self.queues.reads().len().min(peer.read_ends.len()).max(1);
        let has_whole_reads = shared.attachment.device().read_defect().is_none();
        let limits = ConnectionLimits {
            peer: self.peer,
            frame_len_max,
            proof_plan: ProofPlan::new(mtu, queues, has_whole_reads),
            counters: Arc::clone(&counters),
        };
        let info = path_info(mtu, self.traffic_class, peer, &shared.config.connect);
        let joined =
            JoinedPath { memory: Arc::clone(&self.paths), pair: self.pair, mtu, slot_len, info };
        let connect =
            ConnectOptions { traffic_class: Some(self.traffic_class), ..shared.config.connect };
        let (place, worker, mut path) = self.into_path(peer, counters)?;
        path.allocate_first_memory_window().map_err(|error| declined(&error))?;
        let connected = path.queues.connect(peer, &connect);
        let connection = Connection::new(place.tag, Arc::clone(&shared), path, limits);
        let connection = Arc::new(connection);
        if let Err(text) = shared.register(place, &connection, connection.numbers().collect()) {
            connection.end();
            return Err(Declined::new(text));
        }
        if let Err(error) = connected {
            // Some of its queue pairs may be connected: the worker drains them as it does others.
            connection.fail(CloseReason::Local);
            return Err(declined(&error));
        }
        drop(under_way);
        shared.refill_spares(&port, &handshakes);
        let connection = Some(connection);
        Ok(ConnectedEnd { connection, worker, _unproven: unproven, path: joined })
    }

    /// The path to `peer`, whose queue pairs are not connected yet.
    fn into_path(
        mut self,
        peer: &ConnParams,
        counters: Arc<Counters>,
    ) -> Result<(Place, Arc<Worker>, Live), Declined> {
        let shared = Arc::clone(&self.worker.shared);
        let config = shared.config_of(self.queues.is_lean());
        let agreement = self.queues.messages().endpoint().agree(&peer.endpoint);
        let agreement = agreement.map_err(|error| declined(&error))?;
        let reads_of_queue = self.queues.reads_mut().agree(&peer.read_ends);
        let reads_of_queue = reads_of_queue.map_err(|error| declined(&error))?;
        let control = iter::from_fn(|| shared.control_slots.try_take());
        let control_slots: Vec<_> = control.take(CONTROL_SLOTS as usize).collect();
        if control_slots.is_empty() {
            return Err(Declined::new(NO_CONTROL_SLOT.to_owned()));
        }
        let rules = Rules {
            our_epoch: self.epoch,
            peer_epoch: peer.epoch,
            stale_max: config.max_credits.max(WINDOW_MIN) + RESERVE,
            memory_windows_max: self.memory_windows_max(),
            takes_keys_away: self.has_memory_windows() && peer.has_memory_windows,
            send_depth: config.send_depth as usize,
            reads_with_messages: self.queues.reads().is_empty(),
            proves_fully: self.capabilities().have(peer.capabilities, Capabilities::FULL_PROOF),
            timeouts: Timeouts {
                release: config.release_timeout,
                cancel: config.cancel_timeout,
                read: config.read_timeout,
                close: config.close_timeout,
            },
        };
        let chunk_len = config.max_read_len.min(self.queues.messages().message_len_max()).max(1);
        let limits = match self.queues.reads().len() {
            0 => ReadLimits::one_queue(agreement.reads_out),
            queues => ReadLimits {
                queues,
                per_queue: reads_of_queue.into(),
                total: config.max_reads.into(),
            },
        };
        let share = shared.reads.share(self.peer);
        let activity = Arc::clone(&shared.activity);
        let state = State::new(Parts {
            rules,
            flow: FlowWindow::new(self.holding, peer.grant, Arc::clone(&activity)),
            control_slots,
            rndv_get: RndvGet::new(limits, chunk_len),
            read_throttle: ReadThrottle::new(share, chunk_len, limits.queues),
            counters: Arc::clone(&counters),
            cancellations: Arc::clone(&shared.cancellations),
        });
        let (messages, reads) = self.queues.into_parts();
        let queues = QueuePairs::new(messages, reads, activity, counters);
        Ok((self.place, self.worker, Live::new(state, queues)))
    }
}

/// Describes a path, and logs a difference that costs half of a lossless class.
fn path_info(mtu: Mtu, ours: u8, peer: &ConnParams, options: &ConnectOptions) -> PathInfo {
    if let Some(theirs) = peer.traffic_class.filter(|theirs| *theirs != ours) {
        rpc_core::limited_log!(
            target: "farcall::rdma",
            process_wide,
            WARN,
            "the ends of an RDMA path have different traffic classes",
            ours,
            theirs
        );
    }
    let mut info = PathInfo::new(mtu.bytes().into(), ours);
    info.peer_traffic_class = peer.traffic_class;
    info.service_level = options.service_level;
    info
}

/// An offer that waits for the peer's answer.
struct PendingEnd {
    prepared: LocalEnd,
    peer_gid: PeerGid,
}

impl PendingOffer for PendingEnd {
    fn blob(&self) -> Vec<u8> {
        self.prepared.conn_params().encode()
    }

    fn connect(self: Box<Self>, answer: &[u8]) -> Result<Box<dyn Candidate>, Declined> {
        let peer = ConnParams::decode(answer)?;
        self.peer_gid.check(&peer.endpoint)?;
        Ok(Box::new(self.prepared.join(&peer)?))
    }
}

impl Upgrade for RdmaUpgrade {
    fn name(&self) -> &'static str {
        "rdma"
    }

    fn check(&self, local: Option<IpAddr>) -> Result<String, Declined> {
        self.config.check().map_err(|error| excluded(error.to_string()))?;
        if let Some(local) = local {
            let port = self.port(Some(local), None)?;
            port.device.check_firmware().map_err(|error| declined(&error))?;
            quirks::check(&port.device, &self.config)?;
            return Ok(format!("{}:{} ({})", port.device.name(), port.number, port.gid));
        }
        let usable = self.devices.usable().map_err(|error| declined(&error))?;
        let (mut ports, mut distrusted) = (Vec::new(), None);
        for (device, port) in usable {
            match quirks::check(&device, &self.config) {
                Ok(()) => ports.push(port.describe()),
                Err(declined) => distrusted = Some(declined),
            }
        }
        // There is a port, or a reason: without either the search would have failed.
        match distrusted {
            Some(declined) if ports.is_empty() => Err(declined),
            _ => Ok(ports.join(", ")),
        }
    }

    fn offer(&self, addresses: &Addresses) -> Result<Box<dyn PendingOffer>, Declined> {
        let peer_gid = PeerGid::of(addresses, self.config.port_choice);
        Ok(Box::new(PendingEnd { prepared: self.prepare(addresses, None)?, peer_gid }))
    }

    fn accept(
        &self,
        addresses: &Addresses,
        offer: &[u8],
    ) -> Result<(Vec<u8>, Box<dyn Candidate>), Declined> {
        let peer = ConnParams::decode(offer)?;
        // Before anything is made for it: no device is opened for a forged address.
        PeerGid::of(addresses, self.config.port_choice).check(&peer.endpoint)?;
        let prepared = self.prepare(addresses, Some(&peer))?;
        let answer = prepared.conn_params().encode();
        Ok((answer, Box::new(prepared.join(&peer)?)))
    }
}

#[cfg(test)]
mod address_tests;
#[cfg(test)]
mod cluster_tests;
#[cfg(test)]
mod event_tests;
#[cfg(test)]
mod growth_tests;
#[cfg(test)]
mod lock_limit_tests;
#[cfg(test)]
mod proof_tests;
#[cfg(test)]
mod spare_tests;
#[cfg(test)]
mod stuck_tests;
#[cfg(test)]
mod tests;
