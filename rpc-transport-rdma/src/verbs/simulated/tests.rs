//! Tests of the simulated device by itself: windows, and what it notices of misuse.

mod paths;

use std::sync::Arc;
use std::time::Duration;

use crate::AsyncEventKind;
use crate::ConnectOptions;
use crate::memory::Region;
use crate::sim::*;
use crate::sys::provider::commands;
use crate::sys::provider::{Access, Mapping};
use crate::sys::provider::{
    Agreement, Device, Endpoint, Gid, LinkLayer, Mtu, PathAttributes, QueuePairRequest, RawBind,
    RawCompletion, RawCompletionQueue, RawMemoryRegion, RawMemoryWindow, RawOperation,
    RawQueuePair, RawReceive, RawSegment, RawSend, RawSharedReceiveQueue, ReadDepths, RemoteKey,
    RemoteMemory,
};

const SLOT_LEN: u32 = 256;
const DEPTH: u32 = 8;
const FLUSHED: u32 = 5;
const REMOTE_ACCESS: u32 = 10;
const AGREEMENT: Agreement = Agreement { mtu: Mtu::B4096, reads_in: 4, reads_out: 4 };

/// One end of a connection, held by its raw objects.
struct End {
    sim: SimDevice,
    device: Device,
    completions: Arc<dyn RawCompletionQueue>,
    receives: Arc<dyn RawSharedReceiveQueue>,
    memory: Arc<Region>,
    queue_pair: Box<dyn RawQueuePair>,
    gid: Gid,
}

/// A region as the device gave it.
struct Registered(Box<dyn RawMemoryRegion>);

impl Registered {
    fn remote(&self) -> RemoteMemory {
        RemoteMemory { address: self.0.mapping().address(), key: self.0.remote_key() }
    }

    fn segment(&self, offset: u64, len: u32) -> RawSegment {
        let address = self.0.mapping().address() + offset;
        RawSegment { address, len, key: self.0.local_key() }
    }
}

struct Rig {
    network: SimNetwork,
    ends: [End; 2],
}

impl End {
    fn new(network: &SimNetwork, host: u8) -> Self {
        let (name, address) = (format!("sim{host}"), [10, 0, 0, host].into());
        Self::with(network, SimDeviceConfig::new(&name, &[address]))
    }

    /// An end at the first address of a device's first port.
    fn with(network: &SimNetwork, config: SimDeviceConfig) -> Self {
        let (name, gid) = (config.name.clone(), config.ports[0].gids[0].gid);
        let sim = network.add_device_with(config);
        let device = Device::open(&network.provider(), &name).unwrap();
        let memory = Arc::new(Region::new(&device, 4096, Access::Eager).unwrap());
        let completions = device.raw().create_completion_queue(64, 0).unwrap();
        let receives = device.raw().create_shared_receive_queue(DEPTH, memory.clone()).unwrap();
        let queue_pair = queue_pair(&device, &completions, &receives);
        Self { sim, device, completions, receives, memory, queue_pair, gid }
    }

    fn region(&self, access: Access) -> Registered {
        Registered(self.device.raw().register(Mapping::new(8192).unwrap(), access).unwrap())
    }

    /// A slot of the memory for messages.
    fn slot(&self, index: u32) -> RawSegment {
        self.memory.segment((index * SLOT_LEN) as usize, SLOT_LEN)
    }

    fn post(&mut self, operation: RawOperation, segment: Option<RawSegment>) -> Result<(), i32> {
        let send = RawSend { work_id: 7, operation, segment, signaled: true, inline: false };
        // SAFETY: V2: the tests keep their regions until the end, or break that promise for the
        // device to notice, which then leaks them.
        unsafe { self.queue_pair.post_send(&[send]) }.map_err(|partial| partial.errno)
    }

    fn post_receive(&self, index: u32) -> Result<(), i32> {
        let receive = RawReceive { work_id: index.into(), segment: self.slot(index) };
        // SAFETY: V6: as above.
        unsafe { self.receives.post_receive(&[receive]) }.map_err(|partial| partial.errno)
    }

    fn poll(&self) -> Vec<RawCompletion> {
        let mut out = [RawCompletion::default(); 64];
        let count = self.completions.poll(&mut out).unwrap();
        out[..count].to_vec()
    }

