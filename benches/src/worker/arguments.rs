//! The command line of a worker, and its life.

use std::future::Future;

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::task::LocalSet;

use super::client::Fleet;
use super::control::{Command, Control, Reply};
use super::server;
use super::subject::Subject;
use super::usage::{AllocationCounter, Usage};

/// A worker's side of a subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Role {
    /// The one that is called.
    Server,
    /// The one that calls.
    Client,
}

/// The arguments that all workers have.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Side of the subject.
    pub role: Role,
    /// Address to serve on, or address of the server to call.
    pub address: String,
    /// Threads of the runtime; 0 runs everything on the main thread.
    #[arg(long, default_value_t = 0)]
    pub threads: usize,
    /// Connections of a client.
    #[arg(long, default_value_t = 1)]
    pub connections: usize,
}

/// Lives as a worker of `subject` until the driver is gone.
///
/// # Errors
///
/// Returns an error if it cannot serve or connect. What fails later is told to the driver.
pub fn run<S: Subject>(
    arguments: &Arguments,
    subject: S,
    counter: Option<AllocationCounter>,
) -> Result<()> {
    allow_descriptors()?;
    block_on(arguments.threads, async {
        match arguments.role {
            Role::Server => server::run(&subject, &arguments.address, counter).await,
            Role::Client => client(subject, arguments, counter).await,
        }
    })
}

async fn client<S: Subject>(
    subject: S,
    arguments: &Arguments,
    counter: Option<AllocationCounter>,
) -> Result<()> {
    let address = arguments.address.clone();
    // A queue inside the process has both its ends there.
    let address = match address.starts_with("inproc://") {
        true => subject.serve(&address).await?,
        false => address,
    };
    let mut fleet = Fleet::connect(subject, &address, arguments.connections, counter).await?;
    let mut control = Control::start();
    control.say(&Reply::Ready { address })?;
    while let Some(command) = control.next().await {
        let reply = match command? {
            Command::Usage => Usage::now(counter).map(Reply::Usage),
            Command::Counts => Ok(Reply::Counted(fleet.counts())),
            Command::Load(load) => fleet.run(&load).await.map(Reply::Loaded),
            Command::Hold { connections } => fleet.hold(connections).await.map(|()| Reply::Held),
        };
        control.say(&reply.unwrap_or_else(|error| Reply::refusal(&format!("{error:#}"))))?;
    }
    Ok(())
}

/// Runs `life` on a runtime with so many threads, with a place for tasks that stay on this thread.
pub(crate) fn block_on<T>(threads: usize, life: impl Future<Output = Result<T>>) -> Result<T> {
    let mut builder = match threads {
        0 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    let runtime = builder.worker_threads(threads.max(1)).enable_all().build()?;
    let ended = LocalSet::new().block_on(&runtime, life);
    // Blocking threads may still wait for a peer; the process ends without them.
    runtime.shutdown_background();
    ended
}

/// Allows as many descriptors as this process may allow itself, for many connections.
///
/// # Errors
///
/// Returns an error if the system refuses.
pub(crate) fn allow_descriptors() -> Result<()> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).context("allowing more descriptors")
}
