//! The lines between the driver and a worker.

use std::io::{self, BufRead as _, Write as _};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::{self, UnboundedReceiver};

use super::load::{Load, LoadOutcome};
use super::subject::Counts;
use super::usage::Usage;

/// A command of the driver.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// Asks for the resources that the process has used so far.
    Usage,
    /// Asks for the subject's counters so far.
    Counts,
    /// Run a load (clients only).
    Load(Load),
    /// Make that many connections more, call once over each, and hold them (clients only).
    Hold {
        /// Number of connections.
        connections: usize,
    },
}

/// A worker's reply.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// It can be asked now: a server serves at `address`, a client is connected to it.
    Ready {
        /// The address, with the port that was chosen.
        address: String,
    },
    /// The used resources.
    Usage(Usage),
    /// The subject's counters.
    Counted(Counts),
    /// A load has ended.
    Loaded(LoadOutcome),
    /// The connections are there.
    Held,
    /// It could not do what it was asked for.
    Failed {
        /// Why.
        reason: String,
    },
}

impl Reply {
    pub(super) fn refusal(reason: &str) -> Self {
        Self::Failed { reason: reason.to_owned() }
    }
}

/// The worker's end of it.
#[derive(Debug)]
pub(super) struct Control {
    commands: UnboundedReceiver<Result<Command>>,
}

impl Control {
    /// Begins to read commands, on a thread that waits for them all the time.
    pub(super) fn start() -> Self {
        let (send, commands) = mpsc::unbounded_channel();
        std::thread::spawn(move || {
            for line in io::stdin().lock().lines() {
                let command = line.map_err(Into::into).and_then(|line| parse(&line));
                if send.send(command).is_err() {
                    break;
                }
            }
        });
        Self { commands }
    }

    /// The next command; nothing when the driver is gone.
    pub(super) async fn next(&mut self) -> Option<Result<Command>> {
        self.commands.recv().await
    }

    /// Says one thing.
    pub(super) fn say(&self, reply: &Reply) -> Result<()> {
        let mut line = serde_json::to_string(reply)?;
        line.push('\n');
        let mut stdout = io::stdout().lock();
        stdout.write_all(line.as_bytes())?;
        stdout.flush().context("the driver is gone")
    }
}

fn parse(line: &str) -> Result<Command> {
    serde_json::from_str(line).with_context(|| format!("a command that is not understood: {line}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::{Operation, Span};

    #[test]
    fn commands_are_lines_of_json() {
        let load = Load::new(Operation::Echo, 64, Span::Millis(500)).with_in_flight(8);
        let line = serde_json::to_string(&Command::Load(load)).unwrap();
        assert!(!line.contains('\n'));
        assert_eq!(parse(&line).unwrap(), Command::Load(load));
        assert_eq!(parse("\"usage\"").unwrap(), Command::Usage);
        let error = parse("{\"dance\": 1}").unwrap_err();
        assert!(error.to_string().contains("dance"));
    }
}
