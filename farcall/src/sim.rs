//! Simulated RDMA devices, to test a service over `rdma://` on any machine.
//!
//! A [`SimNetwork`] has any number of [`SimDevice`]s, each with the addresses of its ports.
//! [`Rdma::simulated`](crate::Rdma::simulated) is the handle to them, for servers and channels:
//!
//! ```
//! use farcall::sim::{SimFaults, SimNetwork};
//! use farcall::{Rdma, RdmaConfig, Server};
//!
//! let network = SimNetwork::new(42);
//! // Connections over 127.0.0.1 find it; one device can serve both ends.
//! let device = network.add_device("sim0", &["127.0.0.1".parse()?]);
//! let rdma = Rdma::simulated(&network, RdmaConfig::default());
//! let server = Server::builder().rdma(&rdma);
//! // Later, in the middle of calls:
//! network.set_faults(SimFaults::harmless());
//! device.link_down();
//! device.link_up();
//! assert_eq!(network.violations(), []);
//! # drop(server);
//! # Ok::<(), std::net::AddrParseError>(())
//! ```
//!
//! What happens when is decided by the network's seed and by the order in which its queues are
//! used, and time is tokio's: under `start_paused` a second of retries takes none.
//!
//! [`SimFaults`] are chances, drawn from the seed. [`SimDevice`] has faults to trigger: a link that
//! goes down, a device that is lost, firmware that hangs, queries that fail.
//! The network moves messages and not packets: a packet that is
//! lost shows as what it does to a message, which comes later, or in part before its queue pairs
//! die. It says nothing about speed, except for the rates that its ports are given.
//!
//! # Hosts and paths
//!
//! A connection uses the device that has its local address. Give each host of a test a device of
//! its own, and change the paths between their addresses. Here a switch between two hosts carries
//! packets of 1024 bytes, while the ports have agreed on 4096, so that the client falls back to
//! TCP:
//!
//! ```
//! use farcall::sim::{SimDeviceConfig, SimMtu, SimNetwork, SimPort, SimReach};
//! use farcall::{Channel, Rdma, RdmaConfig, Server};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let network = SimNetwork::new(42);
//! let hosts: [std::net::IpAddr; 2] = [[127, 0, 0, 1].into(), [127, 0, 0, 2].into()];
//! for (name, host) in [("client", hosts[0]), ("server", hosts[1])] {
//!     let port = SimPort::new(&[host]).with_mtu(SimMtu::B4096);
//!     network.add_device_with(SimDeviceConfig::with_ports(name, vec![port]));
//! }
//! network.set_path_mtu(hosts[0], hosts[1], SimMtu::B1024);
//!
//! let rdma = [(); 2].map(|()| Rdma::simulated(&network, RdmaConfig::default()));
//! let listener = Server::builder().rdma(&rdma[1]).bind("auto://127.0.0.2:0").await?;
//! let address = listener.local_address().clone();
//! tokio::spawn(listener.serve());
//! let channel = Channel::builder(address)?.rdma(&rdma[0]).connect().await?;
//! assert_eq!(channel.path().transport(), Some("tcp"));
//! println!("{}", channel.path().reason().unwrap_or_default());
//!
//! // The same without a path at all: each address reaches itself alone.
//! network.set_reach(SimReach::SameSubnet { prefix: 32 });
//! assert_eq!(network.violations(), []);
//! # Ok(())
//! # }
//! ```

pub use rpc_transport_rdma::sim::{
    SimCounters, SimDevice, SimDeviceConfig, SimFaults, SimGid, SimHold, SimMtu, SimNetwork,
    SimPort, SimQuery, SimQueueMemory, SimReach, SimVerb, SimViolation,
};
