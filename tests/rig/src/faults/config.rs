//! The settings of clients and servers in the matrix, on one machine and on two.

use std::time::Duration;

use farcall::{Keepalive, Rdma, RdmaConfig};

use farcall_suite::SharedSettings;

/// The address of the first of two machines, where the server is.
pub(super) const FAR_SERVER: &str = "10.0.2.1";

/// Keepalive of both sides. It finds a dead peer within 8 s, which is long enough that a few lost
/// packets in a row, retransmitted at growing intervals, do not pass for one.
const KEEPALIVE: Keepalive = Keepalive::new(Duration::from_secs(2), Duration::from_secs(4));

/// The bound on a handshake, so that a silent peer does not make attempts to connect the longest
/// calls.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(6);

/// Acknowledgement timeout of a queue pair between two emulated machines, as verbs number it: 4.096
/// us x 2^this, 0.5 s. Four processors emulated on two or fewer answer later than the default's 67
/// ms.
const PATIENT_TIMEOUT: u8 = 17;

/// The longest delay between two attempts to connect: a row measures how soon calls succeed again
/// after its fault was lifted, to which the default of two minutes would add half of the fault.
const CONNECT_DELAY_MAX: Duration = Duration::from_secs(1);

/// The rules of both sides.
pub(super) fn settings() -> SharedSettings {
    SharedSettings::new(|settings| {
        settings.keepalive = KEEPALIVE;
        settings.handshake_timeout = HANDSHAKE_TIMEOUT;
        settings.connect_backoff.max_delay = CONNECT_DELAY_MAX;
    })
}

/// Devices for a client of the server at an address, or for the server.
pub(super) fn rdma(authority: &str) -> Rdma {
    // Calls check every byte themselves, on whatever kernel this runs.
    let mut rdma = RdmaConfig::default().with_allow_untrusted_reads(true);
    if is_far(authority) {
        rdma.connect.timeout = PATIENT_TIMEOUT;
    }
    Rdma::new(rdma)
}

/// Returns true if a server at that address is on another machine than its clients.
fn is_far(authority: &str) -> bool {
    authority.starts_with(&format!("{FAR_SERVER}:"))
}
