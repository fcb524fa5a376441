//! The RDMA ports of this machine.

use std::env;
use std::net::IpAddr;

use rpc_transport_rdma::device::{PortQuery, find_port};
use rpc_transport_rdma::verbs::{Ibverbs, Port};

use crate::rig::ADDRESSES;

/// The two addresses of this machine's devices. Those of a machine with one are the same.
pub(crate) fn addresses() -> [IpAddr; 2] {
    let text = env::var("FARCALL_RDMA_ADDRS").unwrap_or_else(|_| ADDRESSES.join(","));
    let (first, second) = text.split_once(',').unwrap_or((&text, &text));
    [first, second].map(|text| text.trim().parse().expect("an IP address"))
}

/// The ports of both addresses, or a line that says that this machine has none.
pub(crate) fn ports() -> Option<[Port; 2]> {
    let provider = Ibverbs::new();
    let find = |address| find_port(&provider, PortQuery { address, device: None });
    match addresses().map(find) {
        [Ok(first), Ok(second)] => Some([first, second]),
        [Err(error), _] | [_, Err(error)] => {
            let is_required = env::var("FARCALL_RDMA").is_ok_and(|value| value == "required");
            assert!(!is_required, "FARCALL_RDMA is required: {error} ({error:?})");
            println!("skipped: no RDMA device ({error})");
            None
        }
    }
}
