//! Pairs of workers, as the driver starts them.

use std::path::Path;

use farcall_benches::driver::{Pair, Setting, Side};
use farcall_benches::subjects::Certificates;
use farcall_benches::worker::{Load, Operation, Span};

fn side(subject: &str, address: &str) -> Side {
    let program = Path::new(env!("CARGO_BIN_EXE_farcall-bench"));
    Side::new(subject, program, address).with_arguments(&["--subject", subject])
}

/// Runs some calls of each kind and looks at what is told of them.
fn check(side: &Side, operations: &[Operation]) {
    for setting in [Setting::one_core(), Setting::free().with_connections(2)] {
        let mut pair = Pair::start(side, &setting).expect("a pair that starts");
        for &operation in operations {
            let load = Load::new(operation, 1 << 10, Span::Calls(40)).with_in_flight(4);
            let sample = pair.load(&load).expect("calls that work");
            assert_eq!(sample.client.count, 40, "{operation:?} of {}", pair.name());
            assert!(sample.client.seconds > 0.0);
        }
    }
}

const CALLS: &[Operation] = &[Operation::Echo, Operation::Upload, Operation::Download];

#[test]
fn farcall_makes_every_kind_of_call_over_every_path_of_a_host() {
    let folder = tempfile::tempdir().unwrap();
    let socket = format!("unix://{}/bench", folder.path().display());
    for address in ["tcp://127.0.0.1:0", &socket, "inproc://bench-test"] {
        check(&side("farcall", address), &[CALLS, &[Operation::Feed]].concat());
    }
}

#[test]
fn the_floor_makes_every_kind_of_call() {
    check(&side("std", "tcp://127.0.0.1:0"), CALLS);
    let mut pair = Pair::start(&side("std", "tcp://127.0.0.1:0"), &Setting::one_core()).unwrap();
    let sample = pair.load(&Load::new(Operation::Feed, 1 << 10, Span::Calls(40))).unwrap();
    assert_eq!((sample.client.count, sample.client.p50_us), (40, 0.0));
}

#[test]
fn the_bare_echo_makes_every_kind_of_call() {
    check(&side("mux", "tcp://127.0.0.1:0"), &[CALLS, &[Operation::Feed]].concat());
}

#[test]
fn farcall_and_the_floor_make_calls_over_tls() {
    let folder = tempfile::tempdir().unwrap();
    Certificates::make(folder.path()).unwrap();
    let tls = ["--tls", folder.path().to_str().unwrap()];
    for subject in ["farcall", "std-tls"] {
        check(&side(subject, "tcp://127.0.0.1:0").with_arguments(&tls), CALLS);
    }
}

#[test]
fn the_floor_over_tls_says_that_it_wants_certificates() {
    let side = side("std-tls", "tcp://127.0.0.1:0");
    assert!(Pair::start(&side, &Setting::one_core()).is_err());
}

#[test]
fn idle_connections_are_held_beside_those_in_use() {
    let mut pair = Pair::start(&side("farcall", "tcp://127.0.0.1:0"), &Setting::free()).unwrap();
    pair.hold(8).unwrap();
    let load = Load::new(Operation::Echo, 64, Span::Millis(200)).with_beside(1 << 20);
    assert!(pair.load(&load).unwrap().client.count > 0);
    assert!(pair.server_usage().unwrap().is_some());
}

#[test]
fn a_server_that_cannot_listen_is_an_error() {
    let error = Pair::start(&side("std", "quic://127.0.0.1:0"), &Setting::free()).unwrap_err();
    assert!(error.to_string().contains("the server of std ended"), "{error}");
}

#[test]
fn more_connections_than_calls_in_flight_take_turns() {
    for subject in ["farcall", "mux"] {
        let setting = Setting::free().with_connections(5);
        let mut pair = Pair::start(&side(subject, "tcp://127.0.0.1:0"), &setting).unwrap();
        let load = Load::new(Operation::Echo, 64, Span::Calls(40)).with_in_flight(2);
        let sample = pair.load(&load).unwrap();
        assert_eq!((sample.client.count, sample.client.fairness), (40, 1.0), "{subject}");
    }
}

#[test]
fn a_neighbour_calls_while_others_do() {
    let side = side("farcall", "tcp://127.0.0.1:0");
    let setting = Setting::free().with_connections(4);
    let mut pair = Pair::start_with_neighbour(&side, &setting).unwrap();
    let large = Load::new(Operation::Upload, 1 << 20, Span::Calls(16)).with_in_flight(4);
    let small = Load::new(Operation::Echo, 64, Span::Calls(10));
    let (sample, beside) = pair.load_both(&large, &small).unwrap();
    assert_eq!((sample.client.count, beside.count), (16, 10));
    assert_eq!(pair.load_neighbour(&small).unwrap().count, 10);
    let mut alone = Pair::start(&side, &setting).unwrap();
    assert!(alone.load_neighbour(&small).is_err(), "it was started without one");
}
