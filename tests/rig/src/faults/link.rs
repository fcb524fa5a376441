//! The cable between the two devices, or the one end of it that this machine has.

use std::net::IpAddr;

use crate::RigError;
use crate::conductor::command::run;

/// UDP by its number: its name stands in `/etc/protocols`, which a bare Debian does not have.
const UDP: &str = "17";

/// A network interface, and what leads to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Link {
    interface: String,
    /// The routes that are gone when it is down, and do not come back by themselves.
    routes: Vec<String>,
}

impl Link {
    /// The interface that has an address.
    pub(super) fn of(address: IpAddr) -> Result<Self, RigError> {
        let shown = run(&["ip", "-o", "address", "show"])?;
        let word = format!(" {address}/");
        let line = shown.lines().find(|line| line.contains(&word));
        let interface = line.and_then(|line| line.split_whitespace().nth(1));
        let interface =
            interface.ok_or_else(|| RigError::Missing(format!("interface with {address}")))?;
        let routes = run(&["ip", "-4", "route", "show", "table", "all", "dev", interface])?;
        let is_ours = |line: &&str| !line.starts_with("local") && !line.starts_with("broadcast");
        let routes = routes.lines().filter(is_ours).map(|line| line.trim().to_owned()).collect();
        Ok(Self { interface: interface.to_owned(), routes })
    }

    pub(super) fn interface(&self) -> &str {
        &self.interface
    }

    /// Takes it down. Where both ends of a cable are in one machine, the other end must not be
    /// found on another way meanwhile.
    pub(super) fn down(&self) -> Result<(), RigError> {
        self.detours("add")?;
        run(&["ip", "link", "set", &self.interface, "down"]).map(drop)
    }

    pub(super) fn up(&self) -> Result<(), RigError> {
        run(&["ip", "link", "set", &self.interface, "up"])?;
        for route in &self.routes {
            let pieces = route.split_whitespace().chain(["dev", &self.interface]);
            let pieces: Vec<&str> =
                ["ip", "-4", "route", "replace"].into_iter().chain(pieces).collect();
            run(&pieces)?;
        }
        self.detours("del")
    }

    /// Adds or deletes what stops packets in the tables of our routes when those are gone.
    fn detours(&self, verb: &str) -> Result<(), RigError> {
        for (target, table) in self.routes.iter().filter_map(|route| target_and_table(route)) {
            let stop = ["ip", "-4", "route", verb, "unreachable", target, "table", table];
            run(&stop.into_iter().chain(["metric", "4000"]).collect::<Vec<_>>())?;
        }
        Ok(())
    }

    /// Does to every packet that leaves by it what netem's arguments say.
    pub(super) fn emulate(&self, netem: &str) -> Result<(), RigError> {
        let pieces = ["tc", "qdisc", "replace", "dev", &self.interface, "root", "netem"];
        run(&pieces.into_iter().chain(netem.split(' ')).collect::<Vec<_>>()).map(drop)
    }

    pub(super) fn emulate_nothing(&self) -> Result<(), RigError> {
        run(&["tc", "qdisc", "del", "dev", &self.interface, "root"]).map(drop)
    }

    /// Throws away, without a word, what comes in for an RDMA device: UDP to RoCE's port.
    pub(super) fn drop_rdma(&self) -> Result<(), RigError> {
        self.rdma_rule("add")
    }

    pub(super) fn let_rdma_in(&self) -> Result<(), RigError> {
        self.rdma_rule("del")
    }

    fn rdma_rule(&self, verb: &str) -> Result<(), RigError> {
        let rule = ["pref", "0", "iif", &self.interface, "ipproto", UDP, "dport", "4791"];
        let text = ["ip", "rule", verb].into_iter().chain(rule).chain(["blackhole"]);
        run(&text.collect::<Vec<_>>()).map(drop)
    }
}

/// Of a route in a table of its own, where it leads and that table.
fn target_and_table(route: &str) -> Option<(&str, &str)> {
    let mut pieces = route.split_whitespace();
    let target = pieces.next()?;
    pieces.find(|word| *word == "table")?;
    Some((target, pieces.next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_routes_in_own_tables_need_a_rule() {
        let route = "10.0.1.1 table 101 scope link src 10.0.0.1";
        assert_eq!(target_and_table(route), Some(("10.0.1.1", "101")));
        assert_eq!(target_and_table("10.0.2.0/24 proto kernel scope link"), None);
    }
}
