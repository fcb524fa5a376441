//! That large frames go through memory windows where both sides, or one of them, ask for that, and
//! that nothing is left open or in use after.
//!
//! One call at a time: Soft-RoCE executes the binds of windows once more whenever it retransmits,
//! which ends or stalls the connection.

use std::time::{Duration, Instant};

use farcall::{Config, RdmaConfig, RkeyScope};
use farcall_suite::Failure;
use farcall_suite::proto::probe_rpc::ProbeStub;

use crate::rig::{Rig, Serving, config, connect, echo, is_idle, lane, until};

const LEN: usize = 1 << 20;
const CALLS: u64 = 4;
const ROUNDS: u64 = 7;

fn rdma(scope: RkeyScope) -> RdmaConfig {
    let mut rdma = RdmaConfig::default();
    rdma.rkey_scope = scope;
    // 4.3 s, so that a slow processor makes the device retransmit nothing.
    rdma.connect.timeout = 20;
    rdma
}

/// A server and a client of it, each with its scope.
struct Pair {
    server: Serving,
    client: Config,
    stub: ProbeStub,
}

impl Pair {
    async fn new(rig: &Rig, server: RkeyScope, client: RkeyScope) -> Result<Self, Failure> {
        let scopes = (server, client);
        let server = rig.serve(rdma(server)).await?;
        let client = config(rdma(client));
        let stub = ProbeStub::new(connect(&server.authority, &client).await?);
        echo(&stub, 0, LEN).await?;
        assert_eq!((server.lane().rkey_scope, lane(&client).rkey_scope), scopes);
        Ok(Self { server, client, stub })
    }

    /// How long some calls take, one after the other.
    async fn time(&self) -> Result<Duration, Failure> {
        let begin = Instant::now();
        for seed in 0..CALLS {
            echo(&self.stub, seed, LEN).await?;
        }
        Ok(begin.elapsed())
    }

    async fn is_left_idle(&self) {
        let lanes = || [self.server.lane(), lane(&self.client)];
        until("the last release", || lanes().iter().all(|lane| is_idle(lane, 1))).await;
    }
}

pub(crate) fn both_and_either_side(rig: &Rig) -> Result<(), Failure> {
    use RkeyScope::{Region, Window};
    rig.run(async {
        for (server, client) in [(Window, Window), (Window, Region), (Region, Window)] {
            let pair = Pair::new(rig, server, client).await?;
            pair.time().await?;
            pair.is_left_idle().await;
        }
        let windows = Pair::new(rig, Window, Window).await?;
        let regions = Pair::new(rig, Region, Region).await?;
        let mut ratios = Vec::new();
        for round in 0..ROUNDS {
            let (first, second) =
                if round % 2 == 0 { (&windows, &regions) } else { (&regions, &windows) };
            let (first, second) = (first.time().await?, second.time().await?);
            let (windows, regions) = if round % 2 == 0 { (first, second) } else { (second, first) };
            ratios.push(windows.as_secs_f64() / regions.as_secs_f64());
        }
        ratios.sort_by(f64::total_cmp);
        println!("{CALLS} echoes of 1 MiB a round, windows over regions: {ratios:.2?}");
        windows.is_left_idle().await;
        Ok(())
    })
}
