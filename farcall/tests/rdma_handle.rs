//! The handle to RDMA devices, its types, and the table of a settings file that describes them.
#![cfg(all(target_os = "linux", any(feature = "rdma", feature = "sim")))]

use farcall::{
    AsyncEventKind, CancellationStats, ConnectOptions, DeviceStatus, LaneActivity, LaneInfo,
    LeaseStats, PortChoice, RdmaConfig, RkeyScope, UnknownRkeyScope,
};
use farcall::{Channel, Rdma, Server, Settings};

#[test]
fn the_handle_and_its_types_can_be_named() {
    let config = RdmaConfig::default()
        .with_port_choice(PortChoice::Nearest)
        .with_rkey_scope(RkeyScope::Region)
        .with_connect(ConnectOptions::default());
    let rdma = Rdma::new(config);
    let lanes: Vec<LaneInfo> = rdma.lanes();
    let of_lane = |lane: &LaneInfo| -> (LaneActivity, LeaseStats, CancellationStats) {
        (lane.activity, lane.leases, lane.cancellations)
    };
    assert_eq!(lanes.iter().map(of_lane).collect::<Vec<_>>(), []);
    let devices: Vec<DeviceStatus> = rdma.devices();
    let downs = devices.iter().map(|device| device.event_count(AsyncEventKind::PortError));
    assert_eq!(downs.sum::<u64>(), 0);
    let unknown: Result<RkeyScope, UnknownRkeyScope> = "slab".parse();
    assert!(unknown.is_err());
    assert_eq!(Rdma::is_built_in(), cfg!(feature = "rdma"));
}

#[tokio::test]
async fn every_builder_takes_the_handle() {
    let rdma = Rdma::new(RdmaConfig::default().with_lanes(3));
    drop(Channel::builder("auto://127.0.0.1:1").unwrap().rdma(&rdma).connect_lazy());
    let server = Server::builder().rdma(&rdma).build();
    assert_eq!(server.rdma().config().lanes, 3);
    let settings = Settings::parse("empty", "").unwrap().with_rdma(&rdma);
    assert_eq!(settings.rdma().config().lanes, 3);
}

#[test]
fn rdma_table_configures_the_handle_and_is_checked() {
    let text = "[targets.here]\naddress = \"auto://127.0.0.1:1\"\n[rdma]\nlanes = 2";
    let settings = Settings::parse("farcall.toml", text).unwrap();
    assert_eq!(settings.rdma().config().lanes, 2);
    settings.channel("here").unwrap();
    let error = Settings::parse("farcall.toml", "[rdma]\nslot_len = 100").unwrap_err();
    assert!(error.to_string().contains("rdma.slot_len"), "{error}");
}