    fn bind(
        &mut self,
        window: &dyn RawMemoryWindow,
        region: &Registered,
        span: (u64, u64),
    ) -> RemoteKey {
        let key = RemoteKey(window.key().0 & !0xff | (window.key().0.wrapping_add(1) & 0xff));
        let raw = &region.0;
        let bind = RawBind {
            window: window.handle(),
            key,
            region: raw.handle(),
            region_key: raw.local_key(),
            address: raw.mapping().address() + span.0,
            len: span.1,
        };
        self.post(RawOperation::Bind(bind), None).unwrap();
        key
    }
}

fn queue_pair(
    device: &Device,
    completion_queue: &Arc<dyn RawCompletionQueue>,
    shared_receive_queue: &Arc<dyn RawSharedReceiveQueue>,
) -> Box<dyn RawQueuePair> {
    let request = QueuePairRequest {
        port: 1,
        partition_index: 0,
        completion_queue,
        shared_receive_queue,
        send_depth: DEPTH,
        inline_max: 64,
    };
    device.raw().create_queue_pair(&request).unwrap()
}

/// Connects a queue pair of each of two hosts.
fn connect(ends: [(&mut dyn RawQueuePair, Gid); 2]) {
    let endpoint = |(queue_pair, gid): &(&mut dyn RawQueuePair, Gid)| Endpoint {
        queue_pair_number: queue_pair.number(),
        packet_sequence_number: queue_pair.number() + 1000,
        gid: *gid,
        lid: 0,
        mtu: Mtu::B4096,
        reads: ReadDepths::Same(4),
        link_layer: LinkLayer::Ethernet,
        partition_key: None,
        needs_global_route: false,
    };
    let endpoints = [endpoint(&ends[0]), endpoint(&ends[1])];
    for (index, (queue_pair, _)) in ends.into_iter().enumerate() {
        let path = PathAttributes {
            port: 1,
            gid_index: 0,
            packet_sequence_number: endpoints[index].packet_sequence_number,
            remote: endpoints[1 - index],
            agreement: AGREEMENT,
            traffic_class: 0,
            is_global: true,
            serves_reads: true,
            options: ConnectOptions::default(),
        };
        queue_pair.connect(&path).unwrap();
    }
}

impl Rig {
    /// Two connected ends, between which nothing takes time.
    fn new() -> Self {
        let network = SimNetwork::new(11);
        network.set_latency(std::time::Duration::ZERO..=std::time::Duration::ZERO);
        let ends = [End::new(&network, 1), End::new(&network, 2)];
        let mut rig = Self { network, ends };
        rig.connect();
        rig
    }

    fn connect(&mut self) {
        let [first, second] = &mut self.ends;
        let (here, there) = (first.gid, second.gid);
        connect([(&mut *first.queue_pair, here), (&mut *second.queue_pair, there)]);
    }

    /// The first end reads from the second; gives the status of its completion.
    fn read(&mut self, sink: &Registered, len: u32, remote: RemoteMemory) -> u32 {
        let segment = sink.segment(0, len);
        self.ends[0].post(RawOperation::Read(remote), Some(segment)).unwrap();
        self.ends[0].poll().last().expect("it takes no time").status
    }

    fn window(&self) -> Box<dyn RawMemoryWindow> {
        self.ends[1].device.raw().allocate_window().unwrap()
    }

    fn status(&self, end: usize) -> u32 {
        self.ends[end].poll().last().expect("a completion").status
    }
}

#[test]
fn a_window_opens_its_bytes_and_no_others_of_the_region() {
    for (offset, len, expected) in
        [(100, 50, 0), (110, 40, 0), (99, 50, REMOTE_ACCESS), (101, 50, REMOTE_ACCESS)]
    {
        let mut rig = Rig::new();
        let source = rig.ends[1].region(Access::Windowed);
        let (sink, window) = (rig.ends[0].region(Access::Sink), rig.window());
        let key = rig.ends[1].bind(&*window, &source, (100, 50));
        assert_eq!(rig.status(1), 0);
        let remote = RemoteMemory { address: source.remote().address + offset, key };
        assert_eq!(rig.read(&sink, len, remote), expected, "{len} bytes at {offset}");
        let is_refused = expected != 0;
        rig.ends[0].post_receive(0).unwrap();
        let peer = rig.ends[1].post(RawOperation::Send, None).map(|()| rig.status(1));
        assert_eq!(peer == Ok(FLUSHED), is_refused, "a refused READ ends both queue pairs");
        drop(window);
        assert_eq!(rig.network.violations(), []);
    }
}

