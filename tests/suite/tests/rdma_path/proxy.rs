//! A hop between client and server on the bootstrap: it counts what passes, and can alter what the
//! server says of its end of the RDMA path, so that the path cannot be proven.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use prost::Message;
use rpc_core::wire::hello::{self, Hello, PREFIX_LEN};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// The server's parameters of a path, as far as these tests need them. They are written down a
/// second time on purpose.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Blob {
    #[prost(uint32, tag = "1")]
    version: u32,
    /// The queue pair's number.
    #[prost(uint32, tag = "2")]
    pub(crate) queue_pair_number: u32,
    #[prost(uint32, tag = "3")]
    packet_sequence_number: u32,
    /// The address of the port.
    #[prost(bytes = "vec", tag = "4")]
    pub(crate) gid: Vec<u8>,
    #[prost(uint32, tag = "5")]
    lid: u32,
    #[prost(uint32, tag = "6")]
    mtu: u32,
    #[prost(uint32, tag = "7")]
    reads_max: u32,
    #[prost(bool, tag = "8")]
    is_infiniband: bool,
    /// Number that messages to this end must carry.
    #[prost(uint32, tag = "9")]
    pub(crate) epoch: u32,
    #[prost(uint32, tag = "10")]
    grant: u32,
    #[prost(uint32, tag = "11")]
    slot_len: u32,
}

/// A change to the server's blob.
pub(crate) type Alter = fn(&mut Blob);

/// The hop. Dropped, it closes what passes through it.
#[derive(Debug)]
pub(crate) struct Proxy {
    /// Address that clients connect to.
    pub(crate) authority: String,
    passed: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl Proxy {
    /// A hop in front of `target`, on the same host.
    ///
    /// # Errors
    ///
    /// Returns an error if nothing can be listened on there.
    pub(crate) async fn start(host: &str, target: &str, alter: Option<Alter>) -> io::Result<Self> {
        let listener = TcpListener::bind((host, 0)).await?;
        let authority = listener.local_addr()?.to_string();
        let passed = Arc::new(AtomicU64::new(0));
        let (count, target) = (Arc::clone(&passed), target.to_owned());
        let task = tokio::spawn(async move {
            let mut hops = tokio::task::JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(&target).await else { continue };
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                hops.spawn(pass(from_client, to_server, Arc::clone(&count)));
                hops.spawn(pass_back(from_server, to_client, Arc::clone(&count), alter));
            }
        });
        Ok(Self { authority, passed, task })
    }

    /// Returns the number of bytes passed in both directions.
    pub(crate) fn passed_bytes(&self) -> u64 {
        self.passed.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, count: Arc<AtomicU64>) {
    let mut bytes = vec![0; 64 << 10];
    while let Ok(len @ 1..) = from.read(&mut bytes).await {
        count.fetch_add(len as u64, Ordering::SeqCst);
        if to.write_all(&bytes[..len]).await.is_err() {
            return;
        }
    }
    // The other side may have closed already.
    let _ = to.shutdown().await;
}

async fn pass_back(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    count: Arc<AtomicU64>,
    alter: Option<Alter>,
) {
    if let Some(alter) = alter {
        let altered = alter_hello(&mut from, &mut to, alter).await;
        altered.expect("the server says Hello and accepts the offer");
    }
    pass(from, to, count).await;
}

async fn alter_hello(
    from: &mut OwnedReadHalf,
    to: &mut OwnedWriteHalf,
    alter: Alter,
) -> io::Result<()> {
    let mut prefix = [0; PREFIX_LEN];
    from.read_exact(&mut prefix).await?;
    let mut body =
        vec![0; hello::decode_prefix(&hello::SERVER_HELLO, &prefix).map_err(io::Error::other)?];
    from.read_exact(&mut body).await?;
    let mut hello: Hello =
        hello::decode_body(&hello::SERVER_HELLO, &body).map_err(io::Error::other)?;
    let accepted = hello.accepted.as_mut().ok_or_else(|| io::Error::other("declined"))?;
    let mut blob = Blob::decode(accepted.blob.clone()).map_err(io::Error::other)?;
    alter(&mut blob);
    accepted.blob = blob.encode_to_vec().into();
    to.write_all(&hello::encode(&hello).map_err(io::Error::other)?).await
}
