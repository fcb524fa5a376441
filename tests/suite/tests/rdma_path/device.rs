//! The kernel's view of a device: its counters and the objects on it.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// An RDMA device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Device {
    pub(crate) name: String,
    counters: PathBuf,
}

/// A device's counters at a moment, or what they moved by between two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counts {
    /// SENDs that were completed.
    pub(crate) sends: u64,
    /// Messages that were received.
    pub(crate) receives: u64,
    /// Packets of any kind.
    pub(crate) packets_sent: u64,
    /// Packets of any kind.
    pub(crate) packets_received: u64,
    /// Times that a message came and no receive was posted. Where the device does not count that,
    /// there are none.
    pub(crate) receivers_not_ready: u64,
}

impl Device {
    /// The device one of whose GIDs is that address.
    ///
    /// # Errors
    ///
    /// In words, when there is none.
    pub(crate) fn of(address: IpAddr) -> Result<Self, String> {
        let gid = gid_text(address);
        let devices = fs::read_dir("/sys/class/infiniband").into_iter().flatten().flatten();
        let mut ports = devices.map(|device| device.path().join("ports/1"));
        let port = ports
            .find(|port| has_gid(&port.join("gids"), &gid))
            .ok_or_else(|| format!("no RDMA device has the address {address}"))?;
        let name = port.ancestors().nth(2).and_then(Path::file_name).unwrap_or_default();
        let name = name.to_string_lossy().into_owned();
        Ok(Self { name, counters: port.join("hw_counters") })
    }

    /// Returns true if the device has the counters that the tests read.
    pub(crate) fn is_countable(&self) -> bool {
        let names = ["rdma_sends", "rdma_recvs", "sent_pkts", "rcvd_pkts"];
        names.iter().all(|name| self.counters.join(name).exists())
    }

    /// The counters now.
    pub(crate) fn counts(&self) -> Counts {
        Counts {
            sends: self.counter("rdma_sends"),
            receives: self.counter("rdma_recvs"),
            packets_sent: self.counter("sent_pkts"),
            packets_received: self.counter("rcvd_pkts"),
            receivers_not_ready: self.counter_if_any("send_rnr_err"),
        }
    }

    fn counter_if_any(&self, name: &str) -> u64 {
        if self.counters.join(name).exists() { self.counter(name) } else { 0 }
    }

    fn counter(&self, name: &str) -> u64 {
        let text = fs::read_to_string(self.counters.join(name)).expect("the counter was there");
        text.trim().parse().expect("a counter is a number")
    }

    /// Returns the number of reliable connections. Queue pairs that are kept for the next ones are
    /// in INIT.
    pub(crate) fn queue_pair_count(&self) -> usize {
        let is_connected = |object: &&Value| object["type"] == "RC" && object["state"] != "INIT";
        self.objects("qp").iter().filter(is_connected).count()
    }

    /// Returns the number of shared receive queues.
    pub(crate) fn shared_receive_queue_count(&self) -> usize {
        self.objects("srq").len()
    }

    fn objects(&self, kind: &str) -> Vec<Value> {
        let shown = Command::new("rdma").args(["-j", "resource", "show", kind]).output();
        let shown = shown.expect("`rdma` of iproute2 is installed");
        assert!(shown.status.success(), "`rdma resource show {kind}`: {shown:?}");
        let objects: Vec<Value> = serde_json::from_slice(&shown.stdout).expect("it prints JSON");
        objects.into_iter().filter(|object| object["ifname"] == *self.name).collect()
    }
}

impl std::ops::Sub for Counts {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            sends: self.sends - before.sends,
            receives: self.receives - before.receives,
            packets_sent: self.packets_sent - before.packets_sent,
            packets_received: self.packets_received - before.packets_received,
            receivers_not_ready: self.receivers_not_ready - before.receivers_not_ready,
        }
    }
}

impl std::ops::Add for Counts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            sends: self.sends + other.sends,
            receives: self.receives + other.receives,
            packets_sent: self.packets_sent + other.packets_sent,
            packets_received: self.packets_received + other.packets_received,
            receivers_not_ready: self.receivers_not_ready + other.receivers_not_ready,
        }
    }
}

/// An address as the kernel prints it in a table of GIDs.
fn gid_text(address: IpAddr) -> String {
    let address = match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    address.segments().map(|segment| format!("{segment:04x}")).join(":")
}

fn has_gid(table: &Path, gid: &str) -> bool {
    let entries = fs::read_dir(table).into_iter().flatten().flatten();
    // Reading an empty entry of a table is an error.
    let mut texts = entries.filter_map(|entry| fs::read_to_string(entry.path()).ok());
    texts.any(|text| text.trim() == gid)
}