#[test]
fn a_region_for_windows_opens_nothing_by_its_own_key() {
    let mut rig = Rig::new();
    let source = rig.ends[1].region(Access::Windowed);
    let sink = rig.ends[0].region(Access::Sink);
    assert_eq!(rig.read(&sink, 10, source.remote()), REMOTE_ACCESS);
}

#[test]
fn a_window_opens_to_the_peer_of_its_own_queue_pair_only() {
    let mut rig = Rig::new();
    let source = rig.ends[1].region(Access::Windowed);
    let (sink, window) = (rig.ends[0].region(Access::Sink), rig.window());
    let key = rig.ends[1].bind(&*window, &source, (0, 8192));
    // A second connection between the same hosts.
    let mut others = rig
        .ends
        .each_ref()
        .map(|end| (queue_pair(&end.device, &end.completions, &end.receives), end.gid));
    let [first, second] = &mut others;
    connect([(&mut *first.0, first.1), (&mut *second.0, second.1)]);
    let [(mut queue_pair, _), _other] = others;
    std::mem::swap(&mut rig.ends[0].queue_pair, &mut queue_pair);
    let remote = RemoteMemory { address: source.remote().address, key };
    assert_eq!(rig.read(&sink, 10, remote), REMOTE_ACCESS);
    std::mem::swap(&mut rig.ends[0].queue_pair, &mut queue_pair);
    assert_eq!(rig.read(&sink, 10, remote), 0);
}

#[test]
fn a_send_with_invalidate_closes_the_window_and_says_which() {
    let mut rig = Rig::new();
    let source = rig.ends[1].region(Access::Windowed);
    let (sink, window) = (rig.ends[0].region(Access::Sink), rig.window());
    let key = rig.ends[1].bind(&*window, &source, (0, 100));
    assert_eq!(rig.status(1), 0);
    rig.ends[1].post_receive(0).unwrap();
    let slot = rig.ends[0].slot(0);
    rig.ends[0].post(RawOperation::SendInvalidate(key), Some(slot)).unwrap();
    assert_eq!(rig.status(0), 0);
    let received = rig.ends[1].poll();
    assert_eq!((received[0].status, received[0].invalidated_key), (0, Some(key)));
    let remote = RemoteMemory { address: source.remote().address, key };
    assert_eq!(rig.read(&sink, 10, remote), REMOTE_ACCESS);
    assert_eq!(rig.network.counters().invalidations, 1);
}

#[test]
fn a_send_with_a_bad_key_ends_the_receivers_queue_pair() {
    let mut rig = Rig::new();
    rig.ends[1].post_receive(0).unwrap();
    let slot = rig.ends[0].slot(0);
    rig.ends[0].post(RawOperation::SendInvalidate(RemoteKey(0x1234)), Some(slot)).unwrap();
    assert_eq!(rig.status(0), 0, "the sender is told nothing");
    assert_ne!(rig.ends[1].poll()[0].status, 0);
    rig.ends[1].post(RawOperation::Send, None).unwrap();
    assert_eq!(rig.status(1), FLUSHED);
    let event = rig.ends[1]
        .device
        .poll_async_event(&mut std::task::Context::from_waker(std::task::Waker::noop()));
    // Without a runtime no task can wait; the events stay for a task that can.
    assert!(matches!(event, std::task::Poll::Ready(Err(_))), "{event:?}");
}

#[test]
fn a_bound_window_is_not_rebound_nor_beyond_its_region() {
    let mut rig = Rig::new();
    let source = rig.ends[1].region(Access::Windowed);
    let mut window = rig.window();
    let key = rig.ends[1].bind(&*window, &source, (0, 100));
    assert_eq!(rig.status(1), 0);
    window.set_key(key);
    rig.ends[1].bind(&*window, &source, (100, 100));
    assert_eq!(rig.status(1), 6, "a window bind error");

    let mut rig = Rig::new();
    let (source, window) = (rig.ends[1].region(Access::Windowed), rig.window());
    rig.ends[1].bind(&*window, &source, (8000, 193));
    assert_eq!(rig.status(1), 6, "a window bind error");
}

#[test]
fn a_local_invalidate_closes_the_window_and_a_second_one_fails() {
    let mut rig = Rig::new();
    let (source, window) = (rig.ends[1].region(Access::Windowed), rig.window());
    let key = rig.ends[1].bind(&*window, &source, (0, 100));
    rig.ends[1].post(RawOperation::Invalidate(key), None).unwrap();
    assert!(rig.ends[1].poll().iter().all(|completion| completion.status == 0));
    assert_eq!(rig.network.census().bound_windows, 0);
    rig.ends[1].post(RawOperation::Invalidate(key), None).unwrap();
    assert_ne!(rig.status(1), 0);
}

