//! Carries a connection of a link: a task reads at one end and writes at the other.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::lane::{Flow, Lane};

/// Maximum number of bytes of one read.
const CHUNK_LEN: usize = 16 << 10;

/// Maximum number of chunks in flight in one direction. With [`CHUNK_LEN`] it is 1 MiB, so a
/// latency of 100 ms leaves 80 Mbit/s.
const CHUNKS_MAX: usize = 64;

/// Bytes on their way, and when they were sent.
struct Chunk {
    sent: Instant,
    bytes: Vec<u8>,
}

/// Carries a connection until both of its directions have ended.
pub(super) async fn carry(
    client: impl AsyncRead + AsyncWrite,
    server: impl AsyncRead + AsyncWrite,
    [to_server, to_client]: [&Lane; 2],
) {
    let (from_client, into_client) = split(client);
    let (from_server, into_server) = split(server);
    tokio::join!(
        one_way(from_client, into_server, to_server),
        one_way(from_server, into_client, to_client),
    );
}

/// Carries one direction to its end. An end that is gone ends the direction, as in a network: the
/// other direction finds out by itself.
async fn one_way(from: impl AsyncRead + Unpin, into: impl AsyncWrite + Unpin, lane: &Lane) {
    let (queue, chunks) = mpsc::channel(CHUNKS_MAX);
    let _: (io::Result<()>, io::Result<()>) =
        tokio::join!(read(from, queue), deliver(into, chunks, lane));
}

async fn read(mut from: impl AsyncRead + Unpin, queue: mpsc::Sender<Chunk>) -> io::Result<()> {
    loop {
        let mut bytes = Vec::with_capacity(CHUNK_LEN);
        if from.read_buf(&mut bytes).await? == 0 {
            return Ok(());
        }
        let chunk = Chunk { sent: Instant::now(), bytes };
        if queue.send(chunk).await.is_err() {
            return Ok(());
        }
    }
}

async fn deliver(
    mut into: impl AsyncWrite + Unpin,
    mut chunks: mpsc::Receiver<Chunk>,
    lane: &Lane,
) -> io::Result<()> {
    while let Some(Chunk { sent, mut bytes }) = chunks.recv().await {
        match lane.due(sent).await {
            Flow::Passes => {
                lane.pass(&mut bytes);
                into.write_all(&bytes).await?;
            }
            Flow::Waits | Flow::IsLost => {}
        }
    }
    // The end takes as long as any byte.
    match lane.due(Instant::now()).await {
        Flow::Passes => into.shutdown().await,
        Flow::Waits | Flow::IsLost => std::future::pending().await,
    }
}
