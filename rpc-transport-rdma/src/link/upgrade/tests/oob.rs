//! The messages of a connection's two ends on the bootstrap stream next to a path.

use std::pin::Pin;
use std::task::{Context, Poll};

use rpc_core::connect::Bootstrap;
use rpc_core::transport::Transport;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};

use super::*;
use crate::link::oob::watch;

/// A byte stream inside the process, as the bootstrap.
pub(in crate::link::upgrade) struct Stream(pub(in crate::link::upgrade) tokio::io::DuplexStream);

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

impl Bootstrap for Stream {
    fn addresses(&self) -> Addresses {
        Addresses::default()
    }

    fn reregister(self: Box<Self>) -> std::io::Result<Box<dyn Bootstrap>> {
        Ok(self)
    }

    fn into_transport(self: Box<Self>) -> Box<dyn Transport> {
        unreachable!("the path is proven")
    }
}

/// Ends one connection for `reason` and gives what another hears, whose bootstrap joins them.
async fn heard_of(reason: CloseReason) -> CloseReason {
    let rig = Rig::new();
    let ((one, _), (other, heard)) = (rig.open(), rig.open());
    let (left, right) = tokio::io::duplex(1);
    tokio::spawn(watch(Box::new(Stream(left)), Arc::clone(one.connection())));
    tokio::spawn(watch(Box::new(Stream(right)), Arc::clone(other.connection())));
    one.connection().fail(reason.clone());
    if reason.is_failure() {
        // It is said before the queue pair is drained.
        until("the word", || other.connection().ending.is_cancelled()).await;
    }
    one.flush().await;
    until("the end", || other.connection().ending.is_cancelled()).await;
    other.flush().await;
    until("the other end", || heard.closed().is_some()).await;
    heard.closed().unwrap()
}

#[tokio::test]
async fn a_peer_is_told_that_the_path_failed() {
    let reason = heard_of(CloseReason::Failed("retries exceeded".into())).await;
    assert!(reason.is_failure() && reason.to_string().contains("the peer reported"), "{reason:?}");
}

/// A worker may have drained the queue pair before the task runs that tells the peer: many times,
/// for chance used to decide.
#[tokio::test]
async fn a_peer_hears_of_the_failed_path_after_its_own_end() {
    for _ in 0..20 {
        let rig = Rig::new();
        let (one, _) = rig.open();
        let (left, mut right) = tokio::io::duplex(1);
        one.connection().fail(CloseReason::Failed("retries exceeded".into()));
        one.flush().await;
        until("the end", || one.connection().ended.is_cancelled()).await;
        watch(Box::new(Stream(left)), Arc::clone(one.connection())).await;
        let mut heard = Vec::new();
        right.read_to_end(&mut heard).await.unwrap();
        assert_eq!(heard.len(), 1, "the peer hears of an end in order");
    }
}

#[tokio::test]
async fn a_peer_hears_of_an_end_in_order_as_the_end() {
    assert_eq!(heard_of(CloseReason::Local).await, CloseReason::Peer);
}
