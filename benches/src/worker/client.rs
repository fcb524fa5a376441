//! A client: its connections, and the loads that run over them.

use anyhow::{Context as _, Result, ensure};
use futures::future::join_all;
use tokio::task::JoinHandle;

use super::load::{Load, LoadOutcome, Operation, Span};
use super::subject::{Callers, Connection as _, Counts, Subject, quota};
use super::tally::Tally;
use super::usage::{AllocationCounter, Usage};

/// The connections of a client.
#[derive(Debug)]
pub struct Fleet<S: Subject> {
    subject: S,
    address: String,
    connections: Vec<S::Connection>,
    /// Connections that are only held.
    idle: Vec<S::Connection>,
    counter: Option<AllocationCounter>,
}

impl<S: Subject> Fleet<S> {
    /// Connects `connection_count` times.
    ///
    /// # Errors
    ///
    /// Returns an error if a connection cannot be made.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes what was connected.
    pub async fn connect(
        subject: S,
        address: &str,
        connection_count: usize,
        counter: Option<AllocationCounter>,
    ) -> Result<Self> {
        ensure!(connection_count > 0, "at least one connection is needed");
        let (connections, idle) = (Vec::new(), Vec::new());
        let mut fleet = Self { subject, address: address.to_owned(), connections, idle, counter };
        for _ in 0..connection_count {
            let connection = fleet.subject.connect(&fleet.address).await?;
            fleet.connections.push(connection);
        }
        Ok(fleet)
    }

    /// The first connection.
    ///
    /// # Panics
    ///
    /// Never: a fleet has at least one.
    #[must_use]
    pub fn first(&self) -> &S::Connection {
        self.connections.first().expect("a fleet has at least one connection")
    }

    /// Returns the subject's counters of these connections.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.subject.counts(&self.connections)
    }

    /// Describes what these connections use of devices.
    #[must_use]
    pub fn state(&self) -> String {
        self.subject.state(&self.connections)
    }

    /// Makes one call over each of `count` further connections and keeps them.
    ///
    /// # Errors
    ///
    /// Returns an error if a connection cannot be made, or its call fails.
    ///
    /// # Cancel safety
    ///
    /// Connections that were made before the future was dropped are kept.
    pub async fn hold(&mut self, count: usize) -> Result<()> {
        let load = Load::new(Operation::Echo, 64, Span::Calls(1));
        for _ in 0..count {
            let connection = self.subject.connect(&self.address).await?;
            let (_, quota) = quota(&load);
            finish(connection.start(&load, 1, quota)).await?;
            self.idle.push(connection);
        }
        Ok(())
    }

    /// Runs a load.
    ///
    /// # Errors
    ///
    /// Returns an error if a call fails.
    ///
    /// # Cancel safety
    ///
    /// Calls that were started run to their end, and their results are dropped.
    pub async fn run(&self, load: &Load) -> Result<LoadOutcome> {
        ensure!(load.in_flight > 0, "a load needs at least one call in flight");
        let beside = self.start_beside(load);
        let before = Usage::now(self.counter)?;
        let (start, quota) = quota(load);
        let callers = S::Connection::start_all(&self.connections, load, quota);
        let tally = finish(callers).await;
        let time = start.elapsed();
        let spent = Usage::now(self.counter)?.since(&before);
        for task in beside {
            task.abort();
            // It was given up, or has failed as the calls that are measured then have.
            let _ = task.await;
        }
        tally?.outcome(time, spent)
    }

    /// Starts the large messages that share the first connection. They end when they are given up.
    fn start_beside(&self, load: &Load) -> Vec<JoinHandle<Result<Tally>>> {
        let Some(size) = load.beside else { return Vec::new() };
        let both = [Operation::Upload, Operation::Download];
        both.into_iter()
            .flat_map(|operation| {
                let large = Load::new(operation, size, Span::Calls(u64::MAX));
                self.first().start(&large, 1, quota(&large).1)
            })
            .collect()
    }
}

async fn finish(callers: Callers) -> Result<Tally> {
    let mut all = Tally::new()?;
    for ended in join_all(callers).await {
        all.add(&ended.context("a caller did not end by itself")??)?;
    }
    Ok(all)
}
