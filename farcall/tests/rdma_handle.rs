//! The handle to RDMA devices is there whatever farcall is built with, and says what it is without.

// Every type of the handle's interface, by its name. They do not vanish with the feature.
use farcall::{
    AsyncEventKind, CancellationStats, ConnectOptions, DeviceStatus, LaneActivity, LaneInfo,
    LeaseStats, PortChoice, RdmaConfig, RkeyScope, UnknownRkeyScope,
};
use farcall::{Channel, Endpoint, Rdma, Server, Settings};

#[cfg(not(feature = "rdma"))]
const REASON: &str = "farcall is built without its feature `rdma`";

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
    let channel = Channel::builder("auto://127.0.0.1:1").unwrap().rdma(&rdma).connect_lazy();
    assert_eq!(channel.rdma().map(|rdma| rdma.config().lanes), Some(3));
    let server = Server::builder().rdma(&rdma).build();
    assert_eq!(server.rdma().config().lanes, 3);
    let settings = Settings::parse("empty", "").unwrap().with_rdma(&rdma);
    assert_eq!(settings.rdma().config().lanes, 3);
    let endpoint = Endpoint::bind("auto://127.0.0.1:0").await.unwrap();
    drop(endpoint.with_rdma(&rdma));
}

/// One file serves programs with and without RDMA, and a wrong value is one in both.
#[test]
fn the_table_of_a_file_is_read_and_checked_whatever_is_built_in() {
    let text = "[targets.here]\naddress = \"auto://127.0.0.1:1\"\n[rdma]\nlanes = 2";
    let settings = Settings::parse("farcall.toml", text).unwrap();
    assert_eq!(settings.rdma().config().lanes, 2);
    let channel = settings.channel("here").unwrap();
    assert_eq!(channel.rdma().map(|rdma| rdma.config().lanes), Some(2));
    let error = Settings::parse("farcall.toml", "[rdma]\nslot_len = 100").unwrap_err();
    assert!(error.to_string().contains("rdma.slot_len"), "{error}");
}

#[cfg(not(feature = "rdma"))]
#[tokio::test]
async fn without_the_feature_both_schemes_say_so() {
    let listener = Server::builder().bind("auto://127.0.0.1:0").await.unwrap();
    let address = listener.local_address().to_string();
    tokio::spawn(listener.serve());
    let channel = Channel::connect(&address).await.unwrap();
    let info = channel.info().unwrap();
    assert_eq!(
        (info.transport, info.fallback),
        ("tcp", Some(format!("rdma: this host: {REASON}")))
    );
    assert!(channel.rdma().is_some_and(|rdma| rdma.devices().is_empty()));
    let required = address.replace("auto://", "rdma://");
    let error = Channel::connect(&required).await.unwrap_err().to_string();
    assert!(error.contains(REASON), "{error}");
}
