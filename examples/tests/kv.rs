//! The same `impl Kv` behind farcall and behind tonic's own server, called by either's generated
//! client: etcd's semantics are the same through both.

use bytes::Bytes;
use farcall_examples::proto::etcdserverpb::kv_client::KvClient;
use farcall_examples::proto::etcdserverpb::kv_rpc::{KvService, KvStub};
use farcall_examples::proto::etcdserverpb::kv_server::KvServer;
use farcall_examples::proto::etcdserverpb::{
    CompactionRequest, DeleteRangeRequest, PutRequest, PutResponse, RangeRequest, RangeResponse,
    TxnRequest,
};
use farcall_examples::{Kv, prefix_end};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Endpoint, Server};
use tonic::{Code, Status};

/// A value that is in pieces on TCP and in many frames of HTTP/2.
const LARGE_LEN: usize = 1 << 20;

fn put(key: &'static str, value: impl Into<Bytes>) -> PutRequest {
    PutRequest { key: key.into(), value: value.into(), prev_kv: true, ..Default::default() }
}

fn range(key: &'static [u8], range_end: impl Into<Bytes>) -> RangeRequest {
    RangeRequest { key: key.into(), range_end: range_end.into(), ..Default::default() }
}

fn keys(found: &RangeResponse) -> Vec<Bytes> {
    found.kvs.iter().map(|kv| kv.key.clone()).collect()
}

fn revision(response: &PutResponse) -> i64 {
    response.header.as_ref().expect("every response has a header").revision
}

/// Puts, ranges and deletes through a client of either kind; tonic's wants to be borrowed mutably.
macro_rules! exercise {
    ($client:expr) => {{
        let mut client = $client;
        let large = Bytes::from(vec![7; LARGE_LEN]);
        for (key, value) in [("b", "1"), ("a", "2"), ("c", "3"), ("bb", "4")] {
            let answer = client.put(put(key, value)).await?.into_inner();
            assert_eq!(answer.prev_kv, None);
        }
        let answer = client.put(put("b", large.clone())).await?.into_inner();
        assert_eq!(revision(&answer), 6);
        let previous = answer.prev_kv.expect("it was there");
        assert_eq!((previous.value, previous.version), ("1".into(), 1));

        let found = client.range(range(b"b", "")).await?.into_inner();
        assert_eq!((found.count, found.more), (1, false));
        let kv = &found.kvs[0];
        assert_eq!((kv.create_revision, kv.mod_revision, kv.version), (2, 6, 2));
        assert_eq!(kv.value, large);

        let all = client.range(range(b"\0", "\0")).await?.into_inner();
        assert_eq!(keys(&all), ["a", "b", "bb", "c"]);
        let from = client.range(range(b"bb", "\0")).await?.into_inner();
        assert_eq!(keys(&from), ["bb", "c"]);
        let prefix = client.range(range(b"b", prefix_end(b"b"))).await?.into_inner();
        assert_eq!(keys(&prefix), ["b", "bb"]);
        let limited = RangeRequest { limit: 1, keys_only: true, ..range(b"\0", "\0") };
        let limited = client.range(limited).await?.into_inner();
        assert_eq!((keys(&limited), limited.more, limited.count), (vec!["a".into()], true, 4));
        assert!(limited.kvs[0].value.is_empty());
        let counted = RangeRequest { count_only: true, ..range(b"\0", "\0") };
        let counted = client.range(counted).await?.into_inner();
        assert_eq!((counted.count, counted.more, counted.kvs.len()), (4, false, 0));

        let future = RangeRequest { revision: 99, ..range(b"a", "") };
        let status = client.range(future).await.expect_err("there is no such revision yet");
        assert_eq!(status.code(), Code::OutOfRange);
        let past = RangeRequest { revision: 2, ..range(b"a", "") };
        let status = client.range(past).await.expect_err("the past is not kept");
        assert_eq!(status.code(), Code::Unimplemented);
        let status = client.put(put("", "value")).await.expect_err("a key is something");
        assert_eq!(status.code(), Code::InvalidArgument);
        assert_eq!(status.message(), "etcdserver: key is not provided");
        let leased = PutRequest { lease: 7, ..put("x", "value") };
        let status = client.put(leased).await.expect_err("there are no leases");
        assert_eq!(status.code(), Code::NotFound);

        let range_end = prefix_end(b"b");
        let delete = DeleteRangeRequest { key: "b".into(), range_end, prev_kv: true };
        let deleted = client.delete_range(delete.clone()).await?.into_inner();
        let values: Vec<_> = deleted.prev_kvs.iter().map(|kv| kv.value.clone()).collect();
        assert_eq!((deleted.deleted, values), (2, vec![large, "4".into()]));
        let again = client.delete_range(delete).await?.into_inner();
        assert_eq!((again.deleted, again.prev_kvs.len()), (0, 0));
        let left = client.range(range(b"\0", "\0")).await?.into_inner();
        assert_eq!(keys(&left), ["a", "c"]);
        assert_eq!(left.header.expect("it has a header").revision, 7);

        let status = client.txn(TxnRequest::default()).await.expect_err("it has no Txn");
        assert_eq!(status.code(), Code::Unimplemented);
        let compact = client.compact(CompactionRequest::default()).await;
        assert_eq!(compact.expect_err("it has no Compact").code(), Code::Unimplemented);
        let stream = client.range_stream(range(b"a", "")).await;
        assert_eq!(stream.map(drop).expect_err("it has no stream").code(), Code::Unimplemented);
        Ok(())
    }};
}

/// Serves at `address` through farcall.
#[allow(unused_mut, reason = "tonic's clients are borrowed mutably, ours are not")]
async fn through_farcall(address: &str) -> Result<(), Status> {
    let builder = farcall::Server::builder().add_service(KvService::new(Kv::default()));
    let listener = builder.bind(address).await.expect("the address can be listened on");
    let address = listener.local_address().to_string();
    tokio::spawn(listener.serve());
    let channel = farcall::Channel::connect(&address).await.expect("the server accepts");
    exercise!(KvStub::new(channel))
}

#[tokio::test]
async fn over_inproc() -> Result<(), Status> {
    through_farcall("inproc://kv-test").await
}

#[tokio::test]
async fn over_tcp() -> Result<(), Status> {
    through_farcall("tcp://127.0.0.1:0").await
}

#[tokio::test]
async fn over_tonics_own_server_and_client() -> Result<(), Status> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("loopback listens");
    let address = format!("http://{}", listener.local_addr().expect("it has an address"));
    let server = Server::builder().add_service(KvServer::new(Kv::default()));
    let serving = tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    let endpoint = Endpoint::from_shared(address).expect("the address is one");
    let channel = endpoint.connect().await.expect("tonic's server accepts");
    let exercised = exercise!(KvClient::new(channel));
    serving.abort();
    exercised
}
