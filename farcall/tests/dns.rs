//! `dns:///`: a channel to the servers that a name stands for, with a name server of the test's
//! own on loopback.

use std::net::Ipv4Addr;
use std::time::Duration;

use farcall::balance::{Connectivity, EndpointStatus};
use farcall::resolve::{Dns, DnsName, Scheme};
use farcall::{Channel, Server};
use farcall_testkit::name_server::{Record, ServiceTarget, Zone, address, service};

/// An address of loopback by a name.
fn host(name: &str, last: u8, ttl: u32) -> Record {
    address(name, Ipv4Addr::new(127, 0, 0, last), ttl).expect("it is a name")
}

/// A target of the service.
fn shop(host: &str, priority: u16, weight: u16, port: u16) -> Record {
    let target = ServiceTarget { host, port, priority, weight };
    service("_farcall._tcp.shop.test.", target, 60).expect("these are names")
}

/// A server on each of these addresses of loopback, at one port.
async fn servers(lasts: &[u8]) -> u16 {
    let mut port = 0;
    for last in lasts {
        let address = format!("tcp://127.0.0.{last}:{port}");
        let listener = Server::builder().bind(address.as_str()).await.expect("loopback has it");
        let local = listener.local_address().to_string();
        port = local.rsplit(':').next().and_then(|it| it.parse().ok()).expect("it has a port");
        tokio::spawn(listener.serve());
    }
    port
}

fn channel(resolver: Dns) -> Channel {
    let builder = Channel::builder("tcp://127.0.0.1:1").expect("it is not used");
    builder.connect_with_resolver(resolver)
}

fn addresses(status: &[EndpointStatus]) -> Vec<String> {
    let mut addresses: Vec<_> = status.iter().map(|it| it.endpoint.address.to_string()).collect();
    addresses.sort();
    addresses
}

/// Waits until the channel has these endpoints, and all of them are connected.
async fn becomes(channel: &Channel, expected: &[String]) {
    let waiting = async {
        let connect = farcall::client::unary::<(), ()>;
        static METHOD: farcall::MethodDescriptor = farcall::MethodDescriptor {
            path: "/t.T/M",
            kind: farcall::CallKind::Unary,
            idempotency: farcall::Idempotency::Unknown,
            detach: farcall::Detach::NONE,
        };
        // No server has it; a call is what makes the channel resolve.
        let _ = connect(channel, &METHOD, farcall::Request::new(())).await;
        loop {
            let status = channel.endpoints();
            let is_ready =
                |it: &EndpointStatus| matches!(it.connectivity, Connectivity::Ready { .. });
            if addresses(&status) == expected && status.iter().all(is_ready) {
                break;
            }
            tokio::task::yield_now().await;
        }
    };
    let outcome = tokio::time::timeout(Duration::from_secs(30), waiting).await;
    assert!(outcome.is_ok(), "{:?} instead of {expected:?}", channel.endpoints());
}

#[tokio::test]
async fn a_name_is_all_its_addresses_and_is_looked_up_again_at_its_ttl() {
    let (zone, port) = (Zone::default(), servers(&[2, 3, 4]).await);
    zone.set(vec![host("shop.test.", 2, 1), host("shop.test.", 3, 1)]);
    let resolver = zone.serve().await.expect("a port of loopback");
    let target = DnsName::new("shop.test.", Some(port), Scheme::Tcp);
    let channel = channel(Dns::with_resolver(resolver, target));
    let at = |last: u8| format!("tcp://127.0.0.{last}:{port}");
    becomes(&channel, &[at(2), at(3)]).await;
    zone.set(vec![host("shop.test.", 3, 60), host("shop.test.", 4, 60)]);
    becomes(&channel, &[at(3), at(4)]).await;
}

