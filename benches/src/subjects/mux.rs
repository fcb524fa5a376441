//! A bare multiplexed echo on tokio: length-prefixed prost messages with an id, one task that
//! writes and one that reads on either side, and nothing else: no deadlines, no limits, no
//! cancellation, no flow control. What an RPC library costs beyond this is the library.
//!
//! A frame is the length of its payload (4 bytes), its call's id (8), the operation or 0 (1), and
//! the payload, a message of `bench.proto`. Numbers are little-endian.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result, bail, ensure};
use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use prost::Message;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

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
        let (frames, queue) = mpsc::unbounded_channel();
        let waiting = Waiting::default();
        tokio::spawn(write(writer, queue));
        tokio::spawn(deliver(reader, Arc::clone(&waiting)));
        Ok(MuxClient { frames, waiting, next: Arc::default() })
    }
}

async fn serve(stream: TcpStream, service: Arc<Service>) -> Result<()> {
    stream.set_nodelay(true)?;
    let (reader, writer) = stream.into_split();
    let (frames, queue) = mpsc::unbounded_channel();
    tokio::spawn(write(writer, queue));
    let mut frames_in = Frames::new(reader);
    loop {
        let Frame { id, operation, payload } = frames_in.next().await?;
        let payload = match operation {
            ECHO => Payload::decode(payload)?.encode_to_vec(),
            UPLOAD => {
                Payload::decode(payload)?;
                Done {}.encode_to_vec()
            }
            DOWNLOAD => service.payload(&Wanted::decode(payload)?)?.encode_to_vec(),
            other => bail!("no operation has the number {other}"),
        };
        frames.send(Frame { id, operation: 0, payload: payload.into() })?;
    }
}

/// Writes frames as they come: those that wait together go out in one write.
async fn write(mut writer: OwnedWriteHalf, mut queue: UnboundedReceiver<Frame>) -> Result<()> {
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

type Waiting = Arc<Mutex<HashMap<u64, oneshot::Sender<Bytes>>>>;

async fn deliver(reader: OwnedReadHalf, waiting: Waiting) -> Result<()> {
    let mut frames = Frames::new(reader);
    loop {
        let read = frames.next().await;
        let mut calls = waiting.lock().unwrap_or_else(PoisonError::into_inner);
        match read {
            // A caller that has given up is not there any more.
            Ok(frame) => {
                calls.remove(&frame.id).and_then(|caller| caller.send(frame.payload).ok());
            }
            Err(error) => {
                // Their senders dropped, the callers see that no answer comes.
                calls.clear();
                return Err(error);
            }
        }
    }
}

/// One multiplexed connection.
#[derive(Clone)]
pub struct MuxClient {
    frames: UnboundedSender<Frame>,
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
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(id, caller);
        self.frames.send(Frame { id, operation, payload: request.encode_to_vec().into() })?;
        Ok(R::decode(answer.await.context("the connection is gone")?)?)
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

    async fn feed(&self, _: usize, _: &mut Quota) -> Result<()> {
        bail!("mux has no streams")
    }

    fn spawn(caller: Caller<Self>) -> JoinHandle<Result<Tally>> {
        tokio::spawn(caller.run())
    }
}
