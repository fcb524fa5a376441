//! Servers that are found: in etcd, by a control plane, and several connections to each.

use std::time::Duration;

use farcall::balance::{BalanceConfig, Policy};
use farcall::resolve::Scheme;
use farcall::tls::{ClientTls, ClientTlsConfig};
use farcall::{Channel, Code, Server, Settings};
use farcall_etcd::{Etcd, EtcdRegistration};
use farcall_examples::hello::greeter_rpc::{GreeterService, GreeterStub};
use farcall_xds::{Xds, XdsNode};

use super::{MyGreeter, hello};

/// Serves until Ctrl-C, and is found in etcd meanwhile.
async fn serve_registered(etcd: &str) -> anyhow::Result<()> {
    let service = GreeterService::new(MyGreeter);
    let listener = Server::builder().add_service(service).bind("auto://127.0.0.1:0").await?;
    let (etcd, here) = (Channel::connect(etcd).await?, "10.0.0.1:7000");
    let lease = Duration::from_secs(10);
    let entry = EtcdRegistration::new(etcd, "/services/inventory/", here, lease).await?;
    listener
        .serve()
        .with_graceful_shutdown(async move {
            let _ = tokio::signal::ctrl_c().await;
            let _ = entry.withdraw().await;
        })
        .await?;
    Ok(())
}

#[tokio::test]
async fn a_registration_needs_etcd() {
    // Nothing listens at port 1.
    assert!(serve_registered("grpc://127.0.0.1:1").await.is_err());
}

/// A channel whose servers are in an etcd that is reached by TLS.
fn found_in_etcd(tls: &ClientTls) -> anyhow::Result<Channel> {
    let etcd = Channel::builder("grpcs://127.0.0.1:1")?.tls(tls).connect_lazy();
    let resolver = Etcd::new(etcd, "/services/inventory/", Scheme::Auto);
    let channel = Channel::builder("auto://inventory:1")?.connect_with_resolver(resolver);
    Ok(channel)
}

/// A channel whose servers a control plane tells, which is reached by TLS.
fn found_by_xds(tls: &ClientTls) -> anyhow::Result<Channel> {
    let control_plane = Channel::builder("grpcs://127.0.0.1:1")?.tls(tls).connect_lazy();
    let node = XdsNode::new("shop-7d4b9");
    let resolver = Xds::new(control_plane, "inventory", Scheme::Auto).with_node(node);
    let channel = Channel::builder("auto://inventory:1")?.connect_with_resolver(resolver);
    Ok(channel)
}

#[tokio::test]
async fn resolvers_have_channels_of_their_own() -> anyhow::Result<()> {
    let certificate = farcall_testkit::certificates::Authority::new("a test's")?.pem();
    let ca = farcall::tls::Pem::bytes(certificate);
    let tls = ClientTls::new(ClientTlsConfig::default().with_ca(ca))?;
    for channel in [found_in_etcd(&tls)?, found_by_xds(&tls)?] {
        let status = GreeterStub::new(channel).say_hello(hello("none")).await.unwrap_err();
        assert_eq!(status.code(), Code::Unavailable);
    }
    Ok(())
}

#[tokio::test]
async fn schemes_are_registered_once() -> anyhow::Result<()> {
    let settings = Settings::parse("farcall.toml", "")?
        .with_scheme(farcall_etcd::scheme())
        .with_scheme(farcall_xds::scheme());
    assert_eq!(settings.targets().count(), 0);
    let channel = Channel::builder("etcd://10.0.0.9:2379/services/inventory")?
        .scheme(farcall_etcd::scheme())
        .connect_lazy();
    assert!(!channel.path().is_upgraded());
    Ok(())
}

#[tokio::test]
async fn a_channel_balances_by_call() -> anyhow::Result<()> {
    let mut servers = Vec::new();
    for _ in 0..2 {
        let server = Server::builder().add_service(GreeterService::new(MyGreeter));
        let listener = server.bind("tcp://127.0.0.1:0").await?;
        servers.push(listener.local_address().to_string().replace("tcp://", ""));
        tokio::spawn(listener.serve());
    }
    let address = format!("tcp://{}", servers.join(","));
    let balance = BalanceConfig::default().with_policy(Policy::RoundRobin).with_connections(2);
    let channel = Channel::builder(address)?.balance(balance).connect().await?;
    for _ in 0..4 {
        GreeterStub::new(channel.clone()).say_hello(hello("each")).await?;
    }
    Ok(())
}
