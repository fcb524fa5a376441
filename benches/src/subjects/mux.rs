//! A bare multiplexed echo on tokio: length-prefixed prost messages with an id, one task that
//! writes and one that reads on either side, and nothing else: no deadlines, no limits, no
//! cancellation, no flow control but the socket's. What an RPC library costs beyond this is the
//! library.
//!
//! A frame is the length of its payload (4 bytes), its call's id (8), the operation or 0 (1), and
//! the payload, a message of `bench.proto`. Numbers are little-endian. The messages of a stream
//! have its id, until the client stops it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, Result, bail, ensure};
use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use parking_lot::Mutex;
use prost::Message;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, JoinHandle, JoinSet};

use super::std_net::host_and_port;
use crate::proto::{Done, Payload, Wanted};
use crate::service::Service;
use crate::worker::{Caller, Client, Quota, Subject, Tally};

const HEAD_LEN: usize = 13;

/// The longest message that the harness sends, with what protobuf adds.
const PAYLOAD_LEN_MAX: usize = 65 << 20;

const ECHO: u8 = 0;
const UPLOAD: u8 = 1;
const DOWNLOAD: u8 = 2;
const FEED: u8 = 3;
const STOP: u8 = 4;

/// Frames that wait for the socket, and messages of a stream that wait for their reader.
const QUEUE_LEN: usize = 1024;

/// The multiplexed echo as a subject.
#[derive(Debug, Clone, Copy)]
pub struct Mux;

struct Frame {
    id: u64,
    operation: u8,
    payload: Bytes,
}

impl Subject for Mux {
    type Connection = MuxClient;

    async fn serve(&self, address: &str) -> Result<String> {
        let listener = TcpListener::bind(host_and_port(address)?).await?;
        let address = format!("tcp://{}", listener.local_addr()?);
        let service = Arc::new(Service::default());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&service)));
            }
        });
        Ok(address)
    }

    async fn connect(&self, address: &str) -> Result<MuxClient> {
        let stream = TcpStream::connect(host_and_port(address)?)
            .await
            .with_context(|| format!("connecting to {address}"))?;
        stream.set_nodelay(true)?;
        let (reader, writer) = stream.into_split();
        let (frames, queue) = mpsc::channel(QUEUE_LEN);
        let waiting = Waiting::default();
        tokio::spawn(write(writer, queue));
        tokio::spawn(deliver(reader, Arc::clone(&waiting)));
        Ok(MuxClient { frames, waiting, next: Arc::default() })
    }
}

async fn serve(stream: TcpStream, service: Arc<Service>) -> Result<()> {
    stream.set_nodelay(true)?;
    let (reader, writer) = stream.into_split();
    let (frames, queue) = mpsc::channel(QUEUE_LEN);
    tokio::spawn(write(writer, queue));
    let mut frames_in = Frames::new(reader);
    // They end with the connection.
    let mut streams = JoinSet::new();
    let mut by_id: HashMap<u64, AbortHandle> = HashMap::new();
    loop {
        let Frame { id, operation, payload } = frames_in.next().await?;
        let payload = match operation {
            FEED => {
                let message = service.payload(&Wanted::decode(payload)?)?;
                by_id.insert(id, streams.spawn(feed(id, message, frames.clone())));
                continue;
            }
            STOP => {
                by_id.remove(&id).context("no such stream")?.abort();
                continue;
            }
            ECHO => Payload::decode(payload)?.encode_to_vec(),
            UPLOAD => {
                Payload::decode(payload)?;
                Done {}.encode_to_vec()
            }
            DOWNLOAD => service.payload(&Wanted::decode(payload)?)?.encode_to_vec(),
            other => bail!("no operation has the number {other}"),
        };
        frames.send(Frame { id, operation: 0, payload: payload.into() }).await?;
    }
}

/// Sends a message over and over.
async fn feed(id: u64, message: Payload, frames: mpsc::Sender<Frame>) -> Result<()> {
    loop {
        let payload = message.encode_to_vec().into();
        frames.send(Frame { id, operation: 0, payload }).await?;
    }
}

/// Writes frames as they come: those that wait together go out in one write.
async fn write(mut writer: OwnedWriteHalf, mut queue: mpsc::Receiver<Frame>) -> Result<()> {
    let mut batch = BytesMut::new();
    while let Some(frame) = queue.recv().await {
        put(&mut batch, &frame)?;
        while let Ok(frame) = queue.try_recv() {
            put(&mut batch, &frame)?;
        }
        writer.write_all(&batch).await?;
        batch.clear();
    }
    Ok(())
}

