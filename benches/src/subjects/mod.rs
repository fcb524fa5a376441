//! The built-in subjects: farcall itself, and the two that show the floor.
//!
//! Peers that bring libraries of their own stand in `benches/peers`.

mod certificates;
mod farcall;
mod mux;
mod state;
mod std_net;
mod std_tls;

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};

pub use certificates::Certificates;
pub use farcall::{Farcall, FarcallOptions};
pub use mux::Mux;
pub use std_net::{StdConnection, StdNet, Wire};
pub use std_tls::StdTls;

use crate::worker::{self, AllocationCounter, Arguments};

/// The subjects of this crate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// farcall, over the transport that the address names.
    Farcall,
    /// A bare multiplexed echo on tokio.
    Mux,
    /// Blocking sockets of the standard library: the floor.
    Std,
    /// The same with rustls around them, with the certificates that `--tls` names.
    StdTls,
}

/// The arguments of a worker of this crate.
#[derive(Debug, Args)]
pub struct BuiltIn {
    /// The subject that serves or calls.
    #[arg(long, value_enum, default_value_t = Kind::Farcall)]
    subject: Kind,
    #[command(flatten)]
    farcall: FarcallOptions,
    #[command(flatten)]
    arguments: Arguments,
}

/// Lives as a worker until the driver is gone.
///
/// # Errors
///
/// Returns an error if it cannot serve or connect.
pub fn run(options: &BuiltIn, counter: Option<AllocationCounter>) -> Result<()> {
    let arguments = &options.arguments;
    match options.subject {
        Kind::Farcall => worker::run(arguments, Farcall::new(&options.farcall), counter),
        Kind::Mux => worker::run(arguments, Mux, counter),
        Kind::Std => worker::run(arguments, StdNet, counter),
        Kind::StdTls => {
            let folder = options.farcall.tls.as_ref().context("std-tls needs --tls")?;
            worker::run(arguments, StdTls::new(folder), counter)
        }
    }
}
