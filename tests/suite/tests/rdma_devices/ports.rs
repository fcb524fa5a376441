//! A cable pulled at one end: both ports go down, and their devices say so.

use std::time::Instant;

use bytes::Bytes;
use farcall::rdma::AsyncEventKind;
use farcall::{Address, Channel, ChannelBuilder, Code, Rdma, Status};
use farcall_suite::OneServer as _;
use farcall_suite::proto::ParkRequest;
use farcall_suite::proto::probe_rpc::ProbeStub;
use farcall_suite::{Cause, Failure};
use tokio::task::JoinHandle;

use crate::cable::Cable;
use crate::rig::{Rig, connect, devices, echo, slow, until, within};

/// Returns the number of such events of the only device.
pub(crate) fn event_count(rdma: &Rdma, kind: AsyncEventKind) -> u64 {
    rdma.devices().iter().map(|device| device.event_count(kind)).sum()
}

/// Longer than any test lets it take.
const LEN: usize = 64 << 20;

/// Number of packets after which a payload is surely in flight: a MiB even in the shortest packets,
/// which carry 1 KiB.
const PACKETS_UNDER_WAY: u64 = 1024;

/// Makes a call whose payload is being read when this returns; it ends with the status that the
/// call fails with, and has let go of the channel by then.
pub(crate) async fn call(channel: Channel, rig: &Rig) -> JoinHandle<Status> {
    let arrived = || rig.server_device.counts().packets_received;
    let before = arrived();
    let call = tokio::spawn(async move {
        let payload = Bytes::from(vec![0; LEN]);
        let request = ParkRequest { payload, ..Default::default() };
        let answer = ProbeStub::new(channel).park(request).await;
        answer.expect_err("the path ends before")
    });
    until("a MiB of the payload", || arrived() - before >= PACKETS_UNDER_WAY).await;
    call
}

/// The cable of a channel's end; `None`, and a line that says so, when it is a real one.
pub(crate) fn cable(channel: &Channel) -> Option<Cable> {
    let local = channel.info().and_then(|info| info.addresses.local).expect("an address");
    let cable = Cable::of(local.ip());
    if cable.is_none() {
        println!("skipped: {local} is on a real network card");
    }
    cable
}

/// Connects as soon as that is possible, and makes a call.
pub(crate) async fn connects(authority: &str, rdma: &Rdma) -> Result<Channel, Failure> {
    let connecting = async {
        loop {
            let builder = ChannelBuilder::new(Address::Rdma(authority.to_owned()));
            match builder.rdma(rdma).connect().await {
                Ok(channel) => return channel,
                Err(error) => println!("not connected yet: {error}"),
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    };
    let channel = within("a connection", connecting).await;
    within("a call", echo(&ProbeStub::new(channel.clone()), 2, 1 << 20)).await?;
    Ok(channel)
}

pub(crate) fn goes_down(rig: &Rig) -> Result<(), Failure> {
    rig.run(goes_down_and_up(rig))
}

async fn goes_down_and_up(rig: &Rig) -> Result<(), Failure> {
    let server = rig.serve(slow()).await?;
    let client = devices(slow());
    let channel = connect(&server.authority, &client).await?;
    let Some(cable) = cable(&channel) else { return Ok(()) };
    within("a call", echo(&ProbeStub::new(channel.clone()), 1, 1000)).await?;
    let call = call(channel, rig).await;
    cable.pull();
    let pulled = Instant::now();
    let status = within("the end of the call", call).await?;
    println!("the caller is told after {:?}: {status}", pulled.elapsed());
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    let port = format!("port 1 of {} went down (PortError)", rig.client_device.name);
    assert!(status.message().contains(&port), "{status}");
    assert_eq!(event_count(&client, AsyncEventKind::PortError), 1);
    until("the end of the server's connection", || server.server.connections().is_empty()).await;
    println!("the server has no connection left after {:?}", pulled.elapsed());

    let refused = connect(&server.authority, &client).await.expect_err("the ports are down");
    let Cause::Connect(error) = refused.cause() else { panic!("{refused}") };
    println!("a new one is refused: {error}");
    assert!(error.to_string().contains("not active"), "{error}");

    cable.mend();
    connects(&server.authority, &client).await?;
    until("the port's return", || event_count(&client, AsyncEventKind::PortActive) > 0).await;
    println!("events: {:?}", client.devices());
    Ok(())
}
