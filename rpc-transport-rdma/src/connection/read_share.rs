//! A connection's share of the READ bytes of a device. Apart from the other types of a connection
//! over verbs (`buffers`), since the mutants of the pure machines are built with it and without
//! verbs.

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
