//! A large `bytes` field in memory that farcall lent: over RDMA the peer reads it from where the
//! program wrote it, and elsewhere the same code runs on plain memory.

use farcall::{Channel, Server};
use farcall_examples::Kv;
use farcall_examples::proto::etcdserverpb::kv_rpc::{KvService, KvStub};
use farcall_examples::proto::etcdserverpb::{PutRequest, RangeRequest};

#[tokio::test]
async fn a_page_is_sent_from_where_it_was_written() -> anyhow::Result<()> {
    let server = Server::builder().add_service(KvService::new(Kv::default()));
    let listener = server.bind("tcp://127.0.0.1:0").await?;
    let address = listener.local_address().clone();
    tokio::spawn(listener.serve());

    let channel = Channel::connect(&address).await?;
    let stub = KvStub::new(channel.clone());
    // In a program, `file.read_exact(&mut buffer)`.
    let mut buffer = channel.buffer(1 << 20).await;
    buffer.fill(7);
    let value = buffer.freeze();
    stub.put(PutRequest { key: "page".into(), value, ..Default::default() }).await?;

    let range = RangeRequest { key: "page".into(), ..Default::default() };
    let found = stub.range(range).await?.into_inner();
    assert_eq!(found.kvs[0].value, vec![7; 1 << 20]);
    Ok(())
}
