//! Several lanes of a real device.

use farcall::RdmaConfig;
use farcall_suite::Failure;

use crate::rig::{Rig, devices};

const LANES: u16 = 2;

pub(crate) fn two_lanes(rig: &Rig) -> Result<(), Failure> {
    let mut rdma = RdmaConfig::default();
    rdma.lanes = Some(LANES);
    let (before, _) = rig.receive_queue_counts_before();
    rig.run(async {
        let server = rig.serve(rdma.clone()).await?;
        let (address, client) = (format!("rdma://{}", server.authority), devices(rdma));
        crate::spreading::spread(&address, server.server.rdma(), &client, LANES.into()).await?;
        // A device that is both ends' has both sides' lanes.
        let sides = if rig.server_device == rig.client_device { 2 } else { 1 };
        let (queues, _) = rig.receive_queue_counts();
        assert_eq!(queues, before + sides * usize::from(LANES), "a receive queue for each lane");
        Ok(())
    })
}
