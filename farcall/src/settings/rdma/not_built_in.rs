//! The table of RDMA devices in a build without RDMA, which ignores it.
//!
//! One file can serve a laptop and a server: the program on the laptop loads the table that only
//! the server's devices need.

use rpc_core::InvalidSetting;
use rpc_core::settings::{Description, Effect, Slot, Slots, Table};

use super::places::Places;
use crate::rdma::{NOT_BUILT_IN, Rdma};

/// The table of RDMA devices, of which nothing is kept but its presence.
#[derive(Debug, Clone, Default)]
pub(super) struct RdmaTable {
    is_present: bool,
}

/// Accepts everything: the values are for another build to check.
pub(super) fn faults(_: &RdmaTable) -> Vec<InvalidSetting> {
    Vec::new()
}

/// Makes the handle that has no devices, and logs that a table is ignored.
pub(super) fn handle(table: &RdmaTable, places: &Places) -> Rdma {
    if table.is_present {
        let (file, reason) = (places.origin(), NOT_BUILT_IN);
        tracing::warn!(
            target: "farcall::settings", file, reason, "the table rdma is ignored"
        );
    }
    Rdma::default()
}

impl Slots for RdmaTable {
    fn names(&self) -> Vec<&'static str> {
        Vec::new()
    }

    fn slot(&mut self, _: &str) -> Option<Slot<'_>> {
        self.is_present = true;
        Some(Slot::Ignored)
    }
}

impl Table for RdmaTable {
    fn or(self, defaults: &Self) -> Self {
        Self { is_present: self.is_present || defaults.is_present }
    }

    fn describe() -> Description {
        Description { docs: &[], keys: Vec::new(), in_code: Vec::new(), groups: Vec::new() }
    }

    fn each_change(
        &self,
        _: &Self,
        _: Effect,
        _: &mut Vec<String>,
        _: &mut dyn FnMut(&[String], Effect),
    ) {
    }

    fn each_key(&self, _: &mut Vec<String>, _: &mut dyn FnMut(&[String], Option<String>)) {}

    fn written(&self, _: &str) -> Option<String> {
        None
    }
}

#[cfg(test)]
mod tests {
    use crate::Settings;

    #[test]
    fn rdma_table_loads_unchecked_without_rdma() {
        let text = "[targets.here]\naddress = \"auto://127.0.0.1:1\"\n[rdma]\nlanes = 0\nnew = 1";
        Settings::parse("farcall.toml", text).unwrap().channel("here").unwrap();
    }
}
