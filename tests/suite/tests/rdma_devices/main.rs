//! Devices that change under their connections: ports that go down, devices that are taken away
//! and come back, and processes that leave without a word. And that nothing stays behind.
//!
//! Needs what `tests/rdma_path` needs, no other user of the devices, and the right to change them.
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
#[path = "../rdma_path/trials.rs"]
mod trials;

use std::process::ExitCode;

use trials::Test;

const TESTS: &[Test] = &[
    ("a_port_that_goes_down_ends_its_connections", ports::goes_down),
    ("a_device_removed_under_a_client_comes_back", removal::under_a_client),
    ("a_device_removed_under_a_server_comes_back", removal::under_a_server),
    ("nothing_is_left_of_processes_that_end", resources::ended_processes),
    ("nothing_is_left_of_a_thousand_connections", churn::thousand_connections),
];

fn main() -> ExitCode {
    if let Some(role) = child::role() {
        return child::run(&role);
    }
    trials::run(TESTS, |_| None)
}
