//! Tests a service over RDMA on a machine without a device: a simulated device has the loopback
//! address, injects faults by chance, and loses its cable.
//!
//! Add farcall's feature `sim` to your dev-dependencies; nothing else is needed. `violations` lists
//! misuse of the device by farcall, which would be a bug of farcall's and not of your service.

use std::net::Ipv4Addr;
use std::time::Duration;

use bytes::Bytes;
use farcall::sim::{SimDevice, SimFaults, SimNetwork};
use farcall::{Channel, Code, Rdma, RdmaConfig, Server};
use farcall_examples::proto::etcdserverpb::kv_rpc::{KvService, KvStub};
use farcall_examples::proto::etcdserverpb::{PutRequest, RangeRequest};
use farcall_examples::{Kv, MESSAGE_LEN_MAX};

/// Long enough for a slow machine; nothing here waits for long.
const LIMIT: Duration = Duration::from_secs(30);

/// A network with one device, which serves both ends.
fn network() -> (SimNetwork, SimDevice) {
    let network = SimNetwork::new(42);
    let device = network.add_device("sim0", &[Ipv4Addr::LOCALHOST.into()]);
    (network, device)
}

/// Serves the service on the device and connects to it. `rdma://` never falls back to TCP.
async fn serve(network: &SimNetwork) -> anyhow::Result<KvStub> {
    let rdma = Rdma::simulated(network, RdmaConfig::default());
    let builder = Server::builder().max_message_len(MESSAGE_LEN_MAX).rdma(&rdma);
    let builder = builder.add_service(KvService::new(Kv::default()));
    let listener = builder.bind("rdma://127.0.0.1:0").await?;
    let address = listener.local_address().clone();
    tokio::spawn(listener.serve());
    let builder = Channel::builder(address)?.max_message_len(MESSAGE_LEN_MAX).rdma(&rdma);
    Ok(KvStub::new(builder.connect().await?))
}

fn put(key: &str, value: Bytes) -> PutRequest {
    PutRequest { key: key.to_owned().into(), value, ..Default::default() }
}

fn range(key: &str) -> RangeRequest {
    RangeRequest { key: key.to_owned().into(), ..Default::default() }
}

#[tokio::test]
async fn values_survive_a_bad_network() -> anyhow::Result<()> {
    let (network, _device) = network();
    let stub = serve(&network).await?;
    // Packets are lost, receivers are not ready, memory is written late, completions come in
    // another order: nothing of it may fail a call.
    network.set_faults(SimFaults::harmless());
    for (round, fill) in (0..20).zip(1u8..) {
        let (key, value) = (format!("key-{round}"), Bytes::from(vec![fill; round * 20_000]));
        stub.put(put(&key, value.clone())).await?;
        let found = stub.range(range(&key)).await?.into_inner();
        assert_eq!(found.kvs[0].value, value);
    }
    assert!(network.counters().late_writes > 0, "the faults did come");
    assert_eq!(network.violations(), []);
    Ok(())
}

#[tokio::test]
async fn a_pulled_cable_is_an_error_and_a_mended_one_is_forgotten() -> anyhow::Result<()> {
    let (network, device) = network();
    let stub = serve(&network).await?;
    stub.put(put("a", "before".into())).await?;

    device.link_down();
    let status = tokio::time::timeout(LIMIT, stub.range(range("a"))).await?.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");

    device.link_up();
    let found = tokio::time::timeout(LIMIT, async {
        loop {
            match stub.range(range("a")).await {
                Ok(found) => return found.into_inner(),
                Err(status) => println!("not yet: {status}"),
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    assert_eq!(found.await?.kvs[0].value, "before");
    Ok(())
}
