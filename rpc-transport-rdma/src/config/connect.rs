//! Options that queue pairs are connected with.

use rpc_core::InvalidSetting;
use rpc_core::settings::define_settings;

define_settings! {
    /// Parameters of queue pairs, as verbs numbers them.
    ///
    /// The defaults let a dead peer be noticed within about half a second: the acknowledgement
    /// timeout is 4.096 us x 2^14 = 67 ms, tried seven times (devices may stretch it up to
    /// fourfold).
    ConnectOptions, ConnectOptionsOverlay, "rdma.connect", [], derive(Copy, PartialEq, Eq) {
        /// The traffic class of RoCE's packets: the DSCP in its upper six bits, ECN in the lower
        /// two. By default the port's own, or that of the client.
        ///
        /// Switches choose a queue by the DSCP. The default is the class that the driver has for
        /// the port (`/sys/class/infiniband/*/tc/*/traffic_class`), else 106 on hardware, which is
        /// DSCP 26 with ECN, and 0 on Soft-RoCE. A server without a class of its own uses its
        /// client's, so that both ways have the same. Packets without a global header, as within an
        /// InfiniBand subnet, carry none.
        traffic_class, with_traffic_class: Option<u8> as Optional = None => "106", Start, .., "";
        /// The service level of packets.
        ///
        /// 0 to 15; 0 by default. InfiniBand chooses a virtual lane by it. On Ethernet it is the
        /// priority of the VLAN tag, for switches that trust that and not the DSCP.
        service_level, with_service_level: u8 as Plain = 0, Start, ..=15, ", which are four bits";
        /// The time for an acknowledgement: 4.096 us, doubled so many times.
        ///
        /// 1 to 31; 14 by default.
        timeout, with_timeout: u8 as Plain = 14, Start, 1..=31, "0 waits forever";
        /// Retries after a missing acknowledgement.
        ///
        /// 1 to 6; 6 by default, so that loss of a few per cent does not end a connection. 7 is
        /// refused: on Soft-RoCE it means for ever, and a dead peer would never be noticed.
        retry_count, with_retry_count: u8 as Plain = 6, Start, 1..=6, "7 may retry forever";
        /// Retries when the peer has no receive posted; 7 is for ever.
        ///
        /// 0 to 7; 7 by default, because one greedy client must not end the others' connections on
        /// a shared queue.
        rnr_retry, with_rnr_retry: u8 as Plain = 7, CodeOnly,
            0..=7, ", which is what verbs have";
        /// Wait of a sender for a receive: 12 is 0.64 ms.
        ///
        /// 1 to 31, as verbs numbers it; 12 by default. 0 is refused: it means 655 ms.
        rnr_timer, with_rnr_timer: u8 as Plain = 12, CodeOnly, 1..=31, "0 is the longest";
    }
}

impl ConnectOptions {
    /// Checks that each option is in its range.
    ///
    /// # Errors
    ///
    /// Returns the first that is not.
    pub(crate) fn check(&self) -> Result<(), InvalidSetting> {
        self.check_each()
    }
}
