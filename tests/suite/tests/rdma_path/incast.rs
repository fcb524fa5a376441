//! Clients that all send large messages at once wait for each other, and not for their devices.

use std::time::Duration;

use farcall::RdmaConfig;
use farcall::rdma::ConnectOptions;
use farcall_suite::Failure;
use farcall_suite::proto::probe_rpc::ProbeStub;
use futures::future::try_join_all;

use crate::rig::{Rig, connect, devices, upload, within_limit};

/// Connections. Sixteen were enough to make Soft-RoCE give answers up for lost when each read as
/// much as it liked.
const CLIENTS: usize = 32;

/// Messages of each, one after the other.
const MESSAGES: usize = 3;

const LEN: usize = 4 << 20;

const UPLOADS_LIMIT: Duration = Duration::from_secs(240);

/// The time for an acknowledgement, as verbs number it: 0.5 s, and seven tries. The 8 MiB that may
/// be read at once take a third of a second in a virtual machine, and the 384 MiB of all messages
/// 15 s. A machine with other things to do takes several times as long, and its READs are not lost.
const ACK_TIMEOUT: u8 = 17;

pub(crate) fn many_uploads(rig: &Rig) -> Result<(), Failure> {
    rig.run(async {
        let connect_options = ConnectOptions::default().with_timeout(ACK_TIMEOUT);
        let config = RdmaConfig::default().with_connect(connect_options);
        let server = rig.serve(config.clone()).await?;
        let rdma = devices(config);
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
        within_limit(UPLOADS_LIMIT, "the uploads", try_join_all(uploads)).await?;
        // No queue pair has died: they are the connections of the beginning, over RDMA.
        let connections = server.server.connections();
        let over_rdma = connections.iter().filter(|info| info.transport == "rdma").count();
        assert_eq!((over_rdma, connections.len()), (CLIENTS, CLIENTS), "{connections:?}");
        Ok(())
    })
}
