//! A short soak over what every machine has. It does not judge memory, which is not at its height
//! yet after so few calls; the program `soak` does.

use std::time::Duration;

use farcall_rig::soak::{Ended, Plan, soak};
use farcall_suite::{Failure, Harness, Path};

const PLAN: Plan = Plan { calls: 5_000, in_flight: 256, seed: 7 };

async fn short(path: Path) -> Result<(), Failure> {
    let report = soak(&Harness::new(path, Duration::from_secs(60)), PLAN).await?;
    println!("{}", report.tally);
    for how in [Ended::Answered, Ended::Cancelled, Ended::TimedOut] {
        assert!(report.tally.ended(how) > 0, "no call is {how:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_call_ends_and_nothing_is_left_over_inproc() -> Result<(), Failure> {
    short(Path::Inproc).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_call_ends_and_nothing_is_left_over_tcp() -> Result<(), Failure> {
    short(Path::Tcp).await
}
