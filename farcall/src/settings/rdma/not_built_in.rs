//! The table of RDMA devices in a build without RDMA, which ignores it.
//!
//! One file can serve a laptop and a server: the program on the laptop loads the table that only
//! the server's devices need.

use rpc_core::InvalidSetting;
use serde_core::de::{Deserialize, Deserializer, IgnoredAny};

use super::places::Places;
use super::table::{Reload, Table};
use crate::rdma::{NOT_BUILT_IN, Rdma};

/// The table of RDMA devices, of which nothing is kept but its presence.
#[derive(Debug, Clone, Default)]
pub(super) struct RdmaTable {
    is_present: bool,
}

impl RdmaTable {
    /// Accepts everything: the values are for another build to check.
    pub(super) fn faults(&self) -> Vec<InvalidSetting> {
        Vec::new()
    }

    /// Makes the handle that has no devices, and logs that a table is ignored.
    pub(super) fn handle(&self, places: &Places) -> Rdma {
        if self.is_present {
            let (file, reason) = (places.origin(), NOT_BUILT_IN);
            tracing::warn!(
                target: "farcall::settings", file, reason, "the table rdma is ignored"
            );
        }
        Rdma::default()
    }
}

impl<'de> Deserialize<'de> for RdmaTable {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_| Self { is_present: true })
    }
}

impl Table for RdmaTable {
    fn or(self, defaults: &Self) -> Self {
        Self { is_present: self.is_present || defaults.is_present }
    }

    fn describe(_: &str, _: Reload, _: &mut String) {}

    fn each_change(
        &self,
        _: &Self,
        _: Reload,
        _: &mut Vec<String>,
        _: &mut dyn FnMut(&[String], Reload),
    ) {
    }

    fn each_key(&self, _: &mut Vec<String>, _: &mut dyn FnMut(&[String])) {}
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
