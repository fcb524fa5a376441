//! Resolver and registration against a fake etcd. `cargo xtask scenario` has a real one.

mod grpc;

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Once};
use std::time::Duration;

use farcall::balance::Endpoint;
use farcall::codegen::{HandlerFuture, ServerCall};
use farcall::resolve::{Refresh, Resolve, ResolveError, Scheme};
use farcall::testing::{Direction, TestServer};
use farcall::{
    CallKind, Code, Idempotency, Keepalive, MethodDescriptor, Request, Response, Server, Service,
    ServiceDescriptor, Status, Streaming,
};
use futures::{StreamExt, stream};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::api::{
    ANSWER_TIMEOUT, DELETED, Event, Header, KeyValue, Lease, LeaseId, LeaseKeys, LeaseQuery,
    LeaseState, PutRequest, RangeRequest, RangeResponse, WatchRequest, WatchResponse,
};
use crate::{Etcd, EtcdRegistration, api};

const fn method(path: &'static str, kind: CallKind) -> MethodDescriptor {
    MethodDescriptor::new(path, kind, Idempotency::Unknown)
}

static SERVICE: ServiceDescriptor = ServiceDescriptor {
    name: "etcdserverpb",
    methods: &[
        method("/etcdserverpb.KV/Range", CallKind::Unary),
        method("/etcdserverpb.KV/Put", CallKind::Unary),
        method("/etcdserverpb.Watch/Watch", CallKind::Streaming),
        method("/etcdserverpb.Lease/LeaseGrant", CallKind::Unary),
        method("/etcdserverpb.Lease/LeaseRevoke", CallKind::Unary),
        method("/etcdserverpb.Lease/LeaseKeepAlive", CallKind::Streaming),
        method("/etcdserverpb.Lease/LeaseTimeToLive", CallKind::Unary),
    ],
};

/// The contents of the fake etcd.
#[derive(Default)]
struct Store {
    keys: BTreeMap<Vec<u8>, (Vec<u8>, i64)>,
    /// The response of each revision.
    history: Vec<WatchResponse>,
    /// The live leases.
    leases: Vec<i64>,
    granted: i64,
    lists: u32,
    /// Heartbeats get no answers.
    is_deaf: bool,
}

#[derive(Clone, Default)]
struct Fake {
    store: Arc<Mutex<Store>>,
    /// Length of the history.
    revision: Arc<watch::Sender<usize>>,
}

impl Fake {
    fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock()
    }

    fn happens(&self, response: WatchResponse) {
        self.store().history.push(response);
        self.revision.send_modify(|revision| *revision += 1);
    }

    fn put(&self, key: &str, value: &str, lease: i64) {
        let kv = KeyValue { key: key.into(), value: value.into() };
        self.store().keys.insert(kv.key.clone(), (kv.value.clone(), lease));
        self.happens(WatchResponse {
            canceled: false,
            events: vec![Event { kind: 0, kv: Some(kv) }],
        });
    }

    fn delete(&self, key: &str) {
        self.store().keys.remove(key.as_bytes());
        let kv = KeyValue { key: key.into(), value: Vec::new() };
        let events = vec![Event { kind: DELETED, kv: Some(kv) }];
        self.happens(WatchResponse { canceled: false, events });
    }

    fn lose_lease(&self, id: i64) {
        self.store().leases.retain(|lease| *lease != id);
        let keys = self.store().keys.clone();
        let its = keys.into_iter().filter(|(_, (_, lease))| *lease == id);
        its.for_each(|(key, _)| self.delete(std::str::from_utf8(&key).expect("keys are text")));
    }

    fn range(&self, request: &RangeRequest) -> RangeResponse {
        let mut store = self.store();
        store.lists += 1;
        let keys = store.keys.range(request.key.clone()..request.range_end.clone());
        let kvs = keys.map(|(key, (value, _))| KeyValue { key: key.clone(), value: value.clone() });
        let revision = i64::try_from(store.history.len()).expect("it is short");
        RangeResponse { kvs: kvs.collect(), header: Some(Header { revision }) }
    }

    fn watch(
        &self,
        from: i64,
    ) -> impl stream::Stream<Item = Result<WatchResponse, Status>> + use<> {
        let (fake, revision) = (self.clone(), self.revision.subscribe());
        let next = usize::try_from(from - 1).expect("revisions count from one");
        stream::unfold((fake, revision, next), |(fake, mut revision, next)| async move {
            revision.wait_for(|revision| *revision > next).await.ok()?;
            let response = fake.store().history[next].clone();
            Some((Ok(response), (fake, revision, next + 1)))
        })
    }
}

