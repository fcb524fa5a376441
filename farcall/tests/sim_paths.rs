//! Ports and paths of a simulated network, as a test of a service has them.

use std::net::IpAddr;

use farcall::rdma::PortChoice;
use farcall::sim::{
    SimDevice, SimDeviceConfig, SimFaults, SimGid, SimMtu, SimNetwork, SimPort, SimQuery,
    SimQueueMemory, SimReach,
};
use farcall::{Channel, Rdma, RdmaConfig, Server};

/// The client's address, and the server's.
const HOSTS: [IpAddr; 2] = [
    IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 1)),
    IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 2)),
];

/// `EIO`.
const INPUT_OUTPUT_ERROR: i32 = 5;

/// Two hosts, each with a device.
struct Hosts {
    network: SimNetwork,
    devices: [SimDevice; 2],
    config: RdmaConfig,
}

impl Hosts {
    /// Makes a device for each host of its address.
    fn new(device: impl Fn(IpAddr) -> SimDeviceConfig) -> Self {
        let network = SimNetwork::new(5);
        let devices = HOSTS.map(|host| network.add_device_with(device(host)));
        Self { network, devices, config: RdmaConfig::default() }
    }

    /// Makes a device with one port for each host.
    fn with_port(port: impl Fn(IpAddr) -> SimPort) -> Self {
        Self::new(|host| SimDeviceConfig::with_ports(&host.to_string(), vec![port(host)]))
    }

    fn plain() -> Self {
        Self::with_port(|host| SimPort::new(&[host]))
    }

    /// The handle of each host to its own device.
    fn handles(&self) -> [Rdma; 2] {
        self.devices.each_ref().map(|device| {
            let config = self.config.clone().with_devices(vec![device.name()]);
            Rdma::simulated(&self.network, config)
        })
    }

    async fn connect(&self) -> Option<String> {
        self.connect_by(&self.handles()).await
    }

    /// Connects the client. Returns the reason if it is not by RDMA.
    async fn connect_by(&self, rdma: &[Rdma; 2]) -> Option<String> {
        let listener = Server::builder().rdma(&rdma[1]).bind("auto://127.0.0.2:0").await;
        let listener = listener.expect("the port is free");
        let address = listener.local_address().clone();
        let serving = tokio::spawn(listener.serve());
        let channel = Channel::builder(address).expect("an address").rdma(&rdma[0]).connect().await;
        let channel = channel.expect("the server listens");
        let path = channel.path();
        let is_upgraded = path.transport() == Some("rdma");
        assert_eq!(path.reason().is_none(), is_upgraded, "{path:?}");
        serving.abort();
        assert_eq!(self.network.violations(), []);
        path.reason().map(str::to_owned)
    }

    async fn falls_back(&self, expected: &str) {
        let reason = self.connect().await.unwrap_or_default();
        assert!(reason.contains(expected), "{reason:?} does not contain {expected:?}");
    }
}

#[tokio::test]
async fn path_narrower_than_the_ports_falls_back() {
    let hosts = Hosts::plain();
    assert_eq!(hosts.connect().await, None);
    hosts.network.set_path_mtu(HOSTS[0], HOSTS[1], SimMtu::B1024);
    hosts.falls_back("MTU").await;
    let hosts = Hosts::with_port(|host| SimPort::new(&[host]).with_mtu(SimMtu::B1024));
    hosts.network.set_path_mtu(HOSTS[0], HOSTS[1], SimMtu::B1024);
    assert_eq!(hosts.connect().await, None, "agreed on");
}

#[tokio::test]
async fn unreachable_address_falls_back() {
    let hosts = Hosts::plain();
    hosts.network.set_reach(SimReach::SameSubnet { prefix: 31 });
    hosts.falls_back("path").await;
    hosts.network.set_reach(SimReach::SameSubnet { prefix: 24 });
    assert_eq!(hosts.connect().await, None);
}

#[tokio::test]
async fn packets_by_another_interface_than_the_route_fall_back() {
    let [loopback, vxlan] = [1, 7];
    let table = |host| vec![SimGid::new(2, host, vxlan), SimGid::new(4, host, loopback)];
    let mut hosts = Hosts::with_port(|host| SimPort::new(&[]).with_gids(table(host)));
    HOSTS.iter().for_each(|host| hosts.network.route_to(*host, loopback));
    assert_eq!(hosts.connect().await, None, "entries of the route's interface are taken");
    hosts.config = hosts.config.clone().with_gid_index(Some(2));
    hosts.falls_back("path").await;
}

#[tokio::test]
async fn query_that_fails_falls_back() {
    let hosts = Hosts::plain();
    for query in [SimQuery::GidTable, SimQuery::Port(1)] {
        hosts.devices[0].fail_queries(query, Some(INPUT_OUTPUT_ERROR));
        hosts.falls_back("os error 5").await;
        hosts.devices[0].fail_queries(query, None);
        assert_eq!(hosts.connect().await, None);
    }
}

#[tokio::test]
async fn queues_that_count_as_locked_leave_fewer_slots() {
    let receive_slots = async |memory| {
        let device = |host: IpAddr| SimDeviceConfig::new(&host.to_string(), &[host]);
        let hosts = Hosts::new(|host| device(host).with_queue_memory(memory));
        let mut faults = SimFaults::default();
        faults.memory_lock_bytes = Some(8 << 20);
        hosts.network.set_faults(faults);
        let rdma = hosts.handles();
        assert_eq!(hosts.connect_by(&rdma).await, None);
        rdma[0].lanes()[0].receive_slots
    };
    let all = RdmaConfig::default().receive_slots;
    assert_eq!(receive_slots(SimQueueMemory::Kernel).await, all.into());
    assert!(receive_slots(SimQueueMemory::Mlx5).await < all.into());
}

#[tokio::test]
async fn infiniband_partitions_decide_about_a_path() {
    let connect = async |keys: [u16; 2]| {
        let port = |host: IpAddr| {
            let lid = if host == HOSTS[0] { 1 } else { 2 };
            SimPort::infiniband(lid, &[host]).with_partition_keys(vec![keys[usize::from(lid) - 1]])
        };
        let mut hosts = Hosts::with_port(port);
        hosts.config = hosts.config.clone().with_port_choice(PortChoice::Nearest);
        hosts.connect().await
    };
    assert_eq!(connect([0x8005, 0x0005]).await, None, "one full member");
    let reason = connect([0x8005, 0x8006]).await.unwrap_or_default();
    assert!(reason.contains("the partitions do not match"), "{reason}");
}
