//! The table of RDMA devices.

use rpc_core::InvalidSetting;

use super::checks::{any, period, some, timeout};
use super::invalid::set;
use super::places::Places;
use super::table::table;
use super::value::{Choice, KeyScope, Period, Size, Size32};
use crate::{ConnectOptions, PortChoice, Rdma, RdmaConfig};

table! {
    /// RDMA devices, which all servers and targets share.
    RdmaTable {
        /// The devices or ports that may be used, as "mlx5_0" or "mlx5_1:2"; all if none is named.
        devices: Vec<String> = "[]", AtStart, any;
        /// The port that serves a connection: the one with its local "address", or the "nearest".
        port_choice: Choice = "\"address\"", AtStart, any;
        /// The index in a port's GID table. By default the first entry that serves.
        gid_index: u8 = "3", AtStart, any;
        /// The reach of the keys that peers get: "window", "region", or "auto".
        rkey_scope: KeyScope = "\"auto\"", AtStart, any;
        /// Tasks and completion queues for each device.
        lanes: u16 = "1", AtStart, |it| some(*it);
        /// Receive slots that all connections of a lane share.
        receive_slots: u16 = "1024", AtStart, |it| some(*it);
        /// The length of a slot; a longer frame is read by RDMA READ.
        slot_len: Size32 = "4352", AtStart, |it| some(it.0);
        /// Send slots that all connections of a lane share.
        send_slots: u32 = "256", AtStart, |it| some(*it);
        /// Messages that one connection may have on their way here.
        max_credits: u32 = "32", AtStart, |it| RdmaConfig::default().with_max_credits(*it).check();
        /// Requests in flight on one queue pair.
        send_depth: u32 = "96", AtStart, |it| some(*it);
        /// Connections of one lane.
        max_connections: u32 = "256", AtStart, |it| some(*it);
        /// Registered memory for large frames that are sent.
        max_source_bytes: Size = "\"512 MiB\"", AtStart, |it| some(it.0);
        /// Registered memory for large frames that are received.
        max_sink_bytes: Size = "\"512 MiB\"", AtStart, |it| some(it.0);
        /// The longest READ.
        max_read_len: Size32 = "\"512 KiB\"", AtStart, |it| some(it.0);
        /// READs outstanding on one connection.
        max_reads: u8 = "16", AtStart, |it| some(*it);
        /// Queue pairs of a connection that carry READs alone.
        read_queue_pairs: u8 = "2", AtStart,
            |it| RdmaConfig::default().with_read_queue_pairs(*it).check();
        /// Use devices whose READs may complete short: Soft-RoCE devices on
        /// kernels other than 6.1.
        allow_untrusted_reads: bool = "false", AtStart, any;
        /// Bytes of READs outstanding on all connections of a device.
        max_read_bytes: Size32 = "\"8 MiB\"", AtStart, |it| some(it.0);
        /// The longest wait of a large frame for memory.
        memory_timeout: Period = "\"30s\"", AtStart, |it| period(it.0);
        /// The time that the program may hold a large frame before a warning in the log.
        lease_warn_after: Period = "\"60s\"", AtStart, |it| timeout(it.0);
        /// The longest time of a READ.
        read_timeout: Period = "\"10s\"", AtStart, |it| timeout(it.0);
        /// The longest time that a peer may keep an offered frame, or grant no credit.
        release_timeout: Period = "\"60s\"", AtStart, |it| timeout(it.0);
        /// The longest time that a peer may keep a large frame whose call was cancelled.
        cancel_timeout: Period = "\"5s\"", AtStart, |it| timeout(it.0);
        /// The longest time that a closing connection may take to finish its work.
        close_timeout: Period = "\"5s\"", AtStart, |it| period(it.0);
        /// The time to poll after the last completion before sleeping.
        spin: Period = "\"20us\"", AtStart, any;
    } tables {
        connect: RdmaConnectTable = "connect", AtStart;
    }
}

table! {
    /// What queue pairs are connected with, as verbs numbers it.
    RdmaConnectTable {
        /// The traffic class of RoCE's packets: the DSCP in its upper six bits, ECN in the lower
        /// two.
        traffic_class: u8 = "0", AtStart, any;
        /// The time for an acknowledgement: 4.096 us, doubled so many times.
        timeout: u8 = "14", AtStart, |it| checked(|connect| connect.timeout = *it);
        /// Retries after a missing acknowledgement.
        retry_count: u8 = "6", AtStart, |it| checked(|connect| connect.retry_count = *it);
        /// Retries when the peer has no receive posted; 7 is for ever.
        rnr_retry: u8 = "7", AtStart, |it| checked(|connect| connect.rnr_retry = *it);
        /// How long a sender waits for a receive: 12 is 0.64 ms.
        rnr_timer: u8 = "12", AtStart, |it| checked(|connect| connect.rnr_timer = *it);
    } tables {}
}

/// Checks one option of a connection.
fn checked(set: impl FnOnce(&mut ConnectOptions)) -> Result<(), InvalidSetting> {
    let mut rdma = RdmaConfig::default();
    set(&mut rdma.connect);
    rdma.check()
}

impl RdmaTable {
    /// Returns the values that do not fit together.
    pub(super) fn faults(&self) -> Vec<InvalidSetting> {
        self.config().faults()
    }

    /// Makes the handle to the devices that the table describes.
    pub(super) fn handle(&self, _: &Places) -> Rdma {
        Rdma::new(self.config())
    }

    fn config(&self) -> RdmaConfig {
        let choice = self.port_choice.map(|it| match it.0 {
            "nearest" => PortChoice::Nearest,
            _ => PortChoice::Address,
        });
        let rdma = RdmaConfig::default();
        set! { rdma,
            self.devices.clone() => with_devices;
            choice => with_port_choice;
            self.gid_index.map(Some) => with_gid_index;
            self.rkey_scope.and_then(|it| it.0.parse().ok()) => with_rkey_scope;
            self.lanes => with_lanes;
            self.receive_slots => with_receive_slots;
            self.slot_len.map(|it| it.0) => with_slot_len;
            self.send_slots => with_send_slots;
            self.max_credits => with_max_credits;
            self.send_depth => with_send_depth;
            self.max_connections => with_max_connections;
            self.max_source_bytes.map(|it| it.0) => with_max_source_bytes;
            self.max_sink_bytes.map(|it| it.0) => with_max_sink_bytes;
            self.max_read_len.map(|it| it.0) => with_max_read_len;
            self.max_reads => with_max_reads;
            self.read_queue_pairs => with_read_queue_pairs;
            self.allow_untrusted_reads => with_allow_untrusted_reads;
            self.max_read_bytes.map(|it| it.0) => with_max_read_bytes;
            self.lease_warn_after.map(|it| it.0) => with_lease_warn_after;
            self.memory_timeout.map(|it| it.0) => with_memory_timeout;
            self.read_timeout.map(|it| it.0) => with_read_timeout;
            self.release_timeout.map(|it| it.0) => with_release_timeout;
            self.cancel_timeout.map(|it| it.0) => with_cancel_timeout;
            self.close_timeout.map(|it| it.0) => with_close_timeout;
            self.spin.map(|it| it.0) => with_spin;
        }
        rdma.with_connect(self.connect.options())
    }
}

impl RdmaConnectTable {
    fn options(&self) -> ConnectOptions {
        let connect = ConnectOptions::default();
        set! { connect,
            self.traffic_class => with_traffic_class;
            self.timeout => with_timeout;
            self.retry_count => with_retry_count;
            self.rnr_retry => with_rnr_retry;
            self.rnr_timer => with_rnr_timer;
        }
        connect
    }
}