impl Service for Fake {
    fn descriptor(&self) -> &'static ServiceDescriptor {
        &SERVICE
    }

    fn call(&self, method: usize, call: ServerCall) -> HandlerFuture {
        let fake = self.clone();
        match method {
            0 => call.unary(async move |request: Request<RangeRequest>| {
                Ok(Response::new(fake.range(request.get_ref())))
            }),
            1 => call.unary(async move |request: Request<PutRequest>| {
                let PutRequest { key, value, lease } = request.into_inner();
                let text = |bytes| String::from_utf8(bytes).expect("both are text");
                fake.put(&text(key), &text(value), lease);
                Ok(Response::new(()))
            }),
            2 => call.streaming(async move |request: Request<Streaming<WatchRequest>>| {
                let mut requests = request.into_inner();
                let first = requests.message().await?.unwrap_or_default();
                let from = first.create_request.unwrap_or_default().start_revision;
                // The watch lives as long as the client's stream.
                let ended = async move { while requests.next().await.is_some() {} };
                Ok(Response::new(fake.watch(from).take_until(ended)))
            }),
            3 => call.unary(async move |request: Request<Lease>| {
                let mut store = fake.store();
                store.granted += 1;
                let id = store.granted;
                store.leases.push(id);
                Ok(Response::new(LeaseState { id, ttl: request.into_inner().ttl }))
            }),
            4 => call.unary(async move |request: Request<LeaseId>| {
                fake.lose_lease(request.into_inner().id);
                Ok(Response::new(()))
            }),
            6 => call.unary(async move |request: Request<LeaseQuery>| {
                let id = request.get_ref().id;
                let store = fake.store();
                let its = store.keys.iter().filter(|(_, (_, lease))| *lease == id);
                Ok(Response::new(LeaseKeys { keys: its.map(|(key, _)| key.clone()).collect() }))
            }),
            _ => call.streaming(async move |request: Request<Streaming<LeaseId>>| {
                // Like etcd, which answers only with its first message.
                let mut heartbeats = request.into_inner();
                let first = heartbeats.message().await?;
                let heartbeats = stream::iter(first.map(Ok)).chain(heartbeats);
                let answer = move |sign: Result<LeaseId, Status>| {
                    let fake = fake.clone();
                    async move {
                        let id = sign?.id;
                        if fake.store().is_deaf {
                            std::future::pending::<()>().await;
                        }
                        let ttl = if fake.store().leases.contains(&id) { 10 } else { 0 };
                        Ok(LeaseState { id, ttl })
                    }
                };
                Ok(Response::new(heartbeats.then(answer)))
            }),
        }
    }
}

fn etcd() -> (Fake, TestServer) {
    let fake = Fake::default();
    let server = TestServer::start(Server::builder().add_service(fake.clone()));
    (fake, server)
}

async fn next(resolver: &mut Etcd) -> Result<Vec<String>, ResolveError> {
    let refresh = Refresh::default();
    let found = timeout(Duration::from_secs(3600), resolver.next(&refresh)).await;
    let endpoints = found.expect("it does not wait for ever")?;
    let mut addresses: Vec<_> =
        endpoints.iter().map(|Endpoint { address, .. }| address.to_string()).collect();
    addresses.sort();
    Ok(addresses)
}

/// Returns the first list that is not an error. Asks again after a delay, like the channel: a list
/// may fail when the connection ends.
async fn next_found(resolver: &mut Etcd) -> Vec<String> {
    let found = async {
        loop {
            match next(resolver).await {
                Ok(found) => return found,
                Err(_) => tokio::time::sleep(Duration::from_secs(1)).await,
            }
        }
    };
    timeout(Duration::from_secs(600), found).await.expect("it is found again")
}

#[tokio::test(start_paused = true)]
async fn servers_are_listed_once_and_then_watched() {
    let (fake, server) = etcd();
    fake.put("/other/1", "10.0.0.9:1", 0);
    fake.put("/shop/1", "10.0.0.1:7000", 0);
    fake.put("/shop/2", "rdma://10.0.0.2:7000", 0);
    let no_servers = ["no address", "tcp://a:1,b:1", "unix:///run/x", "dns:///x:1"];
    for (number, value) in no_servers.into_iter().enumerate() {
        fake.put(&format!("/shop/none-{number}"), value, 0);
    }
    let mut resolver = Etcd::new(server.channel(), "/shop", Scheme::Tcp);
    let [one, two] = ["tcp://10.0.0.1:7000", "rdma://10.0.0.2:7000"];
    assert_eq!(next(&mut resolver).await.unwrap(), [two, one]);
    fake.put("/shop/4", "10.0.0.4:7000", 0);
    assert_eq!(next(&mut resolver).await.unwrap(), [two, one, "tcp://10.0.0.4:7000"]);
    fake.delete("/shop/4");
    assert_eq!(next(&mut resolver).await.unwrap(), [two, one]);
    fake.delete("/shop/1");
    assert_eq!(next(&mut resolver).await.unwrap(), [two]);
    assert_eq!(fake.store().lists, 1);
}

