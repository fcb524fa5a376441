//! A client by hand that speaks the handshake and then whatever a test wants, over real verbs.
//!
//! The format of its messages is written down here a second time, on purpose: a change of the wire
//! that both of farcall's sides agree on still fails a test.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use farcall::Limits;
use farcall_suite::Failure;
use farcall_suite::proto::probe_rpc::SERVICE;
use farcall_suite::proto::{ParkRequest, ProduceRequest};
use farcall_suite::raw_peer::{RawPeer, frame};
use prost::Message;
use rpc_core::wire::hello::{self, Hello, Offer, Verdict};
use rpc_core::wire::{FrameKind, HEADER_LEN};
use rpc_transport_rdma::device::{PortQuery, find_port};
use rpc_transport_rdma::memory::{Access, Region, SlotPool};
use rpc_transport_rdma::verbs::{
    CompletionQueue, ConnectOptions, Endpoint, Gid, Ibverbs, LinkLayer, Mtu, Port, QueuePair,
    QueuePairConfig, ReadDepths, RemoteKey, RemoteMemory, SharedReceiveQueue,
    SharedReceiveQueueConfig, Work, WorkKind,
};
use tokio::net::TcpStream;

use crate::rig::within;

const SLOT_LEN: u32 = 4352;
const SLOTS: u16 = 256;
const SEND_DEPTH: u32 = 128;

/// Long messages that are posted at once: five packets each at the shortest usual MTU, of which
/// Soft-RoCE has 64 on their way.
const LONG_MESSAGES: usize = 24;

/// Number that every message to it carries.
const EPOCH: u32 = 0x0bad_cafe;

/// Total number of messages that it grants the server. It never grants more.
pub(crate) const GRANT: u32 = 200;

/// The length of a message's header.
const MESSAGE_HEADER_LEN: usize = 16;

/// Kinds of messages.
pub(crate) const FRAME: u8 = 1;
pub(crate) const OFFER: u8 = 2;
pub(crate) const RELEASE: u8 = 3;
const PURE_GRANT: u8 = 4;
pub(crate) const PROBE: u8 = 5;
pub(crate) const PROBE_ANSWER: u8 = 6;
pub(crate) const CANCEL: u8 = 7;

/// The bit of a kind by which the server says that it has more to send than credit.
const WANTS_MORE: u8 = 0x80;

/// The parameters that the two ends of a path exchange.
#[derive(Clone, PartialEq, Eq, Message)]
struct Blob {
    #[prost(uint32, tag = "1")]
    version: u32,
    #[prost(uint32, tag = "2")]
    queue_pair_number: u32,
    #[prost(uint32, tag = "3")]
    packet_sequence_number: u32,
    #[prost(bytes = "vec", tag = "4")]
    gid: Vec<u8>,
    #[prost(uint32, tag = "6")]
    mtu: u32,
    #[prost(uint32, tag = "7")]
    reads_max: u32,
    #[prost(uint32, tag = "9")]
    epoch: u32,
    #[prost(uint32, tag = "10")]
    grant: u32,
    #[prost(uint32, tag = "11")]
    slot_len: u32,
    #[prost(message, repeated, tag = "13")]
    read_ends: Vec<ReadEnd>,
}

/// A queue pair for READs alone.
#[derive(Clone, PartialEq, Eq, Message)]
struct ReadEnd {
    #[prost(uint32, tag = "1")]
    queue_pair_number: u32,
    #[prost(uint32, tag = "2")]
    packet_sequence_number: u32,
    #[prost(uint32, tag = "3")]
    reads_max: u32,
}

/// The bad client.
pub(crate) struct HostilePeer {
    bootstrap: RawPeer,
    completions: CompletionQueue,
    receives: SharedReceiveQueue,
    queue_pair: QueuePair,
    /// For READs alone, if the server has any.
    read_queue_pair: QueuePair,
    slots: Arc<SlotPool>,
    port: Port,
    epoch: u32,
    /// Number of messages that the server has granted.
    pub(crate) granted: u32,
    /// Number of messages sent that take a credit.
    sent: u32,
    /// Number of messages received that took none.
    control_seen: u16,
    messages: VecDeque<Vec<u8>>,
    is_broken: bool,
}

