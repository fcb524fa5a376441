//! Channels and the runtimes that drive them, in every order of their ends.

use farcall_suite::Failure;
use farcall_suite::proto::probe_rpc::ProbeStub;
use tokio::runtime::Runtime;

use crate::rig::{Rig, Serving, connect, devices, echo, runtime, within};

/// A connection between two runtimes that share nothing.
fn connected(
    rig: &Rig,
    servers: &Runtime,
    clients: &Runtime,
) -> Result<(Serving, ProbeStub), Failure> {
    let server = servers.block_on(rig.serve(Default::default()))?;
    let client = devices(Default::default());
    let stub = clients.block_on(async {
        let stub = ProbeStub::new(connect(&server.authority, &client).await?);
        echo(&stub, 1, 1 << 20).await?;
        Ok::<_, Failure>(stub)
    })?;
    Ok((server, stub))
}

pub(crate) fn channel_dropped_outside(rig: &Rig) -> Result<(), Failure> {
    let (servers, clients) = (runtime(), runtime());
    let (server, stub) = connected(rig, &servers, &clients)?;
    drop(stub);
    servers.block_on(server.forgets_its_clients());
    Ok(())
}

pub(crate) fn runtime_gone_before_its_channel(rig: &Rig) -> Result<(), Failure> {
    let (servers, clients) = (runtime(), runtime());
    let (server, stub) = connected(rig, &servers, &clients)?;
    drop(clients);
    servers.block_on(server.forgets_its_clients());
    // On another runtime the channel connects anew, over RDMA again.
    let next = runtime();
    next.block_on(within("a call", echo(&stub, 2, 1 << 20)))?;
    assert_eq!(server.connection().transport, "rdma");
    Ok(())
}

pub(crate) fn server_gone_with_its_runtime(rig: &Rig) -> Result<(), Failure> {
    let (servers, clients) = (runtime(), runtime());
    let (server, stub) = connected(rig, &servers, &clients)?;
    drop(server);
    drop(servers);
    clients.block_on(async {
        let refused = within("a refusal", echo(&stub, 3, 1000)).await;
        refused.expect_err("there is no server");
    });
    Ok(())
}
