//! A thousand connections, a few at a time, and what the process and the kernel have after.

use std::time::{Duration, Instant};

use farcall::{Rdma, RdmaConfig};
use farcall_suite::Failure;
use farcall_suite::proto::probe_rpc::ProbeStub;
use farcall_testkit::counters::resident_kib;

use crate::resources::resources;
use crate::rig::{Rig, connect, devices, echo, is_idle, lane, until, within};

/// Connections before the first look, so that every pool and cache has its size.
const WARM_UP: usize = 100;

/// Connections in all.
const COUNT: usize = 1500;

/// Connections at a time, because most of a connection's time is spent waiting for its end.
const AT_A_TIME: usize = 4;

/// Attempts that may fail, because a proof takes longer than its bound on a machine that is busy.
/// They leave nothing either.
const FAILED_MAX: usize = COUNT / 10;

/// Maximum growth of the process, in KiB. A leak of 5 KiB a connection exceeds it. The heap alone
/// grew by 0.3 to 5 MiB in four runs of the same program.
const GROWTH_KIB_MAX: u64 = 6144;

/// The bound on all of it: half a second each, on emulated processors that others use too.
const LIMIT: Duration = Duration::from_secs(500);

pub(crate) fn thousand_connections(rig: &Rig) -> Result<(), Failure> {
    rig.run(async {
        let churn = tokio::time::timeout(LIMIT, churn(rig));
        churn.await.unwrap_or_else(|_| panic!("{COUNT} connections took more than {LIMIT:?}"))
    })
}

async fn churn(rig: &Rig) -> Result<(), Failure> {
    let server = rig.serve(RdmaConfig::default()).await?;
    let client = devices(RdmaConfig::default());
    let started = Instant::now();
    let (mut first, mut failed) = (None, 0);
    for number in (AT_A_TIME..=COUNT).step_by(AT_A_TIME) {
        let visits = (0..AT_A_TIME).map(|_| visit(&server.authority, &client));
        failed += futures::future::try_join_all(visits).await?.into_iter().sum::<usize>();
        assert!(failed <= FAILED_MAX, "{failed} attempts failed");
        if number == WARM_UP || number == COUNT {
            until("the end of the connection", || is_idle(&lane(&client), 0)).await;
            server.forgets_its_clients().await;
            until("the end of the queue pairs", || rig.queue_pair_counts() == (0, 0)).await;
            let seen = (resources(), resident_kib()?);
            println!("after {number} and {failed}, {:?}: {seen:?}", started.elapsed());
            let (objects, memory_kib) = first.get_or_insert_with(|| seen.clone());
            assert_eq!(seen.0, *objects, "objects of the kernel");
            let growth_kib = seen.1.saturating_sub(*memory_kib);
            assert!(growth_kib <= GROWTH_KIB_MAX, "the process grew by {growth_kib} KiB");
        }
    }
    Ok(())
}

/// Connects and makes a call; gives how many attempts failed before.
async fn visit(authority: &str, client: &Rdma) -> Result<usize, Failure> {
    for failed in 0..=FAILED_MAX {
        match connect(authority, client).await {
            Ok(channel) => {
                within("a call", echo(&ProbeStub::new(channel), 1, 64)).await?;
                return Ok(failed);
            }
            Err(error) => println!("an attempt failed: {error}"),
        }
    }
    Ok(FAILED_MAX + 1)
}
