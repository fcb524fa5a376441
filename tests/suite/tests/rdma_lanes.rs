//! Several lanes from end to end, on a simulated device: calls of all sizes over connections that
//! are spread over them, and lanes that are used again.

// Clippy's exemption for tests does not reach their helpers.
#![allow(clippy::unwrap_used)]

mod lanes;

use std::net::Ipv4Addr;
use std::time::Duration;

use farcall::sim::SimNetwork;
use farcall::{Rdma, RdmaConfig, Server};
use farcall_suite::Probe;
use farcall_suite::proto::probe_rpc::ProbeService;
use rpc_transport_rdma::sim::{SimCensus, lab};
use tokio::sync::oneshot;

/// The bound on the test.
const LIMIT: Duration = Duration::from_secs(60);

const LANES: u16 = 3;

fn rdma(network: &SimNetwork) -> Rdma {
    Rdma::simulated(network, RdmaConfig::default().with_lanes(Some(LANES)))
}

async fn run(network: &SimNetwork) {
    let (server, client) = (rdma(network), rdma(network));
    let builder = Server::builder().rdma(&server).add_service(ProbeService::new(Probe::new().0));
    let listener = builder.bind("rdma://127.0.0.1:0").await.unwrap();
    let address = listener.local_address().to_string();
    let (shutdown, shut_down) = oneshot::channel::<()>();
    let serving = listener.serve().with_graceful_shutdown(async { drop(shut_down.await) });
    let serving = tokio::spawn(serving);
    for _ in 0..2 {
        lanes::spread(&address, &server, &client, LANES.into()).await.unwrap();
        // Both sides' lanes stay, and the next connections go to where the fewest are.
        while [&server, &client]
            .iter()
            .any(|side| side.lanes().iter().any(|lane| lane.connection_count > 0))
        {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(lab::census(network).completion_queues, 2 * usize::from(LANES));
    }
    drop(shutdown);
    serving.await.unwrap().unwrap();
}

#[test]
fn connections_are_spread_over_lanes_and_all_of_them_work() {
    let network = SimNetwork::new(1);
    network.panic_on_violation();
    network.add_device("sim0", &[Ipv4Addr::LOCALHOST.into()]);
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        tokio::time::timeout(LIMIT, run(&network)).await.expect("the test ends in time");
    });
    runtime.shutdown_timeout(LIMIT);
    assert_eq!(network.violations(), []);
    assert_eq!(lab::census(&network), SimCensus::default(), "something is left on the device");
}
