//! The cost of a hostile client to a server in its handshake.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::{fmt, io};

use futures::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf, duplex};
use tokio::time::Instant;

use super::*;
use crate::connect::{Declined, PendingOffer};
use crate::transport::inproc::InprocTransport;
use crate::wire::ProtocolError;

/// Holds every message of these tests.
const STREAM_LEN: usize = 2 << 20;

struct Socket(DuplexStream);

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

impl Bootstrap for Socket {
    fn addresses(&self) -> Addresses {
        Addresses::default()
    }

    fn reregister(self: Box<Self>) -> io::Result<Box<dyn Bootstrap>> {
        Ok(self)
    }

    fn into_transport(self: Box<Self>) -> Box<dyn Transport> {
        unused()
    }
}

/// A transport that is never started.
fn unused() -> Box<dyn Transport> {
    Box::new(InprocTransport::pair("unused").0)
}

/// A path that costs something, with counts of what it has cost.
#[derive(Clone, Default)]
struct Dear {
    prepared: Arc<AtomicUsize>,
    held: Arc<AtomicUsize>,
    is_probed: bool,
}

impl fmt::Debug for Dear {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Dear")
    }
}

impl Upgrade for Dear {
    fn name(&self) -> &'static str {
        "dear"
    }

    fn offer(&self, _: &Addresses) -> Result<Box<dyn PendingOffer>, Declined> {
        Err(Declined::new("a server offers nothing"))
    }

    fn accept(
        &self,
        _: &Addresses,
        offer: &[u8],
    ) -> Result<(Vec<u8>, Box<dyn Candidate>), Declined> {
        self.prepared.fetch_add(1, Ordering::Relaxed);
        if offer.is_empty() {
            return Err(Declined::new("an empty offer"));
        }
        self.held.fetch_add(1, Ordering::Relaxed);
        Ok((Vec::new(), Box::new(Held(self.clone()))))
    }
}

/// A place on the device, until it is dropped.
struct Held(Dear);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.held.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Candidate for Held {
    fn bind(&mut self, _: PathBinding) -> Result<(), Declined> {
        Ok(())
    }

    fn prove(&mut self) -> BoxFuture<'_, Result<(), Declined>> {
        Box::pin(async { Err(Declined::new("a server proves nothing")) })
    }

    fn is_probed(&self) -> bool {
        self.0.is_probed
    }

    fn into_transport(self: Box<Self>, _: Box<dyn Bootstrap>) -> Box<dyn Transport> {
        unused()
    }
}

impl Dear {
    fn prepared(&self) -> usize {
        self.prepared.load(Ordering::Relaxed)
    }

    fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// Answers a client that sends those messages and waits.
    async fn answer(&self, messages: &[Vec<u8>]) -> (Result<Accepted, HandshakeError>, Hello) {
        let (mut client, server) = duplex(STREAM_LEN);
        client.write_all(&messages.concat()).await.unwrap();
        let handshake = ServerHandshake {
            compression: crate::Compression::OFF,
            limits: Limits::default(),
            methods: vec!["/a.B/C".into()],
            method_kinds: bytes::Bytes::new(),
            access: MethodAccess::default(),
            protocols: Vec::new(),
            upgrades: vec![Arc::new(self.clone())],
        };
        let accepted = accept(Box::new(Socket(server)), &handshake, &MemoryShare::default()).await;
        let accepted = accepted.map(|opening| opening.farcall().expect("there is no other"));
        let answer = handshake::read(&mut client, &hello::SERVER_HELLO).await;
        (accepted, answer.unwrap_or_default())
    }
}

fn offers(names: impl IntoIterator<Item = &'static str>, blob: &'static [u8]) -> Vec<u8> {
    let offers = names.into_iter().map(|name| Offer { name: name.into(), blob: blob.into() });
    let offers = offers.collect();
    hello::encode(&Hello { offers, ..Hello::default() }).unwrap()
}

