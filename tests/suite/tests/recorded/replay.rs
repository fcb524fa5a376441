//! Playing one side of a recording to the other side of today.

use std::collections::HashMap;

use rpc_core::wire::FrameKind;
use rpc_core::wire::hello::Hello;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::meaning::{Saying, Speech, hello, is_handshake, read_unit, set_call};
use crate::tape::{Side, Unit};

/// The side of today, as the player sees it.
struct Today {
    stream: TcpStream,
    speech: Speech,
}

impl Today {
    fn new(stream: TcpStream) -> Self {
        Self { stream, speech: Speech::default() }
    }

    async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.expect("the connection is open");
    }

    async fn unit(&mut self) -> Vec<u8> {
        read_unit(&mut self.stream).await.expect("today's side has more to say")
    }

    async fn next(&mut self) -> Saying {
        loop {
            if let Some(saying) = self.speech.next() {
                return saying;
            }
            let unit = self.unit().await;
            self.speech.take(&unit);
        }
    }
}

/// Plays a recording's client to the server at a port of this host.
pub(crate) async fn play_client(port: u16, units: &[Unit]) {
    let stream = TcpStream::connect(("127.0.0.1", port)).await.expect("the server listens");
    let (mut today, mut then) = (Today::new(stream), Speech::default());
    for Unit { from, bytes } in units {
        if *from == Side::Client {
            today.send(bytes).await;
        } else if is_handshake(bytes) {
            let (then, now) = (hello(bytes), hello(&today.unit().await));
            assert_eq!(now.methods, then.methods);
            assert_eq!(now.method_kinds, then.method_kinds);
            check_offers(&now, &then);
            assert_eq!(now.encodings, then.encodings);
        } else {
            then.take(bytes);
            while let Some(saying) = then.next() {
                assert_eq!(today.next().await, saying);
            }
        }
    }
}

/// Plays a recording's server to the first client that connects, and returns its port.
pub(crate) async fn play_server(units: Vec<Unit>) -> (u16, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has a port");
    let port = listener.local_addr().expect("it listens").port();
    let played = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.expect("a client comes");
        let mut today = Today::new(stream);
        play_to_client(&mut today, units).await;
        // The client closes.
        while read_unit(&mut today.stream).await.is_some() {}
    });
    (port, played)
}

async fn play_to_client(today: &mut Today, units: Vec<Unit>) {
    let mut then = Speech::default();
    // The ids of today's client, by those of the recording's.
    let mut calls = HashMap::new();
    let mut handshakes = 0;
    for Unit { from, mut bytes } in units {
        if from == Side::Server {
            if !is_handshake(&bytes) {
                set_call(&mut bytes, &calls);
            }
            today.send(&bytes).await;
        } else if is_handshake(&bytes) {
            let now = today.unit().await;
            handshakes += 1;
            // The second message is the verdict, whose text is for people.
            if handshakes == 1 {
                let (then, now) = (hello(&bytes), hello(&now));
                check_offers(&now, &then);
                assert_eq!(now.encodings, then.encodings);
            } else {
                assert!(is_handshake(&now), "no verdict: {now:02x?}");
            }
        } else {
            then.take(&bytes);
            while let Some(mut saying) = then.next() {
                let now = today.next().await;
                if saying.kind == FrameKind::Request {
                    calls.insert(saying.call, now.call);
                }
                saying.call = calls.get(&saying.call).copied().unwrap_or(saying.call);
                assert_eq!(now, saying);
            }
        }
    }
}

/// Checks that a Hello names the upgrades of a recorded one, with all the fields of their blobs.
/// New fields may follow, which peers of that time skip.
///
/// # Panics
///
/// Panics if an upgrade or a field is missing.
fn check_offers(now: &Hello, then: &Hello) {
    let ([now, then], expected) = ([offers(now), offers(then)], "the upgrades of that time");
    assert_eq!(now.len(), then.len(), "{expected}");
    for ((name, fields), (old_name, old_fields)) in now.into_iter().zip(then) {
        assert_eq!(name, old_name, "{expected}");
        assert!(fields.starts_with(&old_fields), "{name}: {fields:?}, and then {old_fields:?}");
    }
}

/// The upgrades that a Hello names, each with the fields of its blob. The fields' values are drawn
/// at random.
fn offers(hello: &Hello) -> Vec<(&str, Vec<usize>)> {
    let offers = hello.offers.iter().chain(&hello.accepted);
    offers.map(|offer| (&*offer.name, tags(&offer.blob))).collect()
}

/// The tags of a protobuf message's fields, in their order.
fn tags(mut blob: &[u8]) -> Vec<usize> {
    let varint = |blob: &mut &[u8]| {
        let end = blob.iter().position(|byte| byte & 0x80 == 0).expect("a varint ends");
        let (varint, rest) = blob.split_at(end + 1);
        *blob = rest;
        varint.iter().rev().fold(0, |value, byte| value << 7 | usize::from(byte & 0x7f))
    };
    let mut tags = Vec::new();
    while !blob.is_empty() {
        let tag = varint(&mut blob);
        tags.push(tag);
        let value = varint(&mut blob);
        if tag & 7 == 2 {
            blob = &blob[value..];
        }
    }
    tags
}
