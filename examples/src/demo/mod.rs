//! The demo: the service over every transport, every byte checked, and what it cost.
//!
//! [`run`] serves and calls one address, [`workload`] is what the client does there, [`Row`] is a
//! line of the table, and [`NetworkCounters`] tells where the bytes went.

mod network_counters;
mod pair;
mod path;
mod row;
mod run;
mod workload;

pub use network_counters::NetworkCounters;
pub use pair::Pair;
pub use path::path;
pub use row::Row;
pub use run::{Plan, run};
pub use workload::workload;