#[test]
#[cfg_attr(miri, ignore = "it leaks, as it must")]
fn memory_with_a_window_bound_to_it_stays_registered() {
    let mut rig = Rig::new();
    let (source, window) = (rig.ends[1].region(Access::Windowed), rig.window());
    rig.ends[1].bind(&*window, &source, (0, 100));
    let regions = rig.network.census().regions;
    drop(source);
    assert_eq!(rig.network.census().regions, regions);
    let violations = rig.network.violations();
    assert!(matches!(violations[..], [SimViolation::DeregisteredBound { .. }]), "{violations:?}");
}

/// Runs a misuse and gives what the device says of it.
fn misuse(commit: impl FnOnce(&mut Rig)) -> SimViolation {
    let mut rig = Rig::new();
    // Far enough apart that what is posted stays in flight.
    let second = std::time::Duration::from_secs(1000);
    rig.network.set_latency(second..=second);
    commit(&mut rig);
    let violations = rig.network.violations();
    assert_eq!(violations.len(), 1, "{violations:?}");
    let network = rig.network.clone();
    drop(rig);
    // Its memory may go with the work that is still in flight.
    let _ = network.violations();
    violations[0].clone()
}

#[test]
fn posting_beyond_the_depth_is_noticed() {
    let violation = misuse(|rig| {
        for _ in 0..DEPTH {
            rig.ends[0].post(RawOperation::Send, None).unwrap();
        }
        assert_eq!(rig.ends[0].post(RawOperation::Send, None), Err(libc::ENOMEM));
    });
    assert!(matches!(violation, SimViolation::SendQueueOverrun { depth: DEPTH, .. }));
}

#[test]
#[cfg_attr(miri, ignore = "it leaks, as it must")]
fn memory_that_is_deregistered_in_flight_is_noticed() {
    let violation = misuse(|rig| {
        let sink = rig.ends[0].region(Access::Sink);
        let remote = RemoteMemory { address: 0, key: RemoteKey(0) };
        rig.ends[0].post(RawOperation::Read(remote), Some(sink.segment(0, 10))).unwrap();
    });
    assert!(matches!(violation, SimViolation::DeregisteredInUse { len: 8192, .. }));
}

#[test]
fn two_reads_into_the_same_bytes_are_noticed() {
    let mut sink = None;
    let violation = misuse(|rig| {
        let sink = sink.insert(rig.ends[0].region(Access::Sink));
        let remote = RemoteMemory { address: 0, key: RemoteKey(0) };
        rig.ends[0].post(RawOperation::Read(remote), Some(sink.segment(0, 10))).unwrap();
        rig.ends[0].post(RawOperation::Read(remote), Some(sink.segment(10, 10))).unwrap();
        rig.ends[0].post(RawOperation::Read(remote), Some(sink.segment(5, 2))).unwrap();
    });
    assert!(matches!(violation, SimViolation::MemoryInUse { len: 2, .. }));
}

#[test]
fn a_receive_into_a_slot_that_is_posted_is_noticed() {
    let violation = misuse(|rig| {
        rig.ends[0].post_receive(1).unwrap();
        rig.ends[0].post_receive(2).unwrap();
        rig.ends[0].post_receive(1).unwrap();
    });
    assert!(matches!(violation, SimViolation::MemoryInUse { len: SLOT_LEN, .. }));
}

#[test]
fn a_slot_is_live_until_its_completion_was_polled() {
    let mut rig = Rig::new();
    rig.ends[1].post_receive(3).unwrap();
    rig.ends[0].post(RawOperation::Send, None).unwrap();
    rig.ends[1].post_receive(3).unwrap();
    assert!(matches!(rig.network.violations()[..], [SimViolation::MemoryInUse { .. }]));
    let mut rig = Rig::new();
    rig.ends[1].post_receive(3).unwrap();
    rig.ends[0].post(RawOperation::Send, None).unwrap();
    assert_eq!(rig.ends[1].poll()[0].work_id, 3);
    rig.ends[1].post_receive(3).unwrap();
    assert_eq!(rig.network.violations(), []);
}

#[test]
#[cfg_attr(miri, ignore = "it leaks, as it must")]
fn a_read_into_memory_for_something_else_is_noticed() {
    let violation = misuse(|rig| {
        let (slot, remote) = (rig.ends[0].slot(0), RemoteMemory { address: 0, key: RemoteKey(0) });
        rig.ends[0].post(RawOperation::Read(remote), Some(slot)).unwrap();
    });
    assert!(matches!(violation, SimViolation::WrongAccess { .. }));
}