impl HostilePeer {
    /// Connects as a good client does, up to the proven path.
    pub(crate) async fn connect(authority: &str) -> Result<Self, Failure> {
        let stream = TcpStream::connect(authority).await?;
        let local = stream.local_addr()?.ip();
        let port = find_port(&Ibverbs::new(), PortQuery { address: local, device: None });
        let port = port.map_err(io::Error::other)?;
        let made = Self::make(RawPeer::new(stream), port);
        let mut peer = made.map_err(io::Error::other)?;
        peer.shake_hands().await?;
        Ok(peer)
    }

    fn make(bootstrap: RawPeer, port: Port) -> Result<Self, rpc_transport_rdma::verbs::VerbsError> {
        let completions = CompletionQueue::new(&port.device, 1024)?;
        let config = SharedReceiveQueueConfig { slot_count: SLOTS, slot_len: SLOT_LEN, tag: 1 };
        let receives = SharedReceiveQueue::new(&completions, &config)?;
        let config = QueuePairConfig { send_depth: SEND_DEPTH, tag: 7, ..Default::default() };
        let queue_pair = QueuePair::new(&receives.attachment(), &port, &config)?;
        let read_queue_pair = QueuePair::new(&receives.attachment(), &port, &config)?;
        let slots = SlotPool::new(&port.device, SEND_DEPTH, SLOT_LEN as usize)?;
        Ok(Self {
            bootstrap,
            completions,
            receives,
            queue_pair,
            read_queue_pair,
            slots,
            port,
            epoch: 0,
            granted: 0,
            sent: 0,
            control_seen: 0,
            messages: VecDeque::new(),
            is_broken: false,
        })
    }

    async fn shake_hands(&mut self) -> Result<(), Failure> {
        let (here, to_read) = (self.queue_pair.endpoint(), self.read_queue_pair.endpoint());
        let blob = Blob {
            version: 2,
            queue_pair_number: here.queue_pair_number,
            packet_sequence_number: here.packet_sequence_number,
            gid: here.gid.0.to_vec(),
            mtu: here.mtu.bytes().into(),
            reads_max: here.reads.least().into(),
            epoch: EPOCH,
            grant: GRANT,
            slot_len: SLOT_LEN,
            read_ends: vec![ReadEnd {
                queue_pair_number: to_read.queue_pair_number,
                packet_sequence_number: to_read.packet_sequence_number,
                reads_max: to_read.reads.least().into(),
            }],
        };
        let mut hello = Hello::new(&Limits::default());
        let offer = Offer { name: "rdma".to_owned(), blob: blob.encode_to_vec().into() };
        hello.offers.push(offer);
        self.bootstrap.send(&hello::encode(&hello).map_err(io::Error::other)?).await?;
        let answer = self.bootstrap.read_hello().await?;
        let accepted = answer.accepted.ok_or_else(|| {
            io::Error::other(format!("the server declines: {:?}", answer.declined))
        })?;
        let theirs = Blob::decode(accepted.blob).map_err(io::Error::other)?;
        let remote = Endpoint {
            queue_pair_number: theirs.queue_pair_number,
            packet_sequence_number: theirs.packet_sequence_number,
            gid: Gid(theirs.gid.try_into().unwrap_or_default()),
            lid: 0,
            mtu: Mtu::from_bytes(u16::try_from(theirs.mtu).unwrap_or(0)).unwrap_or(Mtu::B1024),
            reads: ReadDepths::Same(u8::try_from(theirs.reads_max).unwrap_or(1)),
            link_layer: LinkLayer::Ethernet,
            partition_key: None,
            needs_global_route: false,
        };
        let options = ConnectOptions::default();
        if let Some(end) = theirs.read_ends.first() {
            let remote = Endpoint {
                queue_pair_number: end.queue_pair_number,
                packet_sequence_number: end.packet_sequence_number,
                reads: ReadDepths::Same(u8::try_from(end.reads_max).unwrap_or(1)),
                ..remote
            };
            self.read_queue_pair.connect(&remote, &options).map_err(io::Error::other)?;
        }
        self.queue_pair.connect(&remote, &options).map_err(io::Error::other)?;
        (self.epoch, self.granted) = (theirs.epoch, theirs.grant);
        self.say(PROBE, 0, 0, &[]).await;
        self.hear(PROBE_ANSWER).await;
        let verdict = hello::encode(&Verdict::good()).map_err(io::Error::other)?;
        self.bootstrap.send(&verdict).await?;
        Ok(())
    }

