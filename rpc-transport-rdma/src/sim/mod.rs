//! A simulated RDMA device, for tests without hardware: of this crate, and of your own service.
//!
//! A [`SimNetwork`] is a fabric with any number of [`SimDevice`]s, each with the addresses that
//! its port has. Its [`SimProvider`](crate::verbs::SimProvider) opens them like real ones, so that
//! everything above verbs runs unchanged:
//!
//! ```
//! use rpc_transport_rdma::sim::{SimFaults, SimNetwork};
//! use rpc_transport_rdma::{RdmaConfig, RdmaUpgrade};
//!
//! let network = SimNetwork::new(42);
//! // Connections over 127.0.0.1 find it; one device can serve both ends.
//! let device = network.add_device("sim0", &["127.0.0.1".parse().unwrap()]);
//! let upgrade = RdmaUpgrade::with_provider(Box::new(network.provider()), RdmaConfig::default());
//! // Later, in the middle of calls:
//! network.set_faults(SimFaults::harmless());
//! device.link_down();
//! device.link_up();
//! assert_eq!(network.violations(), []);
//! # drop(upgrade);
//! ```
//!
//! What happens when is decided by the network's seed and by the order in which its queues are
//! used, and time is tokio's: under `start_paused` a second of retries takes none. The task that
//! waits for a completion event or an asynchronous event drives the whole network; there is no
//! task.
//!
//! # What it does
//!
//! Reliable connected queue pairs whose requests arrive, are answered and complete in order; READs
//! bounded by what was agreed; shared receive queues with receiver-not-ready retries and their
//! limit; keys that are really checked, by bounds, access and, for windows of type 2, queue pair;
//! `SEND_WITH_INV`; acknowledgement timeouts; the error state and its flushes; completion queues
//! that overrun; events that must be armed.
//!
//! [`SimFaults`] are chances, drawn from the seed. [`SimDevice`] has faults to trigger: a link that
//! goes down, a device that is lost, firmware that is slow or hangs. A program above that breaks
//! the rules of verbs gets a [`SimViolation`] instead of undefined behaviour, as far as a device
//! can notice it.
//!
//! # What it does not do
//!
//! It moves messages and not packets: a packet that is lost shows as what it does to a message,
//! which comes later, again after a timeout, or in part before its queue pairs die. No completion
//! event is lost for good, because no device loses one: they are late, held back until more has
//! completed, or made one with others, and a program that needs more than one event for what
//! completed before it looked has a fault of its own. On InfiniBand, too, a peer is found by its
//! GID and number, and a LID only has to be there. It has no `WRITE`. It says nothing about speed
//! but what [`SimPort::rate`] makes of it.

mod counters;
mod device;
mod device_config;
pub(crate) mod fabric;
mod faults;
pub(crate) mod hold;
pub mod lab;
mod network;
mod port;
mod reach;
pub(crate) mod state;
mod steps;
mod violation;

pub use counters::{SimCensus, SimCounters};
pub use device::SimDevice;
pub use device_config::{SimDeviceConfig, SimQueueMemory};
pub use faults::SimFaults;
pub use hold::SimHold;
pub use network::SimNetwork;
pub use port::{SimGid, SimPort, SimQuery, SimRate};
pub use reach::SimReach;
pub use violation::SimViolation;

pub use crate::sys::provider::{FirmwareCommand as SimVerb, Mtu as SimMtu};