#[test]
fn a_message_that_changes_on_its_way_is_noticed() {
    let mut rig = Rig::new();
    // There is no receive yet, so the message waits to be sent again.
    let slot = rig.ends[0].slot(0);
    rig.ends[0].post(RawOperation::Send, Some(slot)).unwrap();
    let mut span = rig.ends[0].memory.span(0, 1);
    // SAFETY: the network runs only inside calls of this thread.
    let bytes = unsafe { span.as_mut() };
    bytes[0] ^= 1;
    rig.ends[1].post_receive(0).unwrap();
    let mut steps = 0;
    while rig.ends[1].poll().is_empty() {
        steps += 1;
        assert!(steps < 100_000_000, "the message does not arrive");
    }
    let violations = rig.network.violations();
    assert!(matches!(violations[..], [SimViolation::ChangedInFlight { .. }]), "{violations:?}");
}

#[test]
fn an_overrun_completion_queue_loses_its_queue_pairs() {
    let mut rig = Rig::new();
    for round in 0..9 {
        for _ in 0..DEPTH {
            let index = round % DEPTH;
            let _ = rig.ends[0].post_receive(index);
            let _ = rig.ends[1].post(RawOperation::Send, None);
        }
        rig.ends[1].poll();
    }
    let is_overrun =
        |it: &SimViolation| matches!(it, SimViolation::CompletionQueueOverrun { capacity: 64 });
    assert_eq!(rig.network.violations().iter().filter(|it| is_overrun(it)).count(), 1);
    assert!(rig.ends[0].completions.poll(&mut [RawCompletion::default()]).is_err());
}

#[test]
fn a_command_on_a_lane_is_a_violation() {
    let rig = Rig::new();
    let lane = commands::on_lane();
    drop(rig.window());
    drop(lane);
    drop(rig.window());
    let verbs = [SimVerb::AllocateWindow, SimVerb::DeallocateWindow];
    let expected = verbs.map(|verb| SimViolation::CommandOnLane { verb });
    assert_eq!(rig.network.violations(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_hanging_firmware_answers_no_command_until_it_is_let_go() {
    let rig = Rig::new();
    let device = &rig.ends[1].device;
    let (sender, mut answers) = tokio::sync::mpsc::unbounded_channel();
    let allocate = || {
        let (sender, of) = (sender.clone(), device.clone());
        let bulk = &device.commands().bulk;
        bulk.push(SimVerb::AllocateWindow, move || {
            let ended = of.raw().allocate_window().map(drop);
            sender.send(ended.map_err(|error| paths::errno(&error))).unwrap();
        });
        bulk.serve(&tokio::runtime::Handle::current());
    };
    let hold = rig.ends[1].sim.hang_firmware();
    allocate();
    tokio::time::sleep(Duration::from_secs(59)).await;
    assert!(answers.is_empty());
    let given_up = Some(Err(Some(libc::ETIMEDOUT)));
    assert_eq!(answers.recv().await, given_up, "it is given up after a minute");
    allocate();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(answers.is_empty());
    drop(hold);
    assert_eq!(answers.recv().await, Some(Ok(())));
}

#[test]
#[should_panic(expected = "the simulated device was misused")]
fn on_a_strict_network_misuse_panics_where_it_happens() {
    let rig = Rig::new();
    rig.network.panic_on_violation();
    rig.ends[0].post_receive(1).unwrap();
    let _ = rig.ends[0].post_receive(1);
}

#[tokio::test(start_paused = true)]
async fn a_limit_makes_one_event_and_is_disarmed_by_it() {
    let mut rig = Rig::new();
    for index in 0..4 {
        rig.ends[1].post_receive(index).unwrap();
    }
    assert!(rig.ends[1].receives.arm_limit(DEPTH + 1).is_err());
    rig.ends[1].receives.arm_limit(3).unwrap();
    for _ in 0..4 {
        rig.ends[0].post(RawOperation::Send, None).unwrap();
    }
    let context = &mut std::task::Context::from_waker(std::task::Waker::noop());
    let mut kinds = Vec::new();
    while let std::task::Poll::Ready(event) = rig.ends[1].device.poll_async_event(context) {
        kinds.push(event.unwrap().kind);
    }
    assert_eq!(kinds, [AsyncEventKind::ReceiveLimit]);
}