#[tokio::test(start_paused = true)]
async fn many_offers_cost_nothing() {
    for (count, is_too_long) in [(104_851, true), (320, false), (9, false)] {
        let dear = Dear::default();
        let (accepted, _) = dear.answer(&[offers(std::iter::repeat_n("dear", count), b"")]).await;
        let error = accepted.expect_err("no client has so many");
        println!("{count} offers: {} prepared; {error}", dear.prepared());
        assert_eq!(dear.prepared(), 0);
        match error {
            HandshakeError::Protocol(ProtocolError::TooLong { .. }) => assert!(is_too_long),
            HandshakeError::Protocol(ProtocolError::TooMany { .. }) => assert!(!is_too_long),
            other => panic!("{other}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn one_offer_of_each_name_is_prepared() {
    let dear = Dear::default();
    let names = ["cheap", "dear", "dear", "cheap", "dear", "a name that is far too long for one"];
    let (accepted, answer) = dear.answer(&[offers(names, b"")]).await;
    let accepted = accepted.expect("the bootstrap is left");
    assert!(!accepted.is_upgraded);
    assert_eq!(dear.prepared(), 1);
    let reasons: Vec<_> = answer.declined.iter().map(|d| d.reason().to_string()).collect();
    let unknown = "not offered at the address where it listens";
    let repeated = "it was offered before";
    assert_eq!(reasons, [unknown, "an empty offer", repeated, unknown, repeated, unknown]);
}

#[tokio::test(start_paused = true)]
async fn a_good_verdict_is_believed_after_the_probe_alone() {
    let good = [offers(["dear"], b"queue pair"), hello::encode(&Verdict::good()).unwrap()];
    let forged = Dear::default();
    let (refused, _) = forged.answer(&good).await;
    let error = refused.expect_err("nothing has come over the path");
    println!("a forged verdict: {error}");
    assert!(matches!(error, HandshakeError::Unproven { upgrade: "dear" }), "{error}");
    assert_eq!((forged.prepared(), forged.held()), (1, 0), "its place is free");
    let honest = Dear { is_probed: true, ..Dear::default() };
    let (accepted, _) = honest.answer(&good).await;
    assert!(accepted.expect("the path is proven").is_upgraded);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_say_whether_the_path_is_good_loses_it() {
    let (dear, start) = (Dear::default(), Instant::now());
    let (refused, _) = dear.answer(&[offers(["dear"], b"queue pair")]).await;
    let error = refused.expect_err("there is no verdict");
    assert!(matches!(error, HandshakeError::NoVerdict { upgrade: "dear", .. }), "{error}");
    assert_eq!((start.elapsed(), dear.held()), (VERDICT_TIMEOUT, 0));
}

#[tokio::test(start_paused = true)]
async fn the_words_of_a_client_are_one_short_line() {
    let reason = "it said\n2026-01-01 INFO all is well\x1b[1A".repeat(50);
    let failed = hello::encode(&Verdict::failed(&reason)).unwrap();
    let dear = Dear::default();
    let (accepted, _) = dear.answer(&[offers(["dear"], b"queue pair"), failed]).await;
    let fallback = accepted.expect("the bootstrap is left").fallback.expect("a reason").reason;
    println!("{fallback}");
    assert!(fallback.len() < 600 && !fallback.contains(char::is_control), "{fallback}");
}

#[test]
fn a_client_without_alpn_is_held_to_http1() {
    let info = TlsInfo::default();
    let assumed = info.clone().with_assumed_protocol(Alpn::HTTP1.id);
    assert!(check_agreed(Some(&assumed), Alpn::HTTP1).is_ok());
    let refused = check_agreed(Some(&assumed), Alpn::GRPC).unwrap_err().to_string();
    let message = "the client speaks gRPC over TLS without ALPN: something such as a load \
                   balancer terminates TLS in between; accept that with tls.alpn = \"optional\" \
                   on the server";
    assert_eq!(refused, message);
    let agreed = info.clone().with_protocol(Alpn::HTTP1.id);
    let refused = check_agreed(Some(&agreed), Alpn::GRPC).unwrap_err().to_string();
    let message = "the client negotiated http/1.1 in the TLS handshake (ALPN), but speaks gRPC";
    assert_eq!(refused, message);
    // Where ALPN is optional, and without TLS.
    assert!(check_agreed(Some(&info), Alpn::GRPC).is_ok());
    assert!(check_agreed(None, Alpn::FARCALL).is_ok());
}
