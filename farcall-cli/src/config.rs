//! `farcall config`: settings files.

use farcall::Settings;

use crate::args::{ConfigCommand, Global};
use crate::failure::Failure;
use crate::output::Output;
use crate::target;

pub(crate) fn run(
    global: &Global,
    command: &ConfigCommand,
    output: &Output,
) -> Result<(), Failure> {
    match command {
        ConfigCommand::Check => check(global, output),
        ConfigCommand::Reference => output.text(&Settings::reference()),
    }
}

/// Checks the file, and that each of its targets could be called.
fn check(global: &Global, output: &Output) -> Result<(), Failure> {
    let settings = target::settings(global)?;
    let targets: Vec<_> = settings.targets().collect();
    let servers: Vec<_> = settings.servers().collect();
    for name in &targets {
        let built = settings.channel_builder(name);
        drop(built.map_err(|error| Failure::usage(error.to_string()))?);
    }
    if output.is_json() {
        return output.value(&serde_json::json!({ "targets": targets, "servers": servers }));
    }
    output.line(&format!("{} is valid", global.config.display()))?;
    for (kind, names) in [("targets", targets), ("servers", servers)] {
        let names = if names.is_empty() { "none".into() } else { names.join(", ") };
        output.line(&format!("  {kind}  {names}"))?;
    }
    Ok(())
}