fn put(batch: &mut BytesMut, frame: &Frame) -> Result<()> {
    batch.put_u32_le(u32::try_from(frame.payload.len())?);
    batch.put_u64_le(frame.id);
    batch.put_u8(frame.operation);
    batch.put_slice(&frame.payload);
    Ok(())
}

struct Frames {
    reader: OwnedReadHalf,
    memory: BytesMut,
}

impl Frames {
    fn new(reader: OwnedReadHalf) -> Self {
        Self { reader, memory: BytesMut::new() }
    }

    async fn next(&mut self) -> Result<Frame> {
        self.fill(HEAD_LEN).await?;
        let len = usize::try_from(self.memory.get_u32_le())?;
        let (id, operation) = (self.memory.get_u64_le(), self.memory.get_u8());
        ensure!(len <= PAYLOAD_LEN_MAX, "{len} bytes are too many");
        self.fill(len).await?;
        Ok(Frame { id, operation, payload: self.memory.split_to(len).freeze() })
    }

    async fn fill(&mut self, len: usize) -> Result<()> {
        while self.memory.len() < len {
            self.memory.reserve((len - self.memory.len()).max(64 << 10));
            ensure!(self.reader.read_buf(&mut self.memory).await? > 0, "the peer has closed");
        }
        Ok(())
    }
}

/// A waiter for the frames of a call.
enum Waiter {
    Call(oneshot::Sender<Bytes>),
    Stream(mpsc::Sender<Bytes>),
}

type Waiting = Arc<Mutex<HashMap<u64, Waiter>>>;

async fn deliver(reader: OwnedReadHalf, waiting: Waiting) -> Result<()> {
    let mut frames = Frames::new(reader);
    loop {
        let read = frames.next().await;
        let stream = {
            let mut calls = waiting.lock();
            let frame = match read {
                Ok(frame) => frame,
                Err(error) => {
                    // Their senders dropped, the callers see that no answer comes.
                    calls.clear();
                    return Err(error);
                }
            };
            match calls.get(&frame.id) {
                Some(Waiter::Stream(messages)) => Some((messages.clone(), frame.payload)),
                // A caller that has given up is not there any more.
                _ => {
                    if let Some(Waiter::Call(caller)) = calls.remove(&frame.id) {
                        let _ = caller.send(frame.payload);
                    }
                    None
                }
            }
        };
        if let Some((messages, payload)) = stream {
            // A reader that has stopped its stream takes what was on its way no more.
            let _ = messages.send(payload).await;
        }
    }
}

/// One multiplexed connection.
#[derive(Clone)]
pub struct MuxClient {
    frames: mpsc::Sender<Frame>,
    waiting: Waiting,
    next: Arc<AtomicU64>,
}

impl std::fmt::Debug for MuxClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MuxClient").finish_non_exhaustive()
    }
}

impl MuxClient {
    async fn call<R: Message + Default>(&self, operation: u8, request: &impl Message) -> Result<R> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (caller, answer) = oneshot::channel();
        self.wait(id, Waiter::Call(caller));
        self.send(id, operation, request).await?;
        Ok(R::decode(answer.await.context("the connection is gone")?)?)
    }

    fn wait(&self, id: u64, waiter: Waiter) {
        self.waiting.lock().insert(id, waiter);
    }

    async fn send(&self, id: u64, operation: u8, message: &impl Message) -> Result<()> {
        let payload = message.encode_to_vec().into();
        Ok(self.frames.send(Frame { id, operation, payload }).await?)
    }
}

impl Client for MuxClient {
    async fn echo(&self, data: Bytes) -> Result<usize> {
        Ok(self.call::<Payload>(ECHO, &Payload { data }).await?.data.len())
    }

    async fn upload(&self, data: Bytes) -> Result<()> {
        self.call::<Done>(UPLOAD, &Payload { data }).await?;
        Ok(())
    }

    async fn download(&self, len: usize) -> Result<usize> {
        Ok(self.call::<Payload>(DOWNLOAD, &Wanted { len: len as u64 }).await?.data.len())
    }

    async fn feed(&self, len: usize, quota: &mut Quota) -> Result<()> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (messages, mut received) = mpsc::channel(QUEUE_LEN);
        self.wait(id, Waiter::Stream(messages));
        self.send(id, FEED, &Wanted { len: len as u64 }).await?;
        while quota.wants_message() {
            let message = received.recv().await.context("the stream ended")?;
            ensure!(Payload::decode(message)?.data.len() == len, "a message of another length");
            quota.add(1);
        }
        self.waiting.lock().remove(&id);
        self.send(id, STOP, &Done {}).await
    }

    fn spawn(caller: Caller<Self>) -> JoinHandle<Result<Tally>> {
        tokio::spawn(caller.run())
    }
}
