//! The two processes of a side.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use farcall_testkit::process::Process;

use super::sample::Sample;
use super::setting::Setting;
use super::side::Side;
use crate::worker::{Command, Counts, Load, LoadOutcome, Reply, Role, Usage};

/// Maximum time of a worker's answer to a command that is no work, on a slow or emulated machine.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// A server and a client of one side, each a process. They end with this value.
#[derive(Debug)]
pub struct Pair {
    name: String,
    /// First, so that it is gone before the server is.
    client: Process,
    /// Another client of the same server, where one was asked for.
    neighbour: Option<Process>,
    /// None where the client is both, as over `inproc://`.
    server: Option<Process>,
}

impl Pair {
    /// Starts both and waits until they are connected.
    ///
    /// # Errors
    ///
    /// Returns an error if one cannot be started, or cannot serve or connect.
    pub fn start(side: &Side, setting: &Setting) -> Result<Self> {
        let mut address = side.address.clone();
        let mut server = None;
        if !address.starts_with("inproc://") {
            let mut command = side.command(Role::Server, &address, setting)?;
            let mut process = Process::start(&format!("server of {}", side.name), &mut command)?;
            address = ready(&mut process)?;
            server = Some(process);
        }
        let client = start_client(side, &address, setting)?;
        Ok(Self { name: side.name.clone(), client, neighbour: None, server })
    }

    /// Starts a pair as [`start`](Self::start) does, and another client with one connection.
    ///
    /// # Errors
    ///
    /// Returns an error if one cannot be started, or cannot serve or connect.
    pub fn start_with_neighbour(side: &Side, setting: &Setting) -> Result<Self> {
        let mut server = Process::start(
            &format!("server of {}", side.name),
            &mut side.command(Role::Server, &side.address, setting)?,
        )?;
        let address = ready(&mut server)?;
        let client = start_client(side, &address, setting)?;
        let neighbour = start_client(side, &address, &setting.with_connections(1))?;
        let name = side.name.clone();
        Ok(Self { name, client, neighbour: Some(neighbour), server: Some(server) })
    }

    /// Returns the side's name in results.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The process ids of client and server.
    #[must_use]
    pub fn ids(&self) -> (u32, Option<u32>) {
        (self.client.id(), self.server.as_ref().map(Process::id))
    }

    /// Runs a load.
    ///
    /// # Errors
    ///
    /// Returns an error if a call fails, or it takes very much longer than it should.
    pub fn load(&mut self, load: &Load) -> Result<Sample> {
        let before = self.server_usage()?;
        begin(&mut self.client, load)?;
        let client = end(&mut self.client, load, &self.name)?;
        let after = self.server_usage()?;
        let server = after.zip(before).map(|(after, before)| after.since(&before));
        Ok(Sample { load: *load, client, server: server.unwrap_or_default() })
    }

    /// Runs a load of the client, and one of its neighbour at the same time.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no neighbour, a call fails, or it takes very much longer than
    /// it should.
    pub fn load_both(&mut self, load: &Load, beside: &Load) -> Result<(Sample, LoadOutcome)> {
        let before = self.server_usage()?;
        begin(&mut self.client, load)?;
        let neighbour = self.neighbour.as_mut().context("this side has no neighbour")?;
        begin(neighbour, beside)?;
        let beside = end(neighbour, beside, &self.name)?;
        let client = end(&mut self.client, load, &self.name)?;
        let after = self.server_usage()?;
        let server = after.zip(before).map(|(after, before)| after.since(&before));
        Ok((Sample { load: *load, client, server: server.unwrap_or_default() }, beside))
    }

    /// Runs a load of the neighbour alone.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`load_both`](Self::load_both).
    pub fn load_neighbour(&mut self, load: &Load) -> Result<LoadOutcome> {
        let neighbour = self.neighbour.as_mut().context("this side has no neighbour")?;
        begin(neighbour, load)?;
        end(neighbour, load, &self.name)
    }

    /// Makes further connections that only idle.
    ///
    /// # Errors
    ///
    /// Returns an error if one cannot be made.
    pub fn hold(&mut self, connections: usize) -> Result<()> {
        // A connection takes a few milliseconds where registering memory or emulation is slow.
        let limit = ANSWER_LIMIT + Duration::from_millis(20) * u32::try_from(connections)?;
        match self.client.request(&Command::Hold { connections }, limit)? {
            Reply::Held => Ok(()),
            other => bail!("the client of {}: {}", self.name, unexpected(other)),
        }
    }

    /// Returns the server's usage, or nothing if the client is both.
    ///
    /// # Errors
    ///
    /// Returns an error if the server does not report it.
    pub fn server_usage(&mut self) -> Result<Option<Usage>> {
        self.server.as_mut().map(usage).transpose()
    }

    /// Returns the client's usage.
    ///
    /// # Errors
    ///
    /// Returns an error if the client does not report it.
    pub fn client_usage(&mut self) -> Result<Usage> {
        usage(&mut self.client)
    }

    /// Returns the counters of the client and of the server.
    ///
    /// # Errors
    ///
    /// Returns an error if either does not report them, or there is no server.
    pub fn counts(&mut self) -> Result<(Counts, Counts)> {
        let server = self.server.as_mut().context("this side has no server of its own")?;
        Ok((counts(&mut self.client)?, counts(server)?))
    }
}

fn start_client(side: &Side, address: &str, setting: &Setting) -> Result<Process> {
    let mut command = side.command(Role::Client, address, setting)?;
    let mut client = Process::start(&format!("client of {}", side.name), &mut command)?;
    ready(&mut client)?;
    Ok(client)
}

fn begin(client: &mut Process, load: &Load) -> Result<()> {
    Ok(client.send(&serde_json::to_string(&Command::Load(*load))?)?)
}

fn end(client: &mut Process, load: &Load, name: &str) -> Result<LoadOutcome> {
    match client.answer(load.span.duration_max() + ANSWER_LIMIT)? {
        Reply::Loaded(outcome) => Ok(outcome),
        other => bail!("the client of {name}: {}", unexpected(other)),
    }
}

fn counts(process: &mut Process) -> Result<Counts> {
    match process.request(&Command::Counts, ANSWER_LIMIT)? {
        Reply::Counted(counts) => Ok(counts),
        other => bail!(unexpected(other)),
    }
}

fn usage(process: &mut Process) -> Result<Usage> {
    match process.request(&Command::Usage, ANSWER_LIMIT)? {
        Reply::Usage(usage) => Ok(usage),
        other => bail!(unexpected(other)),
    }
}

fn ready(process: &mut Process) -> Result<String> {
    match process.answer(ANSWER_LIMIT)? {
        Reply::Ready { address } => Ok(address),
        other => bail!(unexpected(other)),
    }
}

fn unexpected(reply: Reply) -> String {
    match reply {
        Reply::Failed { reason } => reason,
        other => format!("an answer to something else: {other:?}"),
    }
}
