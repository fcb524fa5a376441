//! The rows: each attack, and what it may cost, with where the figures come from.
//!
//! Bounds are for unoptimised programs on a machine that is busy otherwise. Memory is counted by
//! the kernel, so that an allocator's own share is in it: 16 MiB are allowed for that everywhere.

use super::hostile::{Assault, Trap};
use super::row::{Bounds, Closed, Quick, Row, Rules, Scene};

/// A server under the default rules.
const fn server(assault: Assault) -> Scene {
    Scene::Server(assault, Rules::Default)
}

/// Bounds of a victim that need not keep anything.
const NOTHING_KEPT: Bounds = Bounds {
    growth_mib: 16,
    cpu_ns_per_byte: None,
    attempts: None,
    closed: Closed::Any,
    why: "the peer makes the victim keep nothing: 16 MiB for the allocator",
};

/// Bounds of a client whose server is not there, or not for long.
const BACKED_OFF: Bounds = Bounds {
    attempts: Some((7, 14)),
    why: "gRPC's backoff: 1 s, then 1.6 times as much each time, a fifth more or less by chance: \
          5 attempts in 6 s, 9 in 30 s, and as many again as half of that for chance",
    ..NOTHING_KEPT
};

/// All rows, in the order in which they are shown.
pub(super) const ROWS: &[Row] = &[
    Row {
        name: "empty-messages",
        what: "MESSAGES without messages, to a handler that does not read",
        scene: server(Assault::EmptyMessages),
        bounds: NOTHING_KEPT,
        quick: Quick::Shown,
    },
    Row {
        name: "empty-messages-unary",
        what: "MESSAGES without messages, for a method that takes one message",
        scene: server(Assault::EmptyMessagesUnary),
        bounds: NOTHING_KEPT,
        quick: Quick::Shown,
    },
    Row {
        name: "empty-messages-unknown",
        what: "MESSAGES without messages, for a call of no method that is never whole",
        scene: server(Assault::EmptyMessagesUnknown),
        bounds: NOTHING_KEPT,
        quick: Quick::Shown,
    },
    Row {
        name: "slow-download",
        what: "a server sends MESSAGES without messages to a client that does not read",
        scene: Scene::Client(Trap::EmptyDownload),
        bounds: NOTHING_KEPT,
        quick: Quick::Shown,
    },
    Row {
        name: "control-metadata",
        what: "metadata with MESSAGES, HALF_CLOSE, CANCEL, WINDOW and PING",
        scene: server(Assault::ControlMetadata),
        bounds: Bounds {
            closed: Closed::All,
            why: "no such frame has metadata: each is a violation, and nothing is kept",
            ..NOTHING_KEPT
        },
        quick: Quick::Shown,
    },
    Row {
        name: "far-ahead",
        what: "60,000 frames of each of many streams behind one that never comes",
        scene: server(Assault::FarAhead),
        bounds: Bounds {
            why: "a stream keeps no more frames than its window has messages, 256",
            ..NOTHING_KEPT
        },
        quick: Quick::Shown,
    },
    Row {
        name: "unread-answers",
        what: "80 connections make all the calls that they may, and read no answers",
        scene: server(Assault::UnreadAnswers),
        bounds: Bounds {
            growth_mib: 768,
            closed: Closed::AllInTime,
            why: "80 connections with 5 MiB of answers each, 4 MiB of them queued, and 1,024 calls \
                  of a few KiB; the peers take nothing, so that they are closed in time",
            ..NOTHING_KEPT
        },
        quick: Quick::Shown,
    },
    Row {
        name: "queued-answers",
        what: "connections ask for answers of 4 MiB each, and read none",
        scene: Scene::Server(Assault::QueuedAnswers, Rules::Memory(128)),
        bounds: Bounds {
            growth_mib: 256,
            closed: Closed::AllInTime,
            why: "twice `max_memory`, which is 128 MiB here; 800 MiB are asked for in the short \
                  form, 3 GiB in the full",
            ..NOTHING_KEPT
        },
        quick: Quick::Shown,
    },
    Row {
        name: "slow-readers",
        what: "connections of one address, one after the other, ask for 22 MB each, and read none",
        scene: Scene::Server(Assault::SlowReaders, Rules::Memory(64)),
        bounds: Bounds {
            growth_mib: 128,
            why: "twice `max_memory`, which is 64 MiB here; the address has less than half of it",
            ..NOTHING_KEPT
        },
        quick: Quick::Shown,
    },
    Row {
        name: "half-frame",
        what: "connections send 4 MiB of a request but for its last byte, and stop",
        scene: server(Assault::HalfFrame),
        bounds: Bounds {
            growth_mib: 320,
            closed: Closed::AllInTime,
            why: "60 frames of 4 MiB, and a third more; they make no progress and are closed",
            ..NOTHING_KEPT
        },
        quick: Quick::Left("only the full form waits until the peers are given up"),
    },
    Row {
        name: "half-hello",
        what: "connections send 400 KiB of a Hello, and stop",
        scene: server(Assault::HalfHello),
        bounds: Bounds {
            growth_mib: 48,
            closed: Closed::AllInTime,
            why: "at most 64 KiB of a Hello are held: 32 MiB for 500 connections",
            ..NOTHING_KEPT
        },
        quick: Quick::Shown,
    },
    Row {
        name: "silent-sockets",
        what: "connections of one address that say nothing",
        scene: Scene::Server(Assault::SilentSockets, Rules::Memory(64)),
        bounds: Bounds {
            growth_mib: 48,
            closed: Closed::AllInTime,
            why: "16 KiB for each of 2,000 sockets, and 16 MiB for the allocator",
            ..NOTHING_KEPT
        },
        quick: Quick::Shown,
    },
    Row {
        name: "many-offers",
        what: "Hellos of 1 MiB that are nothing but offers",
        scene: server(Assault::ManyOffers),
        bounds: Bounds {
            cpu_ns_per_byte: Some(300),
            why: "unoptimised, a byte is read and thrown away in less than 100 ns",
            ..NOTHING_KEPT
        },
        quick: Quick::Shown,
    },
    Row {
        name: "connect-flood",
        what: "more connections than the server has at a time, silent after their Hello",
        scene: Scene::Server(Assault::ConnectFlood, Rules::FewConnections(200)),
        bounds: Bounds {
            growth_mib: 640,
            why: "10,000 connections of 64 KiB each; newcomers from another address get in",
            ..NOTHING_KEPT
        },
        quick: Quick::Shown,
    },
    Row {
        name: "log-injection",
        what: "names of offers that break lines, colour terminals, and are 500 KB long",
        scene: server(Assault::LogInjection),
        bounds: Bounds { why: "nothing of it may reach the log as it is", ..NOTHING_KEPT },
        quick: Quick::Shown,
    },
    Row {
        name: "log-injection-server",
        what: "the same, in the reasons of a server that declines a path",
        scene: Scene::Client(Trap::LogInjection),
        bounds: Bounds { why: "nothing of it may reach the log as it is", ..NOTHING_KEPT },
        quick: Quick::Shown,
    },
    Row {
        name: "dead-port",
        what: "a client calls an address where no server listens",
        scene: Scene::Client(Trap::DeadPort),
        bounds: Bounds {
            attempts: Some((57, 64)),
            why: "as for a server that closes, and 50 of other programs: the kernel counts all \
                  attempts of the host that fail",
            ..BACKED_OFF
        },
        quick: Quick::Shown,
    },
    Row {
        name: "accept-and-close",
        what: "a server that closes what it has accepted",
        scene: Scene::Client(Trap::AcceptAndClose),
        bounds: BACKED_OFF,
        quick: Quick::Shown,
    },
    Row {
        name: "hello-and-close",
        what: "a server that closes after its Hello",
        scene: Scene::Client(Trap::HelloAndClose),
        bounds: BACKED_OFF,
        quick: Quick::Shown,
    },
    Row {
        name: "goaway-loop",
        what: "a server that sends every client away",
        scene: Scene::Client(Trap::GoawayLoop),
        bounds: BACKED_OFF,
        quick: Quick::Shown,
    },
    Row {
        name: "answer-and-close",
        what: "a server that answers one call, and closes",
        scene: Scene::Client(Trap::AnswerAndClose),
        // The first ten in a row that answered are replaced at once.
        bounds: Bounds { attempts: Some((15, 20)), ..BACKED_OFF },
        quick: Quick::Shown,
    },
    Row {
        name: "answer-and-close-grpc",
        what: "the same over HTTP/2",
        scene: Scene::Client(Trap::AnswerAndCloseGrpc),
        // The first ten in a row that answered are replaced at once.
        bounds: Bounds { attempts: Some((15, 20)), ..BACKED_OFF },
        quick: Quick::Shown,
    },
    Row {
        name: "html-proxy",
        what: "a proxy that answers calls over HTTP/2 with a page",
        scene: Scene::Client(Trap::HtmlProxy),
        bounds: Bounds {
            attempts: Some((1, 1)),
            why: "each call ends with `UNAVAILABLE` and a piece of the page, over one connection",
            ..NOTHING_KEPT
        },
        quick: Quick::Shown,
    },
    Row {
        name: "many-targets",
        what: "a name server that tells of 1,100 SRV targets, for no time at all",
        scene: Scene::Client(Trap::ManyTargets),
        bounds: Bounds {
            attempts: Some((2 * 514, 7 * 514)),
            why: "queries: 514 for 256 targets, and 5.1 s until the next lookup",
            ..NOTHING_KEPT
        },
        quick: Quick::Shown,
    },
    Row {
        name: "many-addresses",
        what: "a name server that tells of 2,500 addresses, for no time at all",
        scene: Scene::Client(Trap::ManyAddresses),
        bounds: Bounds {
            growth_mib: 48,
            attempts: Some((128 + 700 + 50, 128 + 3200 + 50)),
            why: "1,024 channels; connects: 128 at once, then 100 a second for 6 s and 30 s, with \
                  50 of other programs, since the kernel counts those of the host",
            ..NOTHING_KEPT
        },
        quick: Quick::Shown,
    },
    Row {
        name: "rapid-reset",
        what: "calls that are given up in the same write",
        scene: server(Assault::RapidReset),
        bounds: NOTHING_KEPT,
        quick: Quick::Shown,
    },
    Row {
        name: "ping-flood",
        what: "pings without a pause",
        scene: server(Assault::PingFlood),
        bounds: Bounds { closed: Closed::All, ..NOTHING_KEPT },
        quick: Quick::Shown,
    },
    Row {
        name: "garbage",
        what: "random bytes in place of a Hello, and behind one",
        scene: server(Assault::Garbage),
        bounds: Bounds { closed: Closed::All, ..NOTHING_KEPT },
        quick: Quick::Shown,
    },
    Row {
        name: "grpc-headers",
        what: "gRPC calls of 600 headers each, whose message never comes",
        scene: Scene::Server(Assault::GrpcHeaders, Rules::Memory(64)),
        bounds: Bounds {
            growth_mib: 128,
            why: "twice `max_memory`, which is 64 MiB here; 400 MiB are asked for in the short \
                  form, 2 GiB in the full",
            ..NOTHING_KEPT
        },
        quick: Quick::Shown,
    },
    Row {
        name: "grpc-tiny-frames",
        what: "gRPC messages of no bytes, to handlers that do not read",
        scene: Scene::Server(Assault::GrpcTinyFrames, Rules::Memory(64)),
        bounds: Bounds {
            growth_mib: 128,
            why: "twice `max_memory`; a stream keeps 64 KiB at most, whatever its frames",
            ..NOTHING_KEPT
        },
        quick: Quick::Shown,
    },
    Row {
        name: "grpc-idle",
        what: "gRPC connections that do nothing",
        scene: Scene::Server(Assault::GrpcIdle, Rules::Memory(64)),
        bounds: Bounds {
            growth_mib: 160,
            why: "5,000 connections of 32 KiB each, unoptimised",
            ..NOTHING_KEPT
        },
        quick: Quick::Shown,
    },
    Row {
        name: "grpc-untaken",
        what: "gRPC calls of an unknown method, whose answers are not taken",
        scene: Scene::Server(Assault::GrpcUntaken, Rules::Memory(64)),
        bounds: Bounds {
            growth_mib: 128,
            closed: Closed::AllInTime,
            why: "twice `max_memory`; the peers take nothing, so that they are closed in time",
            ..NOTHING_KEPT
        },
        quick: Quick::Shown,
    },
    Row {
        name: "grpc-pongs",
        what: "pongs of HTTP/2 without pings",
        scene: server(Assault::GrpcPongs),
        bounds: NOTHING_KEPT,
        quick: Quick::Shown,
    },
    Row {
        name: "blocking-handler",
        what: "a handler blocks its thread while other calls use its connection",
        scene: Scene::BlockingHandler,
        bounds: NOTHING_KEPT,
        quick: Quick::Shown,
    },
];
