//! Firmware that does not answer a handshake: the next ones are declined instead of waiting.

use std::thread::{self, JoinHandle};

use tokio::runtime::Handle;

use super::*;
use crate::sim::{SimDevice, SimNetwork};

/// Age of a command after which its device counts as stuck.
const BULK_MAX: Duration = Duration::from_secs(1);

const HERE: [u8; 4] = [10, 0, 0, 1];

struct Rig {
    device: SimDevice,
    upgrade: RdmaUpgrade,
}

impl Rig {
    fn new() -> Self {
        let network = SimNetwork::new(5);
        network.panic_on_violation();
        let device = network.add_device("sim", &[HERE.into()]);
        let upgrade =
            RdmaUpgrade::with_provider(Box::new(network.provider()), RdmaConfig::default());
        Self { device, upgrade }
    }

    fn addresses() -> Addresses {
        let at = Some((HERE, 7000).into());
        Addresses { local: at, peer: at, ..Addresses::default() }
    }

    fn prepare(&self) -> Result<LocalEnd, String> {
        self.upgrade.prepare(&Self::addresses(), None).map_err(|declined| declined.reason)
    }

    /// The refusals of an offer, of an accepted one, and of a check.
    fn refusals(&self, offer: &[u8]) -> [Option<String>; 3] {
        let reason = |declined: Declined| declined.reason;
        [
            self.upgrade.offer(&Self::addresses()).err().map(reason),
            self.upgrade.accept(&Self::addresses(), offer).err().map(reason),
            self.upgrade.check(Some(HERE.into())).err().map(reason),
        ]
    }
}

/// Prepares an end on a thread, which waits for the firmware.
fn prepare_elsewhere(rig: &Arc<Rig>) -> JoinHandle<Result<(), String>> {
    let (rig, runtime) = (Arc::clone(rig), Handle::current());
    thread::spawn(move || {
        let _inside = runtime.enter();
        rig.prepare().map(drop)
    })
}

#[tokio::test(start_paused = true)]
async fn a_handshake_without_an_answer_declines_the_next_ones() {
    let rig = Arc::new(Rig::new());
    // It keeps the device open. What the next search finds is known from then on.
    let first = rig.prepare().unwrap();
    let offer = first.conn_params().encode();
    let _second = rig.prepare().unwrap();
    let hold = rig.device.hang_firmware();
    let waiting = prepare_elsewhere(&rig);
    hold.wait_for(1);
    tokio::time::advance(BULK_MAX).await;
    for refusal in rig.refusals(&offer) {
        let expected = "the firmware of sim has not answered a command for 1s (CreateQueuePair)";
        assert!(refusal.as_ref().is_some_and(|text| text.contains(expected)), "{refusal:?}");
    }
    drop(hold);
    waiting.join().unwrap().unwrap();
    assert_eq!(rig.refusals(&offer), [None, None, None]);
}

#[tokio::test(start_paused = true)]
async fn a_search_without_an_answer_keeps_no_other_waiting() {
    let rig = Arc::new(Rig::new());
    let hold = rig.device.hang_firmware();
    let waiting = prepare_elsewhere(&rig);
    hold.wait_for(1);
    let refused = rig.prepare().err().unwrap();
    assert!(refused.contains("a search for RDMA devices has not ended within 2s"), "{refused}");
    drop(hold);
    waiting.join().unwrap().unwrap();
    rig.prepare().unwrap();
}
