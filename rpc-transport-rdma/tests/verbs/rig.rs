//! Two connected queue pairs with workers and pools, driven by hand.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use rpc_transport_rdma::device::{PortQuery, find_port};
use rpc_transport_rdma::memory::{Access, RegionPool, SlotPool};
use rpc_transport_rdma::sim::{SimDevice, SimDeviceConfig, SimNetwork};
use rpc_transport_rdma::verbs::{
    Completion, CompletionQueue, ConnectOptions, Done, Port, QueuePair, QueuePairConfig, RemoteKey,
    SharedReceiveQueue, SharedReceiveQueueConfig, UnknownCompletion, VerbsError, Work, WorkKind,
};

/// No wait in these tests takes longer, or the test fails.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(20);

/// Between two looks at a simulated network; longer than that takes one way.
pub(crate) const STEP: Duration = Duration::from_millis(1);

/// Far more looks than any test takes.
pub(crate) const STEPS_MAX: usize = 100_000;

pub(crate) const SLOT_LEN: usize = 4352;
const SLOT_COUNT: u16 = 64;
const SEND_SLOTS: u32 = 64;
const RECEIVE_TAG: u32 = 1000;

/// The addresses of simulated devices, and of this machine's by default.
pub(crate) const ADDRESSES: [&str; 2] = ["10.0.0.1", "10.0.1.1"];

/// The ports of both addresses of this machine, if it has them and the build looks for them.
pub(crate) fn hardware_ports() -> Option<[Port; 2]> {
    #[cfg(feature = "ibverbs")]
    return crate::hardware::ports();
    #[cfg(not(feature = "ibverbs"))]
    None
}

/// A simulated network on which any misuse panics, with two devices and their ports.
pub(crate) fn simulated(seed: u64) -> (SimNetwork, [SimDevice; 2], [Port; 2]) {
    simulated_with(seed, |_| {})
}

/// The same, of devices that are changed before.
pub(crate) fn simulated_with(
    seed: u64,
    change: impl Fn(&mut SimDeviceConfig),
) -> (SimNetwork, [SimDevice; 2], [Port; 2]) {
    let network = SimNetwork::new(seed);
    network.panic_on_violation();
    let [first, second] = ADDRESSES.map(|text| text.parse().expect("an IP address"));
    let devices = [("sim0", first), ("sim1", second)].map(|(name, address)| {
        let mut config = SimDeviceConfig::new(name, &[address]);
        change(&mut config);
        network.add_device_with(config)
    });
    let provider = network.provider();
    let find = |address| find_port(&provider, PortQuery { address, device: None }).unwrap();
    (network, devices, [first, second].map(find))
}

/// Ports of two devices each.
pub(crate) fn pairs() -> Vec<[Port; 2]> {
    hardware_ports().into_iter().chain([simulated(1).2]).collect()
}

/// The pairs of ports that connections are tested over: two devices, and one with itself.
pub(crate) fn routes() -> Vec<[Port; 2]> {
    let pairs = pairs().into_iter();
    pairs.flat_map(|[first, second]| [[first.clone(), second], [first.clone(), first]]).collect()
}

/// One end: a worker with one queue pair, and pools.
pub(crate) struct End {
    pub(crate) completions: CompletionQueue,
    pub(crate) receives: SharedReceiveQueue,
    pub(crate) queue_pair: QueuePair,
    pub(crate) slots: Arc<SlotPool>,
    pub(crate) sources: Arc<RegionPool>,
    /// Buffers that are read through windows.
    pub(crate) windowed: Arc<RegionPool>,
    pub(crate) sinks: Arc<RegionPool>,
    pub(crate) port: Port,
    /// Messages in the order of their completions.
    pub(crate) messages: Vec<Vec<u8>>,
    /// For each message the key that it took away.
    pub(crate) invalidated: Vec<Option<RemoteKey>>,
    /// Work that came back.
    pub(crate) done: Vec<Done>,
    /// Completions of sends and READs.
    pub(crate) send_completions: usize,
    /// Completions that no queue knew.
    pub(crate) unknown: usize,
    /// Receives that failed.
    pub(crate) failed_receives: usize,
    pub(crate) reposts: bool,
    polled: Vec<Completion>,
}

/// Sizes of an end, where a test needs others.
#[derive(Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) receive_slots: u16,
    pub(crate) send_depth: u32,
}

impl Default for Sizes {
    fn default() -> Self {
        Self { receive_slots: SLOT_COUNT, send_depth: 32 }
    }
}

