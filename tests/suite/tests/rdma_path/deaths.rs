//! Clients that go in the middle of a message, hundreds of them: others are served all the same,
//! and the receive slots are back or counted. `FARCALL_DEATHS` says how many; 2,000, twice what a
//! lane has slots, take three minutes on emulated processors.

use farcall::RdmaConfig;
use farcall::rdma::LaneInfo;
use farcall_suite::Failure;
use farcall_suite::proto::probe_rpc::ProbeStub;
use tokio::task::JoinSet;

use crate::hostile_peer::HostilePeer;
use crate::rig::{Rig, connect, devices, echo, repeats, until, within};

/// Clients that go, unless `FARCALL_DEATHS` says otherwise.
const DEATHS: u64 = 400;

/// Every so many of them another client is served.
const CALL_INTERVAL: u64 = 40;

/// Number of clients that leave at once. Stable kernels since 2025 wait up to 50 s to destroy a
/// queue pair with packets in flight (`__rxe_cleanup`), which some of them have.
const LEAVING_MAX: usize = 64;

/// Calls of the other after all have gone: more than a connection may have on their way.
const CALLS_AFTER: u64 = 64;

/// Slots that may be missing at the end: those that the good client's own connection keeps in
/// doubt.
const MISSING_MAX: u32 = 4;

pub(crate) fn clients_in_mid_message(rig: &Rig) -> Result<(), Failure> {
    let deaths = repeats("FARCALL_DEATHS", DEATHS);
    rig.run(async {
        let mut rdma = RdmaConfig::default();
        // A queue pair that never receives keeps what died before in doubt for as long as it lives.
        rdma.read_queue_pairs = 0;
        let server = rig.serve(rdma.clone()).await?;
        let good = ProbeStub::new(connect(&server.authority, &devices(rdma)).await?);
        within("the neighbour's call", echo(&good, 0, 1000)).await?;
        let (queue_pairs, mut leaving) = (rig.queue_pair_counts(), JoinSet::new());
        for count in 1..=deaths {
            let mut bad = within("the handshake", HostilePeer::connect(&server.authority)).await?;
            bad.begin_long_messages();
            leaving.spawn_blocking(move || drop(bad));
            if leaving.len() > LEAVING_MAX {
                leaving.join_next().await;
            }
            if count % CALL_INTERVAL == 0 {
                within("the neighbour's call", echo(&good, count, 1000)).await?;
            }
        }
        within("the clients' own ends", leaving.join_all()).await;
        until("the end of the dead", || server.server.connections().len() == 1).await;
        until("the end of their paths", || server.lane().connection_count == 1).await;
        // What comes in before a queue pair is gone says nothing of its slots.
        until("the end of their queue pairs", || rig.queue_pair_counts() == queue_pairs).await;
        for seed in 0..CALLS_AFTER {
            within("the neighbour's call", echo(&good, seed, 1000)).await?;
        }
        let LaneInfo { activity, missing_slots, receive_slots, .. } = server.lane();
        let (lost, reclaimed) = (activity.slots_lost, activity.slots_reclaimed);
        println!(
            "{deaths} clients went: {lost} of {receive_slots} slots lost, {reclaimed} used again, \
             {missing_slots} missing"
        );
        assert!(missing_slots <= MISSING_MAX, "{missing_slots} missing");
        assert_eq!(lost, reclaimed);
        Ok(())
    })
}
