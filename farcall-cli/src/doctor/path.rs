//! Judges why a connection has no path over RDMA, by the reason that farcall gives. Pure.

use super::finding::{Cause, Finding};

/// Texts of reasons, and the causes that they stand for. The first that fits counts.
const CAUSES: [(&str, Cause); 12] = [
    ("libibverbs.so.1 is not installed", Cause::Library),
    ("libibverbs.so.1", Cause::Library),
    ("lockable memory", Cause::Memlock),
    ("is said to be at", Cause::Nat),
    ("could not be proven", Cause::Udp4791),
    ("there is no RDMA device", Cause::DeviceNode),
    ("no RDMA device named", Cause::DeviceNode),
    ("but is not active", Cause::PortDown),
    ("no RDMA port is active", Cause::PortDown),
    ("no active RDMA port", Cause::NoGid),
    ("Soft-RoCE on Linux", Cause::ShortReads),
    ("number of READs", Cause::MaxRdAtomic),
];

fn cause(reason: &str) -> Option<Cause> {
    CAUSES.iter().find(|(text, _)| reason.contains(text)).map(|(_, cause)| *cause)
}

fn fault(name: &'static str, reason: &str) -> Finding {
    match cause(reason) {
        Some(cause) => Finding::fault(name, cause, reason),
        None => Finding::other_fault(name, reason),
    }
}

/// Judges a broken path of this host to itself.
pub(super) fn host_fault(reason: &str) -> Finding {
    let fault = fault("loopback", reason);
    match fault.cause {
        Some(Cause::Udp4791) => allow_udp(fault),
        _ => fault.fix("dmesg | tail -n 50   # and the lines above"),
    }
}

/// Adds the commands that let RoCE packets in.
fn allow_udp(finding: Finding) -> Finding {
    finding
        .fix("nft insert rule inet filter input udp dport 4791 accept   # on both hosts")
        .fix("iptables -I INPUT -p udp --dport 4791 -j ACCEPT   # without nftables")
}

/// Judges a failed connection to a peer. `server` is the peer's host.
pub(super) fn peer_fault(reason: &str, server: &str) -> Finding {
    let reason = reason.strip_prefix("rdma: ").unwrap_or(reason);
    if let Some(reason) = after(reason, "this host: ") {
        let fault = fault("offer", reason).on("this host");
        return fault.fix("farcall doctor   # here: the lines above name the cause");
    }
    if let Some(reason) = after(reason, "the server: ") {
        let fault = fault("bootstrap", reason).on("server");
        return fault.fix(format!("ssh {server} farcall doctor"));
    }
    if reason.contains("could not be proven") {
        let text = format!("TCP passes and UDP port 4791 does not: {reason}");
        return allow_udp(Finding::fault("proof", Cause::Udp4791, text).on("network"));
    }
    fault("bootstrap", reason).on("server").fix(format!("ssh {server} farcall doctor"))
}

/// Returns the text behind `mark`, at the start or in the middle of a reason.
fn after<'a>(reason: &'a str, mark: &str) -> Option<&'a str> {
    reason.split_once(mark).map(|(_, rest)| rest)
}

/// Judges a failed TLS handshake.
pub(super) fn tls_fault(reason: &str) -> Finding {
    let lower = reason.to_ascii_lowercase();
    let is_dated = ["expired", "notvalidyet", "not valid yet", "not yet valid", "becomes valid"];
    if is_dated.iter().any(|text| lower.contains(text)) {
        return Finding::fault("tls", Cause::Clock, reason)
            .on("clocks or certificate")
            .fix("timedatectl set-ntp true   # on both hosts; then renew the certificate");
    }
    Finding::other_fault("tls", reason).on("certificates").fix("farcall ping --ca FILE ..")
}

/// Judges a READ that does not end, while small messages pass.
pub(super) fn read_fault(reason: &str, server: &str) -> Finding {
    let text =
        format!("small messages pass and a READ does not, as with an MTU mismatch: {reason}");
    // A packet of 4,200 bytes, less the headers of IP and ICMP.
    let len = if server.contains(':') { 4152 } else { 4172 };
    Finding::fault("READ", Cause::Mtu, text)
        .on("network")
        .fix(format!("ping -M do -s {len} -c 3 {server}   # fails where a hop is too small"))
        .fix("ip link set INTERFACE mtu 4200   # on both hosts and all switches")
}
