//! One side of a comparison: which program serves and calls, and with which arguments.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::setting::Setting;
use crate::worker::Role;

/// One side of a comparison.
#[derive(Debug, Clone)]
pub struct Side {
    /// Name in results.
    pub name: String,
    /// The program whose subcommand `worker` is started.
    pub(super) program: PathBuf,
    /// Address that the server listens on.
    pub(super) address: String,
    /// Arguments of both workers.
    pub(super) arguments: Vec<String>,
}

impl Side {
    /// A side whose workers have no arguments of their own.
    #[must_use]
    pub fn new(name: &str, program: &Path, address: &str) -> Self {
        Self {
            name: name.to_owned(),
            program: program.to_owned(),
            address: address.to_owned(),
            arguments: Vec::new(),
        }
    }

    /// With further arguments of both workers.
    #[must_use]
    pub fn with_arguments(mut self, arguments: &[&str]) -> Self {
        self.arguments.extend(arguments.iter().map(|&argument| argument.to_owned()));
        self
    }

    /// Returns the name in results.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// With another name.
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        Self { name: name.to_owned(), ..self }
    }

    /// The command that starts one of its workers at `address`.
    pub(super) fn command(&self, role: Role, address: &str, setting: &Setting) -> Result<Command> {
        let mut command = setting.placement.command(&self.program)?;
        command.arg("worker").args(&self.arguments);
        command.arg("--threads").arg(setting.threads.to_string());
        command.arg("--connections").arg(setting.connections.to_string());
        command.arg(match role {
            Role::Server => "server",
            Role::Client => "client",
        });
        command.arg(address);
        Ok(command)
    }
}
