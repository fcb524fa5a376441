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
//! goes down, a device that is lost, firmware that hangs.
//! The network moves messages and not packets: a packet that is
//! lost shows as what it does to a message, which comes later, or in part before its queue pairs
//! die. It says nothing about speed.

pub use rpc_transport_rdma::sim::{
    SimCounters, SimDevice, SimFaults, SimHold, SimNetwork, SimVerb, SimViolation,
};
