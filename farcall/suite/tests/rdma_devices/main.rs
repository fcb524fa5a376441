//! Devices that change under their connections: ports that go down, devices that are taken away
//! and come back, and processes that leave without a word. And that nothing stays behind.
//!
//! Needs what `tests/rdma_path` needs, nobody else on the devices, and the right to change them.
//! Real network cards are left alone.

#[path = "../cable/mod.rs"]
mod cable;
#[allow(dead_code, reason = "it is shared with the tests of the path")]
#[path = "../rdma_path/child.rs"]
mod child;
mod churn;
#[allow(dead_code, reason = "it is shared with the tests of the path")]
#[path = "../rdma_path/device.rs"]
mod device;
mod ports;
mod removal;
mod resources;
#[allow(dead_code, reason = "it is shared with the tests of the path")]
#[path = "../rdma_path/rig.rs"]
mod rig;

use std::process::ExitCode;

use farcall_suite::Failure;
use libtest_mimic::{Arguments, Failed, Trial};
use rig::Rig;

/// A test: what it shows, and how.
type Test = (&'static str, fn(&Rig) -> Result<(), Failure>);

const TESTS: &[Test] = &[
    ("a_port_that_goes_down_ends_its_connections", ports::goes_down),
    ("a_device_removed_under_a_client_comes_back", removal::under_a_client),
    ("a_device_removed_under_a_server_comes_back", removal::under_a_server),
    ("nothing_is_left_of_processes_that_end", resources::of_processes),
    ("nothing_is_left_of_a_thousand_connections", churn::thousand_connections),
];

fn main() -> ExitCode {
    if let Some(role) = child::role() {
        return child::run(&role);
    }
    if std::env::var("FARCALL_RDMA").as_deref() != Ok("required") {
        println!("skipped: no RDMA device (FARCALL_RDMA is not set to `required`)");
        return ExitCode::SUCCESS;
    }
    let rig = match Rig::find() {
        Ok(rig) => rig,
        Err(reason) => {
            println!("failed: {reason}");
            return ExitCode::FAILURE;
        }
    };
    let trial = |&(name, test): &Test| {
        let rig = rig.clone();
        Trial::test(name, move || test(&rig).map_err(Failed::from))
    };
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    libtest_mimic::run(&arguments, TESTS.iter().map(trial).collect()).exit_code()
}