    /// Sends a message, with credit or without.
    pub(crate) async fn say(&mut self, kind: u8, outcome: u8, transfer: u32, body: &[u8]) {
        let message = self.message(kind, outcome, transfer, body);
        self.say_bytes(&message, None).await;
    }

    fn message(&self, kind: u8, outcome: u8, transfer: u32, body: &[u8]) -> Vec<u8> {
        let mut message = vec![kind, outcome];
        message.extend_from_slice(&self.control_seen.to_le_bytes());
        for word in [self.epoch, GRANT, transfer] {
            message.extend_from_slice(&word.to_le_bytes());
        }
        message.extend_from_slice(body);
        message
    }

    /// Sends bytes, whatever they are, once there is room for them here; and takes a key of the
    /// server away with them, if one is named.
    pub(crate) async fn say_bytes(&mut self, message: &[u8], invalidate: Option<RemoteKey>) {
        let mut slot = loop {
            if self.is_broken {
                return;
            }
            match self.slots.try_take() {
                Some(slot) if self.queue_pair.room() > 0 => break slot,
                _ => self.turn().await,
            }
        };
        slot[..message.len()].copy_from_slice(message);
        let len = u32::try_from(message.len()).unwrap_or(u32::MAX);
        let mut batch = VecDeque::from([Work::Send { slot, len, invalidate }]);
        self.is_broken |= self.queue_pair.post(&mut batch).is_err();
        let takes_credit = message.first().is_none_or(|kind| !is_control(*kind));
        self.sent += u32::from(takes_credit);
    }

    /// Sends a message that is in order on the queue pair that is for READs.
    pub(crate) fn say_where_reads_belong(&mut self) {
        let message = self.message(PROBE, 0, 0, &[]);
        let mut slot = self.slots.try_take().expect("it has sent little before");
        slot[..MESSAGE_HEADER_LEN].copy_from_slice(&message);
        let len = u32::try_from(MESSAGE_HEADER_LEN).unwrap_or(u32::MAX);
        let mut batch = VecDeque::from([Work::Send { slot, len, invalidate: None }]);
        self.is_broken |= self.read_queue_pair.post(&mut batch).is_err();
    }

    /// Posts messages of several packets each, more than a network takes at once. A client that is
    /// dropped now goes in the middle of one.
    pub(crate) fn begin_long_messages(&mut self) {
        let mut batch = VecDeque::new();
        while batch.len() < LONG_MESSAGES
            && let Some(slot) = self.slots.try_take()
        {
            batch.push_back(Work::Send { slot, len: SLOT_LEN, invalidate: None });
        }
        self.is_broken |= self.queue_pair.post(&mut batch).is_err();
    }

    /// Waits for credit, as a good client does.
    pub(crate) async fn wait_for_credit(&mut self) {
        let credit = async {
            while self.sent >= self.granted && !self.is_broken {
                self.turn().await;
            }
        };
        within("a grant of the server", credit).await;
    }

    /// Sends a request for a method that answers with nothing, whole.
    pub(crate) async fn call(&mut self, call: u64) {
        let request = park_frame(call);
        self.say(FRAME, 0, 0, &request).await;
    }

