//! Clients that all send large messages at once wait for each other, and not for their devices.

use farcall_suite::Failure;
use farcall_suite::proto::probe_rpc::ProbeStub;
use futures::future::try_join_all;

use crate::rig::{Rig, connect, devices, upload, within};

/// Connections. Sixteen were enough to make Soft-RoCE give answers up for lost when each read as
/// much as it liked.
const CLIENTS: usize = 32;

/// Messages of each, one after the other.
const MESSAGES: usize = 3;

const LEN: usize = 4 << 20;

pub(crate) fn many_uploads(rig: &Rig) -> Result<(), Failure> {
    rig.run(async {
        let server = rig.serve(Default::default()).await?;
        let rdma = devices(Default::default());
        let mut stubs = Vec::new();
        for _ in 0..CLIENTS {
            stubs.push(ProbeStub::new(connect(&server.authority, &rdma).await?));
        }
        let uploads = stubs.iter().map(|stub| async {
            for _ in 0..MESSAGES {
                upload(stub, LEN).await?;
            }
            Ok::<_, Failure>(())
        });
        within("the uploads", try_join_all(uploads)).await?;
        // No queue pair has died: they are the connections of the beginning, over RDMA.
        let connections = server.server.connections();
        let over_rdma = connections.iter().filter(|info| info.transport == "rdma").count();
        assert_eq!((over_rdma, connections.len()), (CLIENTS, CLIENTS), "{connections:?}");
        Ok(())
    })
}
