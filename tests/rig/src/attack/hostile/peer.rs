//! One hostile connection, and what all of them have done.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rpc_core::wire::FrameKind;
use rpc_core::wire::hello::{self, PREFIX_LEN};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

use super::frames;
use crate::attack::message::Deeds;

/// Source address of hostile clients. Honest ones have another, as they would elsewhere.
const SOURCE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// Between two signs of life. Shorter than any keepalive, and far from a flood.
const PONG_INTERVAL: Duration = Duration::from_millis(500);

/// The receive buffer of a peer that reads nothing: the least that Linux gives.
const SMALL_BUFFER: u32 = 4096;

/// The record of a hostile process.
#[derive(Debug, Default)]
pub(super) struct Record {
    opened: AtomicU64,
    closed: AtomicU64,
    sent: AtomicU64,
    is_done: AtomicBool,
}

impl Record {
    pub(super) fn deeds(&self) -> Deeds {
        Deeds {
            opened: self.opened.load(Ordering::Relaxed),
            closed: self.closed.load(Ordering::Relaxed),
            sent: self.sent.load(Ordering::Relaxed),
            is_done: self.is_done.load(Ordering::Relaxed),
        }
    }

    /// Counts a connection that a hostile server has accepted, or a query.
    pub(super) fn count_opened(&self) {
        self.opened.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn finish(&self) {
        self.is_done.store(true, Ordering::Relaxed);
    }
}

/// A peer's treatment of what it receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    Everything,
    Nothing,
}

/// A hostile connection.
#[derive(Debug)]
pub(super) struct Peer {
    stream: TcpStream,
    record: Arc<Record>,
    reading: Reading,
}

impl Peer {
    /// Connects from the hostile address.
    pub(super) async fn connect(
        victim: SocketAddr,
        reading: Reading,
        record: &Arc<Record>,
    ) -> io::Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddr::from((SOURCE, 0)))?;
        if reading == Reading::Nothing {
            socket.set_recv_buffer_size(SMALL_BUFFER)?;
        }
        let stream = socket.connect(victim).await?;
        Ok(Self::accepted(stream, reading, record))
    }

    /// A connection that a hostile server has accepted.
    pub(super) fn accepted(stream: TcpStream, reading: Reading, record: &Arc<Record>) -> Self {
        record.count_opened();
        Self { stream, record: Arc::clone(record), reading }
    }

    /// Sends a Hello and reads the other side's.
    pub(super) async fn greet(&mut self, hello: &[u8]) -> io::Result<()> {
        self.send(hello).await?;
        self.read_hello().await
    }

    /// Reads a Hello.
    pub(super) async fn read_hello(&mut self) -> io::Result<()> {
        let mut prefix = [0; PREFIX_LEN];
        self.stream.read_exact(&mut prefix).await?;
        // A server's may be the longer one.
        let len = hello::decode_prefix(&hello::SERVER_HELLO, &prefix).map_err(io::Error::other)?;
        let mut body = vec![0; len];
        self.stream.read_exact(&mut body).await.map(drop)
    }

    /// Reads a record and gives what is in it.
    pub(super) async fn read_record(&mut self) -> io::Result<Vec<u8>> {
        let mut header = [0; 12];
        self.stream.read_exact(&mut header).await?;
        let [_, _, _, _, l0, l1, l2, l3, ..] = header;
        let mut body = vec![0; u32::from_le_bytes([l0, l1, l2, l3]) as usize];
        self.stream.read_exact(&mut body).await?;
        Ok(body)
    }

    /// Sends bytes.
    pub(super) async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        write(&mut self.stream, bytes, &self.record).await
    }

    /// Sends bytes. A peer that reads throws away meanwhile what it is sent, so that the victim
    /// need not wait for it.
    pub(super) async fn flood(&mut self, bytes: &[u8]) -> io::Result<()> {
        let (mut read, mut write_half) = self.stream.split();
        let writing = write(&mut write_half, bytes, &self.record);
        match self.reading {
            Reading::Nothing => writing.await,
            Reading::Everything => tokio::select! {
                written = writing => written,
                ended = drain(&mut read) => Err(ended),
            },
        }
    }

    /// Stays for as long as the victim has it, and shows now and then that it lives.
    pub(super) async fn stay(mut self) {
        let pong = frames::bare(FrameKind::Pong, 0, 0);
        let (mut read, mut write) = self.stream.split();
        let living = async {
            loop {
                tokio::time::sleep(PONG_INTERVAL).await;
                if let Err(error) = write.write_all(&pong).await {
                    return error;
                }
            }
        };
        match self.reading {
            Reading::Everything => tokio::select! {
                _ = living => {}
                _ = drain(&mut read) => {}
            },
            Reading::Nothing => drop(living.await),
        }
        self.count_closed();
    }

    /// Says nothing, not even that it lives, until the victim closes.
    pub(super) async fn wait_for_end(mut self) {
        drain(&mut self.stream).await;
        self.count_closed();
    }

    /// Counts the connection as one that the victim has closed.
    pub(super) fn count_closed(&self) {
        self.record.closed.fetch_add(1, Ordering::Relaxed);
    }
}

/// Writes bytes, and counts those that the kernel takes.
async fn write(
    to: &mut (impl tokio::io::AsyncWrite + Unpin),
    bytes: &[u8],
    record: &Record,
) -> io::Result<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        let len = to.write(rest).await?;
        record.sent.fetch_add(len as u64, Ordering::Relaxed);
        rest = &rest[len..];
    }
    Ok(())
}

/// Reads until there is nothing more, and says why.
async fn drain(read: &mut (impl tokio::io::AsyncRead + Unpin)) -> io::Error {
    let mut sink = vec![0; 16 << 10];
    loop {
        match read.read(&mut sink).await {
            Ok(0) => return io::ErrorKind::UnexpectedEof.into(),
            Ok(_) => {}
            Err(error) => return error,
        }
    }
}
