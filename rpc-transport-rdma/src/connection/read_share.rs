//! A connection's share of the READ bytes of a device.

use crate::fair::semaphore::{FairPermit, PeerShare};
use crate::proto::rndv::throttle::ReadShare;

impl ReadShare for PeerShare {
    type Permit = FairPermit;

    fn try_take(&self, len: u64) -> Option<FairPermit> {
        self.try_take(len)
    }

    fn split(permit: &mut FairPermit, len: u64) -> Option<FairPermit> {
        permit.split(len)
    }
}
