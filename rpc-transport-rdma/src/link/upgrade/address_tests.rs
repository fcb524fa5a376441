//! Decisions by address before a path exists: the peer's claimed address, and hosts without a port.

use std::net::SocketAddr;

use super::tests::Rig;
use super::*;
use crate::PortChoice;
use crate::quota::slots::BASE;
use crate::testing::scripted::SCRIPTED_ADDRESS;
use crate::verbs::{Gid, LinkLayer};

/// Handshakes that come in by an address without a port.
const HANDSHAKES: usize = 100;

fn addresses(local: IpAddr, peer: IpAddr) -> Addresses {
    let at = |address| Some(SocketAddr::new(address, 7000));
    Addresses { local: at(local), peer: at(peer), ..Addresses::default() }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Returns the offer of a peer on the same host, with another address.
fn offer(rig: &Rig, gid: IpAddr) -> Vec<u8> {
    let mut conn_params = rig.prepare().conn_params();
    conn_params.endpoint.gid = Gid::from_ip(gid);
    conn_params.encode()
}

#[tokio::test]
async fn an_offer_from_a_foreign_address_opens_no_device() {
    let offers = Rig::new();
    let peer = ip("10.0.0.9");
    let addresses = addresses(SCRIPTED_ADDRESS, peer);
    for gid in ["255.255.255.255", "224.0.0.1", "ff02::1", "0.0.0.0", "10.0.0.8"] {
        let rig = Rig::new();
        let accepted = rig.upgrade.accept(&addresses, &offer(&offers, ip(gid)));
        let reason = accepted.map(|_| ()).expect_err(gid).reason;
        assert!(reason.contains("10.0.0.9") && reason.contains(gid), "{reason}");
        assert_eq!(rig.sim.openings(), (0, 0), "{gid}");
    }
    let rig = Rig::new();
    rig.upgrade.accept(&addresses, &offer(&offers, peer)).map(|_| ()).expect("it is there");
}

#[tokio::test]
async fn an_answer_from_a_foreign_address_is_not_connected_to() {
    let (rig, peer) = (Rig::new(), ip("10.0.0.9"));
    let offering = rig.upgrade.offer(&addresses(SCRIPTED_ADDRESS, peer)).unwrap();
    let reason = offering.connect(&offer(&rig, ip("10.0.0.8"))).map(|_| ()).unwrap_err().reason;
    assert!(reason.contains("10.0.0.9") && reason.contains("10.0.0.8"), "{reason}");
    let offering = rig.upgrade.offer(&addresses(SCRIPTED_ADDRESS, peer)).unwrap();
    offering.connect(&offer(&rig, peer)).map(|_| ()).expect("it is there");
}

#[tokio::test]
async fn without_choice_by_address_the_gid_is_still_one_hosts() {
    let mut rig = Rig::new();
    rig.upgrade.config.port_choice = PortChoice::Nearest;
    let addresses = addresses(SCRIPTED_ADDRESS, ip("10.0.0.9"));
    let bytes = offer(&rig, ip("224.0.0.1"));
    let reason = rig.upgrade.accept(&addresses, &bytes).map(|_| ()).unwrap_err().reason;
    assert!(reason.contains("no host's address"), "{reason}");
    let bytes = offer(&rig, ip("10.1.0.1"));
    rig.upgrade.accept(&addresses, &bytes).map(|_| ()).expect("any host");
}

#[test]
fn what_claims_to_be_infiniband_is_left_to_the_link_layer() {
    let offers = Rig::new();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let _inside = runtime.enter();
    let mut conn_params = offers.prepare().conn_params();
    conn_params.endpoint.link_layer = LinkLayer::InfiniBand;
    let addresses = addresses(SCRIPTED_ADDRESS, ip("10.0.0.9"));
    assert!(offers.upgrade.accept(&addresses, &conn_params.encode()).is_err());
}

#[tokio::test(start_paused = true)]
async fn handshakes_by_an_address_without_a_port_open_no_device_again() {
    let (rig, here) = (Rig::new(), ip("192.0.2.7"));
    let addresses = addresses(here, ip("192.0.2.8"));
    for _ in 0..HANDSHAKES {
        let reason = rig.upgrade.offer(&addresses).map(|_| ()).unwrap_err().reason;
        assert!(reason.contains("192.0.2.7"), "{reason}");
    }
    assert_eq!(rig.sim.openings().0, 1, "openings in {HANDSHAKES} handshakes");
    // What a device that is not in use gets meanwhile is found a second later.
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(rig.upgrade.offer(&addresses).is_err());
    assert_eq!(rig.sim.openings(), (2, 0));
}

/// Its clients offer, and say nothing more.
#[tokio::test]
async fn silent_clients_of_one_address_leave_places_to_others() {
    let (rig, offers) = (Rig::new(), Rig::new());
    let accept = |host: &str| {
        let peer = ip(host);
        let accepted =
            rig.upgrade.accept(&addresses(SCRIPTED_ADDRESS, peer), &offer(&offers, peer));
        accepted.map(|(_, candidate)| candidate).map_err(|declined| declined.reason)
    };
    let mut silent = Vec::new();
    let reason = loop {
        match accept("10.0.0.8") {
            Ok(candidate) => silent.push(candidate),
            Err(reason) => break reason,
        }
    };
    let places = (rig.upgrade.config.receive_slots as usize) / BASE as usize;
    println!("{} of {places} places are of silent clients: {reason}", silent.len());
    assert_eq!(silent.len(), places / 2);
    assert!(reason.contains("its share") && reason.contains("rdma.max_connections"), "{reason}");
    let (_peer, stream) = tokio::io::duplex(1);
    let bootstrap = Box::new(super::tests::oob::Stream(stream));
    let link = silent.pop().unwrap().into_transport(bootstrap);
    silent.push(accept("10.0.0.8").expect("one of them is proven"));
    let others: Vec<_> = (0..places / 4).map(|_| accept("10.0.0.9").unwrap()).collect();
    let unproven = || rig.upgrade.lanes()[0].unproven_count;
    assert_eq!(unproven(), silent.len() + others.len());
    drop((silent, others));
    assert_eq!(unproven(), 0);
    drop(link);
}
