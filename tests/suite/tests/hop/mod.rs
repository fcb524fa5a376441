//! A hop between two sockets that can turn bad without closing anything.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

const PASS: u8 = 0;
const SWALLOW: u8 = 1;
const SLOW: u8 = 2;

/// Bytes that a slow hop passes at a time, with a pause after them: 1 MiB takes 1.3 s each way.
const SLOW_LEN: usize = 8 << 10;
const SLOW_PAUSE: Duration = Duration::from_millis(10);

/// The hop. Dropped, it closes what passes through it.
pub(crate) struct Hop {
    /// Address that clients connect to.
    pub(crate) authority: String,
    mode: Arc<AtomicU8>,
    task: JoinHandle<()>,
}

impl Hop {
    /// A hop in front of `target`.
    pub(crate) async fn start(target: &str) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let authority = listener.local_addr()?.to_string();
        let mode = Arc::new(AtomicU8::new(PASS));
        let (shared, target) = (Arc::clone(&mode), target.to_owned());
        let task = tokio::spawn(async move {
            let mut hops = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(&target).await else { continue };
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                hops.spawn(pass(from_client, to_server, Arc::clone(&shared)));
                hops.spawn(pass(from_server, to_client, Arc::clone(&shared)));
            }
        });
        Ok(Self { authority, mode, task })
    }

    /// Takes everything and passes nothing on, in both directions.
    pub(crate) fn swallow(&self) {
        self.mode.store(SWALLOW, Ordering::SeqCst);
    }

    /// Lets little pass at a time.
    pub(crate) fn slow_down(&self) {
        self.mode.store(SLOW, Ordering::SeqCst);
    }
}

impl Drop for Hop {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mode: Arc<AtomicU8>) {
    let mut bytes = vec![0; 64 << 10];
    loop {
        let mode_now = mode.load(Ordering::SeqCst);
        let len = if mode_now == SLOW { SLOW_LEN } else { bytes.len() };
        let read = from.read(&mut bytes[..len]).await;
        let mode_now = mode.load(Ordering::SeqCst);
        let Ok(len @ 1..) = read else {
            // The end of one side must not tell the other.
            if mode_now == SWALLOW {
                std::future::pending::<()>().await;
            }
            return;
        };
        match mode_now {
            SWALLOW => continue,
            SLOW => tokio::time::sleep(SLOW_PAUSE).await,
            _ => {}
        }
        if to.write_all(&bytes[..len]).await.is_err() {
            return;
        }
    }
}