#[tokio::test(start_paused = true)]
async fn an_ended_watch_starts_with_a_new_list() {
    let (fake, server) = etcd();
    fake.put("/shop/1", "10.0.0.1:7000", 0);
    let mut resolver = Etcd::new(server.channel(), "/shop/", Scheme::Auto);
    assert_eq!(next(&mut resolver).await.unwrap(), ["auto://10.0.0.1:7000"]);
    // As after a compaction.
    fake.happens(WatchResponse { canceled: true, events: Vec::new() });
    fake.put("/shop/1", "10.0.0.2:7000", 0);
    assert_eq!(next(&mut resolver).await.unwrap(), ["auto://10.0.0.2:7000"]);
    server.link().cut();
    fake.put("/shop/1", "10.0.0.3:7000", 0);
    assert_eq!(next_found(&mut resolver).await, ["auto://10.0.0.3:7000"]);
}

#[tokio::test(start_paused = true)]
async fn a_prefix_without_servers_is_a_named_error() {
    let (fake, server) = etcd();
    let mut resolver = Etcd::new(server.channel(), "/shop/", Scheme::Auto);
    let error = next(&mut resolver).await.unwrap_err().to_string();
    assert_eq!(error, "no server is registered at the prefix /shop/ of etcd");
    fake.put("/shop/1", "10.0.0.1:7000", 0);
    assert_eq!(next(&mut resolver).await.unwrap(), ["auto://10.0.0.1:7000"]);
    server.link().refuse_connections();
    server.link().cut();
    let error = next(&mut resolver).await.unwrap_err().to_string();
    assert!(error.starts_with("the prefix /shop/ of etcd: "), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_server_registers_again_after_losing_its_lease() {
    let (fake, server) = etcd();
    let entries = |fake: &Fake| fake.store().keys.values().cloned().collect::<Vec<_>>();
    let ttl = Duration::from_secs(9);
    let register = EtcdRegistration::new(server.channel(), "/shop/", "10.0.0.1:7000", ttl);
    let registration = register.await.unwrap();
    assert_eq!(entries(&fake), [(b"10.0.0.1:7000".to_vec(), 1)]);
    // Three heartbeats in the lease's time.
    tokio::time::sleep(ttl).await;
    assert_eq!(entries(&fake), [(b"10.0.0.1:7000".to_vec(), 1)]);
    fake.lose_lease(1);
    tokio::time::sleep(ttl).await;
    assert_eq!(entries(&fake), [(b"10.0.0.1:7000".to_vec(), 2)]);
    registration.withdraw().await.unwrap();
    assert_eq!(entries(&fake), []);
    tokio::time::sleep(ttl).await;
    assert_eq!(entries(&fake), []);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_entry_is_written_again_with_its_lease() {
    let (fake, server) = etcd();
    let entry = |fake: &Fake| fake.store().keys.get(&b"/shop/1"[..]).cloned();
    let ttl = Duration::from_secs(9);
    let register = EtcdRegistration::new(server.channel(), "/shop/", "10.0.0.1:7000", ttl);
    let registration = register.await.unwrap();
    let (lines, _guard) = Lines::start();
    let ours = Some((b"10.0.0.1:7000".to_vec(), 1));
    fake.delete("/shop/1");
    tokio::time::sleep(ttl * 2 / 3).await;
    assert_eq!(entry(&fake), ours);
    // A write without the lease detaches the entry from it.
    fake.put("/shop/1", "10.0.0.9:7000", 0);
    tokio::time::sleep(ttl * 2 / 3).await;
    assert_eq!(entry(&fake), ours);
    assert!(registration.failure().is_none());
    let written = "WARN farcall::server: this server's entry in etcd was deleted or overwritten";
    assert_eq!(lines.count(written), 2);
    registration.withdraw().await.unwrap();
    assert_eq!(entry(&fake), None);
}

/// The lines that a thread logs.
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
    /// Collects lines until the guard is dropped.
    fn start() -> (Self, DefaultGuard) {
        // A callsite that first runs on a thread without a subscriber would stay off for all
        // threads.
        static LOGGING: Once = Once::new();
        LOGGING.call_once(|| {
            let all = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE);
            let _ = all.with_writer(io::sink).try_init();
        });
        let lines = Self::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone());
        (lines, subscriber.with_ansi(false).without_time().set_default())
    }

    /// Returns the number of lines that contain `text`.
    fn count(&self, text: &str) -> usize {
        let bytes = self.0.lock().clone();
        String::from_utf8(bytes).expect("it is text").lines().filter(|l| l.contains(text)).count()
    }
}

