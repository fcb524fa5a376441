//! A virtual cable between RDMA devices, which can be pulled.

use std::net::IpAddr;
use std::path::Path;
use std::process::Command;

/// The cable at the client's end. Dropped, it is mended.
pub(crate) struct Cable {
    pub(crate) interface: String,
    routes: Vec<String>,
}

impl Cable {
    /// Finds the interface that has an address, and what leads to it; `None` when it is that of a
    /// real network card, which is left alone.
    pub(crate) fn of(address: IpAddr) -> Option<Self> {
        let addresses = ip(&["-o", "-4", "address", "show"]);
        let word = format!(" {address}/");
        let line = addresses.lines().find(|line| line.contains(&word))?;
        let interface = line.split_whitespace().nth(1)?.to_owned();
        if Path::new("/sys/class/net").join(&interface).join("device").exists() {
            return None;
        }
        let routes = ip(&["-4", "route", "show", "table", "all", "dev", &interface]);
        let is_ours = |line: &&str| !line.starts_with("local") && !line.starts_with("broadcast");
        let routes = routes.lines().filter(is_ours).map(|line| line.trim().to_owned()).collect();
        Some(Self { interface, routes })
    }

    /// Pulls it.
    pub(crate) fn pull(&self) {
        ip(&["link", "set", &self.interface, "down"]);
    }

    /// Mends it.
    pub(crate) fn mend(&self) {
        ip(&["link", "set", &self.interface, "up"]);
        for route in &self.routes {
            let pieces = route.split_whitespace().chain(["dev", &self.interface]);
            let pieces: Vec<&str> = ["-4", "route", "replace"].into_iter().chain(pieces).collect();
            ip(&pieces);
        }
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        self.mend();
    }
}

fn ip(arguments: &[&str]) -> String {
    let output = Command::new("ip").args(arguments).output().expect("the program `ip`");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {}: {text}", arguments.join(" "));
    String::from_utf8_lossy(&output.stdout).into_owned()
}