    /// Offers a request of `len` bytes that lies in the memory given, if it tells the truth.
    pub(crate) async fn offer(&mut self, call: u64, memory: RemoteMemory, len: u64) {
        let mut header = park_frame(call)[..HEADER_LEN].to_vec();
        // The length of the message, the last field of a frame's header.
        header[24..].copy_from_slice(&(len - HEADER_LEN as u64).to_le_bytes());
        let mut body = len.to_le_bytes().to_vec();
        body.extend_from_slice(&1u32.to_le_bytes());
        body.extend_from_slice(&32u32.to_le_bytes());
        // The header travels in the offer; what lies in memory is what follows it.
        let address = memory.address + HEADER_LEN as u64;
        for word in [address, len - HEADER_LEN as u64, memory.key.0.into()] {
            body.extend_from_slice(&word.to_le_bytes());
        }
        body.extend_from_slice(&header);
        let transfer = u32::try_from(call).unwrap_or(u32::MAX);
        self.say(OFFER, 0, transfer, &body).await;
    }

    /// Memory that the server may read.
    pub(crate) fn memory(&self, len: usize) -> Region {
        Region::new(&self.port.device, len, Access::Source).expect("the test may lock memory")
    }

    /// The next message of a kind; everything before it is forgotten. Panics when the path breaks.
    pub(crate) async fn hear(&mut self, kind: u8) -> Vec<u8> {
        let heard = async {
            loop {
                while let Some(message) = self.messages.pop_front() {
                    if message[0] == kind {
                        return message;
                    }
                }
                assert!(!self.is_broken, "the path broke while message {kind} was waited for");
                self.turn().await;
            }
        };
        within("a message of the server", heard).await
    }

    /// The transfer that a message names.
    pub(crate) fn transfer(message: &[u8]) -> u32 {
        u32::from_le_bytes(message[12..MESSAGE_HEADER_LEN].try_into().expect("it is that long"))
    }

    /// Handles what has completed, and lets others run.
    async fn turn(&mut self) {
        let mut polled = Vec::new();
        self.completions.poll(&mut polled).expect("the device lives");
        for completion in polled {
            if completion.kind() == WorkKind::Receive {
                if let Ok(mut message) = self.receives.receive(completion, <[u8]>::to_vec) {
                    message[0] &= !WANTS_MORE;
                    self.control_seen += u16::from(is_control(message[0]));
                    let grant = message[8..12].try_into().expect("it is that long");
                    self.granted = u32::from_le_bytes(grant);
                    self.messages.push_back(message);
                }
                continue;
            }
            self.is_broken |= completion.error().is_some();
            let queue_pair = match completion.queue_pair_number() == self.queue_pair.number() {
                true => &mut self.queue_pair,
                false => &mut self.read_queue_pair,
            };
            let _ = queue_pair.handle_completion(completion, &mut Vec::new());
        }
        self.receives.repost().expect("the device lives");
        tokio::task::yield_now().await;
    }
}

/// Returns true if a message of this kind takes no credit.
fn is_control(kind: u8) -> bool {
    matches!(kind, PURE_GRANT | PROBE | PROBE_ANSWER)
}

/// A request for the method that answers with nothing.
fn park_frame(call: u64) -> Vec<u8> {
    request("/farcall.suite.Probe/Park", call, &ParkRequest::default())
}

/// A request for an answer of `len` bytes.
pub(crate) fn produce_frame(call: u64, len: u64) -> Vec<u8> {
    request("/farcall.suite.Probe/Produce", call, &ProduceRequest { seed: 1, len })
}

fn request(path: &str, call: u64, message: &impl Message) -> Vec<u8> {
    let index = SERVICE.methods.iter().position(|method| method.path == path);
    let index = u16::try_from(index.expect("the service has it")).expect("it has few methods");
    frame(FrameKind::Request, call, index, &message.encode_to_vec())
}
