//! That receive memory is a matter of lanes and not of connections.

use farcall_suite::Failure;
use farcall_suite::proto::probe_rpc::ProbeStub;

use crate::rig::{Rig, config, connect, echo, lane};

const CONNECTIONS: usize = 64;

pub(crate) fn sixty_four_connections(rig: &Rig) -> Result<(), Failure> {
    let queues = || {
        let client = rig.client_device.shared_receive_queue_count();
        (rig.server_device.shared_receive_queue_count(), client)
    };
    let before = queues();
    rig.run(async {
        let server = rig.serve(Default::default()).await?;
        let client = config(Default::default());
        let mut stubs = vec![ProbeStub::new(connect(&server.authority, &client).await?)];
        let with_one = (server.lane(), queues());
        while stubs.len() < CONNECTIONS {
            stubs.push(ProbeStub::new(connect(&server.authority, &client).await?));
        }
        for (seed, stub) in (0..).zip(&stubs) {
            echo(stub, seed, 1000).await?;
        }
        let with_all = (server.lane(), queues());
        println!("with 1: {with_one:?}\nwith {CONNECTIONS}: {with_all:?}");
        assert_eq!(with_one.0.connection_count, 1);
        assert_eq!(with_all.0.connection_count, CONNECTIONS);
        assert_eq!(server.server.connections().len(), CONNECTIONS);
        assert_eq!(with_one.0.receive_bytes, with_all.0.receive_bytes);
        assert_eq!(lane(&client).connection_count, CONNECTIONS);
        // A device that is both ends' has both lanes.
        let lanes = if rig.server_device == rig.client_device { 2 } else { 1 };
        assert_eq!(with_one.1, (before.0 + lanes, before.1 + lanes));
        assert_eq!(with_all.1, with_one.1, "shared receive queues");
        Ok(())
    })
}
