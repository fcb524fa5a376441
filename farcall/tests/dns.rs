//! `dns:///`: a channel to the servers that a name stands for, with a name server of the test's
//! own on loopback.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Once};
use std::time::Duration;

use farcall::balance::{Connectivity, EndpointStatus};
use farcall::client::unary;
use farcall::resolve::{Dns, DnsName, Scheme};
use farcall::{
    CallKind, Channel, Idempotency, MethodDescriptor, Request, Response, Server, Status,
};
use farcall_testkit::name_server::{Record, ServiceTarget, Zone, address, service};
use parking_lot::Mutex;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::util::SubscriberInitExt as _;

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

/// A method that no server has: its call makes a channel resolve.
static METHOD: MethodDescriptor =
    MethodDescriptor::new("/t.T/M", CallKind::Unary, Idempotency::Unknown);

async fn call(channel: &Channel) -> Result<Response<()>, Status> {
    let called = unary::<(), ()>(channel, &METHOD, Request::new(()));
    tokio::time::timeout(Duration::from_secs(30), called).await.expect("it ends in time")
}

/// Waits until the channel has these endpoints, and all of them are connected.
async fn becomes(channel: &Channel, expected: &[String]) {
    let waiting = async {
        let _ = call(channel).await;
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
async fn a_name_has_all_its_addresses_until_its_ttl() {
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
async fn service_records_give_ports_weights_and_priorities() {
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
async fn a_silent_server_causes_a_lookup_before_the_ttl() {
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

/// The lines that this thread writes.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Lines {
    /// From here on, until the guard is dropped.
    fn start() -> (Self, impl Drop) {
        // A line that a thread without a subscriber meets first would be off for all threads.
        static WANTED: Once = Once::new();
        WANTED.call_once(|| {
            let all = tracing_subscriber::fmt().with_max_level(LevelFilter::TRACE);
            let _ = all.with_writer(io::sink).try_init();
        });
        let lines = Self::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone());
        (lines, subscriber.with_ansi(false).without_time().set_default())
    }

    fn text(&self) -> String {
        String::from_utf8(self.0.lock().clone()).expect("it is text")
    }
}

#[tokio::test]
async fn a_target_that_does_not_resolve_hides_no_other() {
    let (lines, _guard) = Lines::start();
    let (zone, port) = (Zone::default(), servers(&[11]).await);
    zone.set(vec![
        shop("gone.shop.test.", 10, 1, port),
        shop("a.shop.test.", 10, 1, port),
        shop("lost.shop.test.", 10, 1, port),
        host("a.shop.test.", 11, 60),
    ]);
    let resolver = zone.serve().await.expect("a port of loopback");
    let target = DnsName::new("shop.test.", None, Scheme::Tcp);
    let channel = channel(Dns::with_resolver(resolver, target));
    becomes(&channel, &[format!("tcp://127.0.0.11:{port}")]).await;
    let text = lines.text();
    for name in ["gone", "lost"] {
        let line = format!(
            "WARN farcall::path: a target of SRV records does not resolve \
             target=dns+tcp:///shop.test. server={name}.shop.test. \
             reason={name}.shop.test has no A or AAAA record"
        );
        assert!(text.contains(&line), "{text}");
    }
}

#[tokio::test]
async fn the_next_priority_is_used_where_the_best_resolves_to_nothing() {
    let (zone, port) = (Zone::default(), servers(&[12]).await);
    zone.set(vec![
        shop("gone.shop.test.", 10, 1, port),
        shop(".", 15, 1, port),
        shop("a.shop.test.", 20, 1, port),
        host("a.shop.test.", 12, 60),
    ]);
    let resolver = zone.serve().await.expect("a port of loopback");
    let target = DnsName::new("shop.test.", None, Scheme::Tcp);
    let channel = channel(Dns::with_resolver(resolver, target));
    becomes(&channel, &[format!("tcp://127.0.0.12:{port}")]).await;
}

#[tokio::test]
async fn a_name_without_servers_is_an_error_in_a_sentence() {
    let zone = Zone::default();
    for (port, records, sentence) in [
        (Some(1), vec![], "shop.test has no A or AAAA record"),
        (None, vec![], "_farcall._tcp.shop.test has no SRV record"),
        (None, vec![shop("gone.test.", 1, 1, 1)], "gone.test has no A or AAAA record"),
        (
            None,
            vec![shop(".", 1, 1, 1)],
            "_farcall._tcp.shop.test has no service: the target of its SRV record is \".\"",
        ),
    ] {
        zone.set(records);
        let resolver = zone.serve().await.expect("a port of loopback");
        let target = DnsName::new("shop.test.", port, Scheme::Tcp);
        let name = target.to_string();
        let channel = channel(Dns::with_resolver(resolver, target));
        let status = call(&channel).await.unwrap_err();
        let message = format!("no endpoint of {name} is connected: {sentence}");
        let (said, next) =
            status.message().split_once("; the channel tries again in").expect("when");
        assert_eq!(said, message);
        assert!(next.ends_with(" ms"), "{next}");
    }
}

#[tokio::test]
async fn the_a_and_aaaa_of_one_server_are_one_endpoint() {
    // The server has an address of IPv4 alone.
    let (zone, port) = (Zone::default(), servers(&[13]).await);
    let ipv6 = |name| address(name, Ipv6Addr::LOCALHOST, 60).expect("it is a name");
    zone.set(vec![
        host("shop.test.", 13, 60),
        ipv6("shop.test."),
        shop("a.shop.test.", 10, 1, port),
        host("a.shop.test.", 13, 60),
        ipv6("a.shop.test."),
    ]);
    for port_of_name in [Some(port), None] {
        let resolver = zone.serve().await.expect("a port of loopback");
        let target = DnsName::new("shop.test.", port_of_name, Scheme::Tcp);
        let channel = channel(Dns::with_resolver(resolver, target));
        becomes(&channel, &[format!("tcp://[::1]:{port}")]).await;
        let status = &channel.endpoints()[0];
        let alternative = (Ipv4Addr::new(127, 0, 0, 13), port).into();
        assert_eq!(*status.endpoint.alternatives, [alternative]);
        let peer = channel
            .endpoints()
            .into_iter()
            .find_map(|it| it.info)
            .and_then(|info| info.addresses.peer);
        assert_eq!(peer, Some(alternative));
    }
}

/// Addresses of one kind that nothing listens at are stood in for.
#[tokio::test]
async fn a_dead_family_is_no_dead_server() {
    let (zone, port) = (Zone::default(), servers(&[14, 15]).await);
    let ipv6 = address("shop.test.", Ipv6Addr::LOCALHOST, 60).expect("it is a name");
    zone.set(vec![host("shop.test.", 14, 60), ipv6, host("shop.test.", 15, 60)]);
    let resolver = zone.serve().await.expect("a port of loopback");
    let target = DnsName::new("shop.test.", Some(port), Scheme::Tcp);
    let channel = channel(Dns::with_resolver(resolver, target));
    let at = |host: &str| format!("tcp://{host}:{port}");
    becomes(&channel, &[at("127.0.0.14"), at("127.0.0.15"), at("[::1]")]).await;
}
