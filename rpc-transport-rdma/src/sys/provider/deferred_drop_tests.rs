//! Objects that are dropped by a lane, on a thread without a runtime, and over hung firmware.

use std::sync::Arc;

use tokio::runtime::{Builder, Handle};

use super::*;
use crate::RdmaConfig;
use crate::memory::{Access, Region};
use crate::sim::lab::census;
use crate::sim::{SimDevice, SimNetwork};
use crate::sys::provider::commands::on_lane;
use crate::worker::Worker;

fn device() -> (SimNetwork, SimDevice, Device) {
    let network = SimNetwork::new(0);
    let simulated = network.add_device("sim", &[[10, 0, 0, 1].into()]);
    let device = Device::open(&network.provider(), "sim").expect("it opens");
    (network, simulated, device)
}

/// The device's only lane has ended with its task, which holds the last handle to it.
#[tokio::test(start_paused = true)]
async fn a_lane_that_ends_over_hung_firmware_blocks_no_thread() {
    let (network, simulated, device) = device();
    let worker = Worker::start(&device, &RdmaConfig::default()).unwrap();
    let hold = simulated.hang_firmware();
    let stop = worker.shared.stop.clone();
    let last = Arc::downgrade(&worker.shared);
    drop((worker, device));
    while last.strong_count() > 0 {
        tokio::task::yield_now().await;
    }
    assert!(stop.is_cancelled());
    hold.wait_for(1);
    let left = census(&network);
    assert!((left.regions, left.completion_queues) == (3, 1), "{left:?}");
    drop(hold);
    while census(&network).regions > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(network.violations(), []);
}

#[test]
fn an_object_goes_with_the_runtime_of_the_thread_that_drops_it() {
    let (network, _, device) = device();
    let region = || Region::new(&device, 4096, Access::Source).unwrap();
    // No runtime, one that takes tasks, and one that is over.
    drop(region());
    assert_eq!(census(&network).regions, 0);
    for is_over in [false, true] {
        let runtime = Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let handle: Handle = runtime.handle().clone();
        let region = region();
        let runtime = Some(runtime).filter(|_| !is_over);
        {
            let _inside = handle.enter();
            let _on_lane = on_lane();
            drop(region);
        }
        // Carries out what it has.
        drop(runtime);
        assert_eq!(census(&network).regions, 0, "{is_over}");
    }
    assert_eq!(network.violations(), []);
}
