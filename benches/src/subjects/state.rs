//! The state of lanes, devices and paths over RDMA, as one line.
//!
//! `cargo xtask hardware` reads the numbers by the words before them.

use std::collections::BTreeMap;

use farcall::{ConnectionInfo, Rdma};

/// Describes the lanes and devices of `rdma`, and the paths of `connections`.
pub(super) fn describe(rdma: &Rdma, connections: &[ConnectionInfo]) -> String {
    let lanes = rdma.lanes().into_iter().map(|lane| {
        format!(
            "lane {}#{}: keys {}, connections {}, missing {} of {} slots, lost {}, reclaimed {}",
            lane.device,
            lane.number,
            lane.rkey_scope,
            lane.connection_count,
            lane.missing_slots,
            lane.receive_slots,
            lane.activity.slots_lost,
            lane.activity.slots_reclaimed,
        )
    });
    let devices = rdma.devices().into_iter().map(|device| {
        let events = device.events.iter().filter(|(_, count)| *count > 0);
        let events: Vec<_> = events.map(|(kind, count)| format!(", {kind:?} {count}")).collect();
        let pending = device.pending_commands;
        format!("device {}: pending commands {pending}{}", device.device, events.concat())
    });
    let paths = paths(connections).into_iter().map(|(path, count)| format!("{count} {path}"));
    lanes.chain(devices).chain(paths).collect::<Vec<_>>().join("; ")
}

/// Returns the number of connections over each kind of path.
fn paths(connections: &[ConnectionInfo]) -> BTreeMap<String, usize> {
    let mut paths = BTreeMap::new();
    for connection in connections {
        let path = connection.path.as_ref().map(|path| {
            let theirs = path.peer_traffic_class.map_or("unknown".into(), |it| it.to_string());
            let (mtu, ours) = (path.mtu, path.traffic_class);
            format!(": mtu {mtu}, own class {ours}, class of the peer {theirs}")
        });
        let path = format!("over {}{}", connection.transport, path.unwrap_or_default());
        *paths.entry(path).or_default() += 1;
    }
    paths
}
