//! Why a server does not start, and settings in code that panic.

use std::net::{IpAddr, Ipv4Addr};
use std::panic::catch_unwind;
use std::time::Duration;

use farcall::{Keepalive, Limits, MethodCompression, Rdma, RdmaConfig, Server};

use crate::service::{on, with_device, with_device_under, without_device};
use crate::transcript::Transcript;

const ELSEWHERE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 9));

pub(crate) async fn tell(transcript: &mut Transcript) {
    binding(transcript).await;
    without_rdma(transcript).await;
    panics(transcript);
}

async fn binding(transcript: &mut Transcript) {
    let taken = Server::builder().bind("tcp://127.0.0.1:0").await.unwrap();
    let address = taken.local_address().to_string();
    for scheme in ["tcp", "auto"] {
        let address = address.replace("tcp", scheme);
        let error = Server::builder().serve(&address).await.unwrap_err();
        transcript.say(&format!("{scheme}:// at a port that is taken"), error);
    }
    let _taken = Server::builder().bind("inproc://messages").await.unwrap();
    let error = Server::builder().serve("inproc://messages").await.unwrap_err();
    transcript.say("a name in this process that is taken", error);
    for address in ["unix:///no/such/folder/socket", "0.0.0.0:7000", "http://0.0.0.0:7000"] {
        transcript.say(address, Server::builder().serve(address).await.unwrap_err());
    }
    let by_method = MethodCompression::default().with_len("shop.Catalog", u32::MAX);
    let server = Server::builder().method_compression(by_method);
    let error = server.bind("tcp://127.0.0.1:0").await.unwrap_err();
    transcript.say("compression for a service that is not served", error);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let server = Server::builder().build();
    let outside = std::thread::spawn(move || server.bind_listener(listener));
    transcript.say("a listener outside of a runtime", outside.join().unwrap().unwrap_err());
}

async fn without_rdma(transcript: &mut Transcript) {
    for (cause, address, host) in [
        ("rdma:// on a host without a device", "rdma://0.0.0.0:0", without_device()),
        ("rdma:// at an address of no device", "rdma://127.0.0.1:0", with_device(&[ELSEWHERE])),
        ("rdma:// with a device that is not there", "rdma://0.0.0.0:0", {
            let rdma = RdmaConfig::default().with_devices(vec!["mlx5_0".to_owned()]);
            with_device_under(rdma, &[ELSEWHERE])
        }),
    ] {
        transcript.say(cause, on(&host).serve(address).await.unwrap_err());
    }
    // What this host has is its own affair.
    let error = Server::builder().bind("rdma://127.0.0.1:0").await.unwrap_err().to_string();
    let (before, rest) = error.split_once("possible: ").expect("the reason is named");
    let (_, after) = rest.rsplit_once("; to").expect("what to do is named");
    let message = format!("{before}possible: <reason>; to{after}");
    transcript.say("rdma:// at loopback, where no device of hardware is", message);
    let optional = on(&without_device()).rdma_required(false);
    optional.bind("rdma://127.0.0.1:0").await.expect("it serves TCP");
    on(&without_device()).bind("auto://127.0.0.1:0").await.expect("it serves TCP");
}

fn panics(transcript: &mut Transcript) {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let mut say = |cause: &str, panics: fn()| {
        let message = catch_unwind(panics).expect_err("it panics");
        let message = message.downcast_ref::<String>().expect("it has words").clone();
        transcript.say(cause, message);
    };
    say("Server::builder().max_calls(0)", || drop(Server::builder().max_calls(0)));
    say("Server::builder().unary_timeout(Duration::ZERO)", || {
        drop(Server::builder().unary_timeout(Duration::ZERO));
    });
    say("Server::builder().limits(..max_message_len: 0)", || {
        drop(Server::builder().limits(Limits::default().with_max_message_len(0)));
    });
    say("Server::builder().keepalive(..interval: 1 ms)", || {
        let keepalive = Keepalive::default().with_interval(Some(Duration::from_millis(1)));
        drop(Server::builder().keepalive(keepalive));
    });
    say("Rdma::new(..lanes: 0)", || {
        drop(Rdma::new(RdmaConfig::default().with_lanes(Some(0))));
    });
    std::panic::set_hook(hook);
}