#[tokio::test(start_paused = true)]
async fn losing_and_regaining_an_entry_log_one_line_each() {
    let (fake, server) = etcd();
    let ttl = Duration::from_secs(9);
    let register = EtcdRegistration::new(server.channel(), "/shop/", "10.0.0.1:7000", ttl);
    let registration = register.await.unwrap();
    let (lines, _guard) = Lines::start();
    server.link().refuse_connections();
    server.link().cut();
    tokio::time::sleep(ttl).await;
    assert!(registration.failure().is_some());
    let lost = "WARN farcall::server: cannot renew this server's lease in etcd";
    assert_eq!((lines.count(lost), lines.count("lease again")), (1, 0));
    fake.lose_lease(1);
    server.link().accept_connections();
    tokio::time::sleep(ttl * 2).await;
    assert!(registration.failure().is_none());
    let kept = "INFO farcall::server: etcd renews this server's lease again";
    assert_eq!((lines.count(lost), lines.count(kept)), (1, 1));
}

/// Accepts connections and calls, and never answers.
struct Silent;

impl Service for Silent {
    fn descriptor(&self) -> &'static ServiceDescriptor {
        &SERVICE
    }

    fn call(&self, _: usize, call: ServerCall) -> HandlerFuture {
        Box::pin(async move {
            let _unanswered = call;
            std::future::pending::<()>().await;
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_etcd_is_an_error_within_a_bound() {
    let server = TestServer::start(Server::builder().add_service(Silent));
    let mut resolver = Etcd::new(server.channel(), "/shop/", Scheme::Auto);
    let began = Instant::now();
    let error = next(&mut resolver).await.unwrap_err().to_string();
    assert!(error.starts_with("the prefix /shop/ of etcd: "), "{error}");
    assert!(began.elapsed() < ANSWER_TIMEOUT * 2, "{:?}", began.elapsed());
    let ttl = Duration::from_secs(9);
    let began = Instant::now();
    let register = EtcdRegistration::new(server.channel(), "/shop/", "10.0.0.1:7000", ttl);
    let registered = timeout(Duration::from_secs(3600), register).await.expect("a bound");
    assert_eq!(registered.unwrap_err().code(), Code::DeadlineExceeded);
    assert!(began.elapsed() < ANSWER_TIMEOUT * 2, "{:?}", began.elapsed());
    for opened in [
        timeout(ANSWER_TIMEOUT * 2, api::watch(&server.channel(), stream::pending()))
            .await
            .map(|it| it.map(drop)),
        timeout(ANSWER_TIMEOUT * 2, api::keep_alive(&server.channel(), stream::pending()))
            .await
            .map(|it| it.map(drop)),
    ] {
        let status = opened.expect("a bound").unwrap_err();
        assert_eq!(
            (status.code(), status.message()),
            (Code::DeadlineExceeded, "etcd did not answer within 10s")
        );
    }
}

/// The network accepts everything and returns nothing.
#[tokio::test(start_paused = true)]
async fn keepalive_detects_a_dead_etcd_behind_a_watch() {
    let (fake, server) = etcd();
    fake.put("/shop/1", "10.0.0.1:7000", 0);
    let mut resolver = Etcd::new(server.channel(), "/shop/", Scheme::Auto);
    assert_eq!(next(&mut resolver).await.unwrap(), ["auto://10.0.0.1:7000"]);
    for direction in [Direction::ToServer, Direction::ToClient] {
        server.link().lose(direction);
    }
    server.link().refuse_connections();
    let began = Instant::now();
    let error = next(&mut resolver).await.unwrap_err().to_string();
    assert!(error.starts_with("the prefix /shop/ of etcd: "), "{error}");
    let keepalive = Keepalive::default();
    let bound = keepalive.interval.unwrap() * 2 + keepalive.timeout + ANSWER_TIMEOUT * 2;
    assert!(began.elapsed() < bound, "{:?}", began.elapsed());
    for direction in [Direction::ToServer, Direction::ToClient] {
        server.link().resume(direction);
    }
    server.link().accept_connections();
    fake.put("/shop/1", "10.0.0.2:7000", 0);
    assert_eq!(next_found(&mut resolver).await, ["auto://10.0.0.2:7000"]);
}

#[tokio::test(start_paused = true)]
async fn an_entry_without_answered_heartbeats_is_not_kept() {
    let (fake, server) = etcd();
    let ttl = Duration::from_secs(9);
    let register = EtcdRegistration::new(server.channel(), "/shop/", "10.0.0.1:7000", ttl);
    let registration = register.await.unwrap();
    fake.store().is_deaf = true;
    tokio::time::sleep(ttl * 2).await;
    let failure = registration.failure().expect("no heartbeat was answered");
    assert_eq!(failure.code(), Code::DeadlineExceeded, "{failure}");
    fake.store().is_deaf = false;
    tokio::time::sleep(ttl * 2).await;
    assert!(registration.failure().is_none());
}