impl End {
    fn new(port: &Port, sizes: Sizes) -> Result<Self, VerbsError> {
        let device = &port.device;
        let completions = CompletionQueue::new(device, 512)?;
        let (slot_count, slot_len) = (sizes.receive_slots, SLOT_LEN as u32);
        let config = SharedReceiveQueueConfig { slot_count, slot_len, tag: RECEIVE_TAG };
        let receives = SharedReceiveQueue::new(&completions, &config)?;
        let config = QueuePairConfig { send_depth: sizes.send_depth, tag: 7, ..Default::default() };
        let queue_pair = QueuePair::new(&receives.attachment(), port, &config)?;
        Ok(Self {
            completions,
            receives,
            queue_pair,
            slots: SlotPool::new(device, SEND_SLOTS, SLOT_LEN)?,
            sources: RegionPool::new(device, Access::Source, 64 << 20),
            windowed: RegionPool::new(device, Access::Windowed, 64 << 20),
            sinks: RegionPool::new(device, Access::Sink, 64 << 20),
            port: port.clone(),
            messages: Vec::new(),
            invalidated: Vec::new(),
            done: Vec::new(),
            send_completions: 0,
            unknown: 0,
            failed_receives: 0,
            reposts: true,
            polled: Vec::new(),
        })
    }

    /// Handles what has completed; returns how much that was.
    pub(crate) fn drive(&mut self) -> usize {
        let mut polled = std::mem::take(&mut self.polled);
        let count = self.completions.poll(&mut polled).unwrap();
        for completion in polled.drain(..) {
            self.handle(completion);
        }
        self.polled = polled;
        if self.reposts {
            self.receives.repost().unwrap();
        }
        count
    }

    fn handle(&mut self, completion: Completion) {
        if completion.kind() == WorkKind::Receive {
            let invalidated = completion.invalidated_key();
            match self.receives.receive(completion, <[u8]>::to_vec) {
                Ok(message) => {
                    self.messages.push(message);
                    self.invalidated.push(invalidated);
                }
                Err(_) => self.failed_receives += 1,
            }
            return;
        }
        self.send_completions += 1;
        match self.queue_pair.handle_completion(completion, &mut self.done) {
            Ok(()) => {}
            Err(UnknownCompletion(_)) => self.unknown += 1,
        }
    }

    /// A message in a slot of the pool.
    pub(crate) fn send(&self, bytes: &[u8]) -> Work {
        let mut slot = self.slots.try_take().expect("the pool is larger than the tests need");
        slot[..bytes.len()].copy_from_slice(bytes);
        Work::Send { slot, len: bytes.len() as u32, invalidate: None }
    }

    /// Posts everything; the send queue must have room for it.
    pub(crate) fn post_all(&mut self, mut batch: VecDeque<Work>) {
        let count = batch.len();
        assert_eq!(self.queue_pair.post(&mut batch).unwrap(), count);
    }

    /// Returns true if every send slot is back in its pool.
    pub(crate) fn has_all_slots(&self) -> bool {
        self.slots.available() == SEND_SLOTS as usize
    }
}

/// Two connected ends.
pub(crate) fn connected(ports: &[Port; 2]) -> [End; 2] {
    connected_with(ports, Sizes::default(), &ConnectOptions::default())
}

pub(crate) fn connected_with(
    ports: &[Port; 2],
    sizes: Sizes,
    options: &ConnectOptions,
) -> [End; 2] {
    let mut ends = [0, 1].map(|i| End::new(&ports[i], sizes).unwrap());
    connect(&mut ends, options);
    ends
}

/// Connects the queue pairs of two ends.
pub(crate) fn connect([first, second]: &mut [End; 2], options: &ConnectOptions) {
    let (here, there) = (first.queue_pair.endpoint(), second.queue_pair.endpoint());
    let agreed = first.queue_pair.connect(&there, options).unwrap();
    assert_eq!(second.queue_pair.connect(&here, options).unwrap(), agreed);
    assert_eq!(agreed.reads_out, 16);
}

/// Drives both ends until a condition holds; fails when that takes too long.
pub(crate) async fn drive_until(ends: &mut [End; 2], condition: impl Fn(&[End; 2]) -> bool) {
    let driving = async {
        while !condition(ends) {
            let mut count = 0;
            for end in ends.iter_mut() {
                count += end.drive();
            }
            if count == 0 {
                tokio::task::yield_now().await;
            }
        }
    };
    tokio::time::timeout(WAIT_MAX, driving).await.expect("the condition holds in time");
}

/// Drives both ends until a condition holds, letting the paused time pass.
pub(crate) async fn pass_until(ends: &mut [End], condition: impl Fn(&[End]) -> bool) {
    for _ in 0..STEPS_MAX {
        let count: usize = ends.iter_mut().map(End::drive).sum();
        if condition(ends) {
            return;
        }
        if count == 0 {
            tokio::time::sleep(STEP).await;
        }
    }
    panic!("the condition does not hold after {STEPS_MAX} steps");
}

/// Bytes that differ by place and seed.
pub(crate) fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| ((i * 31) ^ (i >> 8) ^ (seed * 7)) as u8).collect()
}
