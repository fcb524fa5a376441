//! The handle to RDMA devices, its types, and the table of a settings file that describes them.
#![cfg(all(target_os = "linux", any(feature = "rdma", feature = "sim")))]

use farcall::RdmaConfig;
use farcall::rdma::{
    AsyncEventKind, CancellationStats, ConnectOptions, DeviceStatus, LaneActivity, LaneInfo,
    PortChoice, RkeyScope,
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
    let counters = |lane: &LaneInfo| -> (LaneActivity, CancellationStats) {
        (lane.activity, lane.cancellations)
    };
    assert_eq!(lanes.iter().map(counters).collect::<Vec<_>>(), []);
    let devices: Vec<DeviceStatus> = rdma.devices();
    let downs = devices.iter().map(|device| device.event_count(AsyncEventKind::PortError));
    assert_eq!(downs.sum::<u64>(), 0);
    assert_eq!(Rdma::is_built_in(), cfg!(feature = "rdma"));
}

/// The names of the fields that a value shows, in order.
#[cfg(feature = "sim")]
fn fields(value: &impl std::fmt::Debug) -> Vec<String> {
    let shown = format!("{value:?}");
    let fields = shown.split(['{', ',', '}']).filter_map(|field| field.split_once(':'));
    fields.map(|(name, _)| name.trim().to_owned()).collect()
}

/// A counter that is added to a lane belongs on these lists, and to its call site's test.
#[cfg(feature = "sim")]
#[tokio::test]
async fn every_counter_of_a_lane_is_known_and_some_count() {
    let network = farcall::sim::SimNetwork::new(1);
    network.add_device("sim0", &[[127, 0, 0, 1].into()]);
    let rdma = Rdma::simulated(&network, RdmaConfig::default());
    let listener = Server::builder().rdma(&rdma).bind("rdma://127.0.0.1:0").await.unwrap();
    let address = listener.local_address().to_string();
    tokio::spawn(listener.serve());
    let channel = Channel::builder(&address).unwrap().rdma(&rdma).connect().await.unwrap();
    let lanes = rdma.lanes();
    drop(channel);
    assert_eq!(
        fields(&lanes[0].activity),
        [
            "credit_waits",
            "credit_stalls",
            "credits_returned",
            "grants_sent",
            "recalls_sent",
            "receive_limit_events",
            "refills_refused",
            "offers_leaked",
            "slots_lost",
            "slots_reclaimed",
            "posts",
            "polls",
            "completions",
            "spins",
            "events",
            "wakeups",
        ]
    );
    assert_eq!(
        fields(&lanes[0].cancellations),
        ["withdrawn", "not_started", "stopped", "completed", "revoked", "overdue", "pulls_stopped",]
    );
    let LaneActivity { posts, polls, completions, wakeups, .. } = lanes[0].activity;
    assert!([posts, polls, completions, wakeups].iter().all(|count| *count > 0), "{lanes:?}");
}

#[tokio::test]
async fn every_builder_takes_the_handle() {
    let rdma = Rdma::new(RdmaConfig::default().with_lanes(Some(3)));
    drop(Channel::builder("auto://127.0.0.1:1").unwrap().rdma(&rdma).connect_lazy());
    let server = Server::builder().rdma(&rdma).build();
    assert_eq!(server.rdma().config().lanes, Some(3));
    let settings = Settings::parse("empty", "").unwrap().with_rdma(&rdma);
    assert_eq!(settings.rdma().config().lanes, Some(3));
}

#[test]
fn rdma_table_configures_the_handle_and_is_checked() {
    let text = "[targets.here]\naddress = \"auto://127.0.0.1:1\"\n[rdma]\nlanes = 2";
    let settings = Settings::parse("farcall.toml", text).unwrap();
    assert_eq!(settings.rdma().config().lanes, Some(2));
    settings.channel("here").unwrap();
    let error = Settings::parse("farcall.toml", "[rdma]\nslot_len = 100").unwrap_err();
    assert!(error.to_string().contains("rdma.slot_len"), "{error}");
}
