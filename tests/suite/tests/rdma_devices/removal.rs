//! `rdma link delete` under a live connection: it finishes, everybody is told, and the device is
//! found anew when it is back.

use std::process::Command;
use std::time::{Duration, Instant};

use farcall::rdma::AsyncEventKind;
use farcall::{Channel, Rdma};
use farcall_suite::Failure;
use farcall_suite::OneServer as _;
use farcall_suite::proto::probe_rpc::ProbeStub;

use crate::cable::Cable;
use crate::device::Device;
use crate::ports::{cable, call, connects, event_count};
use crate::rig::{Rig, connect, devices, echo, slow, until, within};

/// The bound on a removal. Soft-RoCE itself waits up to 50 s for a queue pair of which a packet is
/// still on its way, and there may be one of an attempt before.
const REMOVAL_LIMIT: Duration = Duration::from_secs(180);

pub(crate) fn under_a_client(rig: &Rig) -> Result<(), Failure> {
    rig.run(removed(rig, Side::Client))
}

pub(crate) fn under_a_server(rig: &Rig) -> Result<(), Failure> {
    rig.run(removed(rig, Side::Server))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Client,
    Server,
}

async fn removed(rig: &Rig, side: Side) -> Result<(), Failure> {
    let server = rig.serve(slow()).await?;
    let client = devices(slow());
    let channel = connect(&server.authority, &client).await?;
    // No call is made on it ever again, and it must not keep the device.
    let idle = connect(&server.authority, &client).await?;
    let Some(client_cable) = cable(&channel) else { return Ok(()) };
    let (device, interface, loser): (&Device, String, &Rdma) = match side {
        Side::Client => (&rig.client_device, client_cable.interface.clone(), &client),
        Side::Server => {
            let cable = Cable::of(rig.host.parse().expect("an address")).expect("a cable");
            (&rig.server_device, cable.interface.clone(), server.server.rdma())
        }
    };
    within("a call", echo(&ProbeStub::new(channel.clone()), 1, 1000)).await?;
    let call = call(channel, rig).await;
    let name = device.name.clone();
    let started = Instant::now();
    let deleting = tokio::task::spawn_blocking(move || rdma(&["link", "delete", &name]));
    let status = within("the end of the call", call).await?;
    println!("the caller is told after {:?}: {status}", started.elapsed());
    if side == Side::Client {
        let gone = format!("the RDMA device {} is gone (DeviceFatal)", device.name);
        assert!(status.message().contains(&gone), "{status}");
    }
    let deleted = tokio::time::timeout(REMOVAL_LIMIT, deleting).await;
    deleted.expect("`rdma link delete` ends")?;
    println!("the device is gone after {:?}", started.elapsed());
    assert_eq!(event_count(loser, AsyncEventKind::DeviceFatal), 1);
    until("the end of the lanes", || loser.lanes().is_empty()).await;
    assert!(idle.info().is_none(), "{idle:?}");

    let address = format!("auto://{}", server.authority);
    let channel = Channel::builder(&address)?.rdma(&client).connect().await?;
    println!("without it: {:?}", channel.info().and_then(|info| info.fallback));
    assert_eq!(channel.info().map(|info| info.transport), Some("tcp"));
    within("a call", echo(&ProbeStub::new(channel), 3, 1 << 20)).await?;

    rdma(&["link", "add", &device.name, "type", "rxe", "netdev", &interface]);
    connects(&server.authority, &client).await?;
    println!("back again: {:?}", loser.devices());
    Ok(())
}

fn rdma(arguments: &[&str]) {
    let output = Command::new("rdma").args(arguments).output().expect("`rdma` of iproute2");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "rdma {}: {text}", arguments.join(" "));
}
