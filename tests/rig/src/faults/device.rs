//! The RDMA devices, and what is left on them.

use std::time::Duration;

use serde_json::Value;

use crate::RigError;
use crate::conductor::command::{LIMIT, Started, run};
use crate::conductor::wait::until;

/// Maximum time until everything of a process is freed. A lane waits for nothing longer than the
/// minute of `rdma.release_timeout`.
const FREE_LIMIT: Duration = Duration::from_secs(90);

/// The objects on all devices, by kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Resources(Vec<(&'static str, u64)>);

impl Resources {
    /// Reads the kernel's current counts.
    pub(crate) fn read() -> Result<Self, RigError> {
        let devices: Vec<Value> = json(&["rdma", "-j", "resource", "show"])?;
        let sum = |kind: &'static str| {
            (kind, devices.iter().filter_map(|device| device[kind].as_u64()).sum())
        };
        Ok(Self(["pd", "cq", "qp", "mr", "srq", "ctx"].into_iter().map(sum).collect()))
    }

    /// Returns the number of each kind.
    pub(crate) fn into_counts(self) -> Vec<(&'static str, u64)> {
        self.0
    }

    /// Returns the number of a kind.
    pub(super) fn of(&self, kind: &str) -> u64 {
        self.0.iter().find(|(name, _)| *name == kind).map_or(0, |(_, count)| *count)
    }

    /// The same but for a kind.
    pub(super) fn without(mut self, kind: &str) -> Self {
        self.0.retain(|(name, _)| *name != kind);
        self
    }

    /// Describes the difference, if there are others later.
    pub(super) fn differs_from(&self, later: &Self) -> Option<String> {
        (self != later).then(|| format!("on the devices: {later} instead of {self}"))
    }

    /// Waits until there is no more than at the moment of `self`.
    pub(super) fn until_back(&self) -> Result<Duration, RigError> {
        let mut now = Self::read()?;
        let waited = until("the freeing of everything on the RDMA devices", FREE_LIMIT, || {
            now = Self::read()?;
            Ok(now == *self)
        });
        waited.map_err(|error| match error {
            RigError::Late { seconds, .. } => {
                let what = format!("the freeing of RDMA resources: {now} instead of {self}");
                RigError::Late { what, seconds }
            }
            other => other,
        })
    }
}

impl std::fmt::Display for Resources {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let counts: Vec<_> = self.0.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
        f.write_str(&counts.join(" "))
    }
}

/// The numbers of all queue pairs, device by device: one that was made anew has another.
pub(super) fn queue_pairs() -> Result<Vec<(String, u64)>, RigError> {
    let shown: Vec<Value> = json(&["rdma", "-j", "resource", "show", "qp"])?;
    let pair = |it: &Value| Some((it["ifname"].as_str()?.to_owned(), it["lqpn"].as_u64()?));
    let mut pairs: Vec<_> = shown.iter().filter_map(pair).collect();
    pairs.sort();
    Ok(pairs)
}

fn json(arguments: &[&str]) -> Result<Vec<Value>, RigError> {
    let shown = run(arguments)?;
    serde_json::from_str(&shown)
        .map_err(|_| RigError::Unexpected { role: "program rdma", line: shown })
}

/// A device that is made in software on a network interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Device {
    name: String,
    interface: String,
}

impl Device {
    /// The device on an interface.
    pub(super) fn on(interface: &str) -> Result<Self, RigError> {
        let links: Vec<Value> = json(&["rdma", "-j", "link", "show"])?;
        let link = links.iter().find(|link| link["netdev"] == interface);
        let name = link.and_then(|link| link["ifname"].as_str()).map(str::to_owned);
        let name = name.ok_or_else(|| RigError::Missing(format!("RDMA device on {interface}")))?;
        Ok(Self { name, interface: interface.to_owned() })
    }

    /// Begins to remove it: it is out of the list of devices at once, and gone with its last user.
    pub(super) fn remove(&self) -> Result<Started, RigError> {
        let removal = Started::new(&["rdma", "link", "delete", &self.name])?;
        until("the end of the device's place in the list", LIMIT, || {
            let links: Vec<Value> = json(&["rdma", "-j", "link", "show"])?;
            Ok(links.iter().all(|link| link["ifname"] != *self.name))
        })?;
        Ok(removal)
    }

    pub(super) fn add(&self) -> Result<(), RigError> {
        let text = ["rdma", "link", "add", &self.name, "type", "rxe", "netdev", &self.interface];
        run(&text).map(drop)
    }
}
