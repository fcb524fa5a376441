//! Running a tool that has a server and a client: both start, both end.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use farcall_testkit::process::Process;
use farcall_testkit::process::bounded::tool_output;

use super::listening;

/// Maximum time of one run of a tool, several times its time in emulation.
const RUN_LIMIT: Duration = Duration::from_secs(60);

/// The first port that tools meet on. Each run takes the next one, so that it never meets what an
/// earlier one has left behind.
static PORT: AtomicU16 = AtomicU16::new(18_600);

/// Runs one end as `server` and the other as `client`, each given a port, and returns what the
/// client prints.
///
/// # Errors
///
/// Returns an error if an end cannot be started, fails, or does not end.
pub(super) fn run(
    server: impl FnOnce(u16) -> Command,
    client: impl FnOnce(u16) -> Command,
) -> Result<String> {
    let port = PORT.fetch_add(1, Ordering::Relaxed);
    let mut server = server(port);
    let name = server.get_program().to_string_lossy().into_owned();
    server.stderr(Stdio::null());
    let mut process = Process::start(&format!("server of {name}"), &mut server)?;
    listening::wait(port, &name)?;
    let text = tool_output(&mut client(port), RUN_LIMIT)?;
    let status = process.wait(RUN_LIMIT).with_context(|| format!("after a run of {name}"))?;
    ensure!(status.success(), "the server of {name} failed with {status}");
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_tool_that_is_not_there_is_named() {
        let error = run(|_| Command::new("no-such-tool"), |_| shell("true")).unwrap_err();
        assert!(format!("{error:#}").contains("no-such-tool"), "{error:#}");
    }
}
