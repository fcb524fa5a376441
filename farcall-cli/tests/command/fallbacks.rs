//! `farcall top` where some connections want RDMA and are on TCP.

use std::net::Ipv4Addr;

use farcall::server::Admin;
use farcall::sim::SimNetwork;
use farcall::{Channel, Rdma, RdmaConfig};
use farcall_probe::proto::EchoRequest;
use farcall_probe::proto::probe_rpc::ProbeStub;

use crate::documents::{console, masked_figures};
use crate::program::farcall;
use crate::servers;

/// Returns the devices of a network of its own that has one device, and its port down.
fn port_down() -> Rdma {
    let network = SimNetwork::new(1);
    network.add_device("mlx5_0", &[Ipv4Addr::LOCALHOST.into()]).link_down();
    Rdma::simulated(&network, RdmaConfig::default())
}

#[tokio::test]
async fn top_counts_fallbacks_and_names_their_reasons() {
    let network = SimNetwork::new(1);
    network.add_device("mlx5_0", &[Ipv4Addr::LOCALHOST.into()]);
    let rdma = Rdma::simulated(&network, RdmaConfig::default());
    let builder = servers::bare().rdma(&rdma).admin(Admin::loopback());
    let server = servers::serve(builder, "rdma://127.0.0.1:0").await;
    let without = Rdma::simulated(&SimNetwork::new(1), RdmaConfig::default());
    let mut stubs = Vec::new();
    for devices in [&rdma, &without, &without, &port_down()] {
        let address = format!("auto://{}", server.authority());
        let channel = Channel::builder(address).unwrap().rdma(devices).connect().await.unwrap();
        let stub = ProbeStub::new(channel);
        stub.echo(EchoRequest::default()).await.unwrap();
        stubs.push(stub);
    }
    let line = format!("top tcp://{} --count 1", server.authority());
    let shown = farcall(&line).await.succeeded();
    println!("{shown}");
    let page = console("$ farcall top tcp://127.0.0.1:7000 ");
    let shown = shown.replace(server.authority(), "127.0.0.1:7000");
    assert_eq!(masked_figures(&shown), masked_figures(&page));
    // The figures of connections are not masked.
    let cells = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let row = "tcp://127.0.0.1:7000 rdma 1 tcp 4 can_pass 1 no_device 2 ";
    assert!(shown.lines().any(|line| cells(line).starts_with(row)), "{shown}");
    let reasons = |text: &str| text.lines().skip(2).map(cells).collect::<Vec<_>>();
    assert_eq!(reasons(&shown), reasons(&page));

    let json = farcall(&format!("{line} --format json")).await.succeeded();
    let row: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(row["fallbacks"], serde_json::json!({ "can_pass": 1, "no_device": 2 }));
    let reason = &row["fallback_reasons"][0];
    assert_eq!(reason["connections"], 2, "{json}");
    assert!(reason["reason"].as_str().is_some_and(|it| it.contains("no RDMA device")), "{json}");
}
