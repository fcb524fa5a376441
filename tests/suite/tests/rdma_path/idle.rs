//! Idle connections cost nothing.

use std::time::Duration;

use farcall::Server;
use farcall::rdma::LaneInfo;
use farcall_suite::Failure;
use farcall_suite::proto::probe_rpc::ProbeStub;

use crate::rig::{Rig, Serving, client, devices, echo, lane, until};

/// Length of the idle period. It counts wake-ups, of which there must be none in any time: the
/// connections have no keepalive.
const IDLE: Duration = Duration::from_secs(5);

/// Looks in a row, a millisecond apart, at which nothing has happened: the last acknowledgements
/// and grants have arrived.
const QUIET_LOOKS: usize = 200;

const CONNECTIONS: u64 = 8;

pub(crate) fn no_wakeups(rig: &Rig) -> Result<(), Failure> {
    rig.run(async {
        let builder = Server::builder()
            .rdma(&devices(Default::default()))
            .keepalive(farcall::Keepalive::off());
        let server = Serving::start_with(&format!("auto://{}:0", rig.host), builder).await?;
        // The clients' own, which share no lane with the server.
        let rdma = devices(Default::default());
        let mut stubs = Vec::new();
        for seed in 0..CONNECTIONS {
            let builder =
                client("rdma", &server.authority, &rdma)?.keepalive(farcall::Keepalive::off());
            let stub = ProbeStub::new(builder.connect().await?);
            echo(&stub, seed, 1000).await?;
            echo(&stub, seed, 1 << 20).await?;
            stubs.push(stub);
        }
        let wakeups = || [server.lane(), lane(&rdma)].map(|lane| lane.activity.wakeups);
        let (mut before, mut looks) = (wakeups(), 0);
        until("quiet", || {
            let now = wakeups();
            looks = if now == before { looks + 1 } else { 0 };
            before = now;
            looks == QUIET_LOOKS
        })
        .await;
        tokio::time::sleep(IDLE).await;
        let after = wakeups();
        println!(
            "{CONNECTIONS} idle pairs for {IDLE:?}: wake-ups before and after {before:?} {after:?}"
        );
        let describe = |lane: LaneInfo| format!("{:?}", lane.activity);
        println!("server {}\nclient {}", describe(server.lane()), describe(lane(&rdma)));
        assert_eq!(before, after, "wake-ups of idle lanes");
        // And they are not asleep for good.
        for (seed, stub) in (0..).zip(&stubs) {
            echo(stub, seed, 1000).await?;
        }
        assert!(wakeups() > after);
        Ok(())
    })
}