#[tokio::test]
async fn a_service_record_brings_port_and_weight_and_the_best_priority_counts() {
    let (zone, port) = (Zone::default(), servers(&[5, 6]).await);
    zone.set(vec![
        shop("a.shop.test.", 10, 3, port),
        shop("b.shop.test.", 10, 1, port),
        shop("spare.shop.test.", 20, 1, port),
        host("a.shop.test.", 5, 60),
        host("b.shop.test.", 6, 60),
        host("spare.shop.test.", 7, 60),
    ]);
    let resolver = zone.serve().await.expect("a port of loopback");
    let target = DnsName::new("shop.test.", None, Scheme::Tcp);
    let channel = channel(Dns::with_resolver(resolver, target));
    let at = |last: u8| format!("tcp://127.0.0.{last}:{port}");
    becomes(&channel, &[at(5), at(6)]).await;
    let mut weights: Vec<_> = channel.endpoints().iter().map(|it| it.endpoint.weight).collect();
    weights.sort_unstable();
    assert_eq!(weights, [1, 3]);
}

/// A channel to the servers that `zone` has, which has looked them up.
async fn looked_up(zone: &Zone, port: Option<u16>) -> Channel {
    let resolver = zone.serve().await.expect("a port of loopback");
    let channel =
        channel(Dns::with_resolver(resolver, DnsName::new("shop.test.", port, Scheme::Tcp)));
    let looking = async {
        let mut state = Connectivity::Idle;
        while channel.endpoints().is_empty() {
            state = channel.connectivity_changed(state).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), looking).await.expect("it is looked up in time");
    channel
}

#[tokio::test]
async fn an_answer_of_many_targets_causes_a_bounded_lookup() {
    let zone = Zone::default();
    let targets: Vec<_> = (0..1100).map(|number| format!("t{number}.test.")).collect();
    let services = targets.iter().map(|target| {
        let target = ServiceTarget { host: target, port: 1, priority: 0, weight: 1 };
        service("_farcall._tcp.shop.test.", target, 0).expect("these are names")
    });
    zone.set(services.chain(targets.iter().map(|target| host(target, 10, 0))).collect());
    let channel = looked_up(&zone, None).await;
    let queries = zone.query_count();
    println!("{queries} queries for 1,100 targets");
    // One for the SRV records, again over TCP, and two for each target that is used.
    assert!(queries <= 2 + 2 * 256, "{queries} queries");
    drop(channel);
}

#[tokio::test]
async fn an_answer_of_many_addresses_is_used_in_part() {
    let zone = Zone::default();
    let record = |number: u32| {
        let ip = Ipv4Addr::from_bits(Ipv4Addr::new(127, 1, 0, 0).to_bits() + number);
        address("shop.test.", ip, 0).expect("it is a name")
    };
    zone.set((0..2500).map(record).collect());
    let channel = looked_up(&zone, Some(1)).await;
    let endpoints = channel.endpoints().len();
    println!("{endpoints} endpoints of 2,500 addresses");
    assert_eq!(endpoints, 1024);
}

#[tokio::test]
async fn a_server_that_does_not_answer_has_the_name_looked_up_again_before_its_ttl() {
    let (zone, port) = (Zone::default(), servers(&[8]).await);
    // No server listens there.
    zone.set(vec![host("shop.test.", 9, 3600)]);
    let resolver = zone.serve().await.expect("a port of loopback");
    let target = DnsName::new("shop.test.", Some(port), Scheme::Tcp);
    let channel = channel(Dns::with_resolver(resolver, target));
    zone.set(vec![host("shop.test.", 9, 3600)]);
    let moved = [format!("tcp://127.0.0.8:{port}")];
    let connecting = becomes(&channel, &moved);
    let moving = async {
        let has_failed = |status: &[EndpointStatus]| {
            status.iter().any(|it| it.connectivity == Connectivity::TransientFailure)
        };
        while !has_failed(&channel.endpoints()) {
            tokio::task::yield_now().await;
        }
        zone.set(vec![host("shop.test.", 8, 3600)]);
    };
    tokio::join!(connecting, moving);
}
