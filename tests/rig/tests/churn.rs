//! A short run of connections that come and go. It is alone in its process, whose descriptors it
//! counts, and does not judge memory, which takes longer; the program `soak` does.

use std::time::Duration;

use farcall_rig::soak::{ChurnPlan, Ended, churn};
use farcall_suite::{Failure, Harness, Path};

const PLAN: ChurnPlan = ChurnPlan { length: Duration::from_secs(3), rounds: 3, seed: 7 };

/// Descriptors have to be back after each round, or the run itself fails.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_come_and_go_leave_nothing_over_tcp() -> Result<(), Failure> {
    let harness = Harness::new(Path::Tcp, Duration::from_secs(60));
    let seen = churn(&harness, PLAN, |_| ()).await?;
    println!("{} connections\n{}", seen.connections, seen.tally);
    assert_eq!(seen.failures, [""; 0]);
    assert!((1..=3).contains(&seen.looks.len()), "{:?}", seen.looks);
    assert!(seen.connections > seen.abandoned && seen.tally.ended(Ended::Answered) > 0);
    Ok(())
}
