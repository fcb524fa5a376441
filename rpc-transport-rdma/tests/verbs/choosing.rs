//! Choosing a port, and what is said when memory cannot be pinned.

use std::env;
use std::process::Command;

use nix::sys::resource::{Resource, setrlimit};
use rpc_transport_rdma::device::{DeviceError, PortQuery, find_port};
use rpc_transport_rdma::memory::{Access, PoolError, RegionPool};
use rpc_transport_rdma::verbs::{Ibverbs, PortState, VerbsError};

use crate::hardware::{addresses, ports};

#[test]
fn the_port_that_has_the_address_is_found() {
    let Some(found) = ports() else { return };
    for (port, address) in found.iter().zip(addresses()) {
        assert_eq!(port.gid.to_ip(), address);
        assert_eq!(port.attributes.state, PortState::Active);
        let name = port.device.name();
        let query = PortQuery { address, device: Some(name) };
        assert_eq!(find_port(&Ibverbs::new(), query).unwrap().device.name(), name);
    }
}

#[test]
fn an_address_that_no_port_has_is_named_with_what_there_is() {
    let Some([port, _]) = ports() else { return };
    let query = PortQuery { address: "192.0.2.1".parse().unwrap(), device: None };
    let error = find_port(&Ibverbs::new(), query).unwrap_err();
    assert!(matches!(error, DeviceError::NoMatchingGid { .. }));
    let text = error.to_string();
    assert!(text.contains("192.0.2.1") && text.contains(port.device.name()), "{text}");
}

#[test]
fn a_device_that_does_not_exist_is_named_with_what_there_is() {
    let Some([port, _]) = ports() else { return };
    let query = PortQuery { address: addresses()[0], device: Some("nope") };
    let text = find_port(&Ibverbs::new(), query).unwrap_err().to_string();
    assert!(text.contains("nope") && text.contains(port.device.name()), "{text}");
}

const CHILD: &str = "FARCALL_MEMLOCK_CHILD";
const LIMIT: u64 = 1 << 20;

/// Root may pin without limit, so a child without that capability does the registering.
#[test]
fn memory_beyond_the_limit_is_refused_with_its_name() {
    let Some([port, _]) = ports() else { return };
    if env::var_os(CHILD).is_none() {
        let name = "choosing::memory_beyond_the_limit_is_refused_with_its_name";
        let child = Command::new("setpriv")
            .args(["--bounding-set=-ipc_lock", "--inh-caps=-ipc_lock"])
            .arg(env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(CHILD, "1")
            .output()
            .expect("this test needs setpriv of util-linux");
        let text = String::from_utf8_lossy(&child.stdout);
        assert!(child.status.success() && text.contains("refused as expected"), "{child:?}");
        return;
    }
    setrlimit(Resource::RLIMIT_MEMLOCK, LIMIT, LIMIT).unwrap();
    let pool = RegionPool::new(&port.device, Access::Source, 64 << 20);
    let small = pool.try_take(8192).unwrap();
    let error = pool.try_take(16 << 20).unwrap_err();
    let PoolError::Register(VerbsError::MemoryLock { limit_bytes, .. }) = &error else {
        panic!("{error}")
    };
    assert_eq!(*limit_bytes, Some(LIMIT));
    drop(small);
    println!("refused as expected: {error}");
}
