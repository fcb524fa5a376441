//! A worker process.
//!
//! A worker is a server or a client of one subject. The driver writes [`Command`]s to its standard
//! input and reads [`Reply`]s from its standard output, one line of JSON each, one reply for each
//! command; the first line is [`Reply::Ready`], and the end of the input is the end of the worker.

mod arguments;
mod caller;
mod client;
mod control;
mod load;
mod quota;
mod server;
mod subject;
mod tally;
mod usage;

pub use arguments::{Arguments, Role, run};
pub(crate) use arguments::{allow_descriptors, block_on};
pub use caller::{Caller, Client};
pub use client::Fleet;
pub use control::{Command, Reply};
pub use load::{Load, LoadOutcome, Operation, Span};
pub use quota::Quota;
pub use subject::{Callers, Connection, Counts, Subject};
pub use tally::Tally;
pub use usage::{AllocationCounter, Spent, Usage};
