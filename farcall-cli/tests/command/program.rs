//! Runs of the built command, within a bound.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use farcall_testkit::process::{Process, ProcessLog, Signal};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

const LIMIT: Duration = Duration::from_secs(60);

/// The end of a run.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    /// Returns the standard output of a run that succeeded.
    #[track_caller]
    pub(crate) fn succeeded(self) -> String {
        assert_eq!(self.code, 0, "{self:?}");
        self.stdout
    }

    /// Checks the exit code, and that the standard error has `part`.
    #[track_caller]
    pub(crate) fn failed(self, code: i32, part: &str) {
        assert_eq!(self.code, code, "{self:?}");
        assert!(self.stderr.contains(part), "{part}: {self:?}");
    }
}

/// Runs `farcall` with arguments that have no spaces of their own.
pub(crate) async fn farcall(line: &str) -> Ran {
    farcall_with(&line.split_whitespace().collect::<Vec<_>>(), "").await
}

/// Runs `farcall` with these arguments and this standard input.
pub(crate) async fn farcall_with(arguments: &[&str], input: &str) -> Ran {
    farcall_in(Path::new("."), arguments, input).await
}

/// Runs `farcall` in a folder.
pub(crate) async fn farcall_in(folder: &Path, arguments: &[&str], input: &str) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_farcall"));
    command
        .current_dir(folder)
        .args(arguments)
        .env("NO_COLOR", "1")
        .env_remove("COLUMNS")
        .kill_on_drop(true);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let run = async {
        let mut child = command.spawn().unwrap_or_else(|error| panic!("it starts: {error}"));
        if let Some(mut stdin) = child.stdin.take() {
            // A command that fails early reads nothing.
            let _ = stdin.write_all(input.as_bytes()).await;
        }
        child.wait_with_output().await.unwrap_or_else(|error| panic!("it ends: {error}"))
    };
    let output = tokio::time::timeout(LIMIT, run).await;
    let output = output.unwrap_or_else(|_| panic!("{arguments:?} takes over {LIMIT:?}"));
    let text = |bytes| String::from_utf8(bytes).unwrap_or_else(|error| panic!("UTF-8: {error}"));
    let code = output.status.code().unwrap_or(-1);
    Ran { code, stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// A command that runs until it is stopped. It is killed with the test.
pub(crate) struct Started {
    process: Process,
    /// The first line of its output.
    pub(crate) line: String,
}

impl Started {
    /// Starts `farcall`, and waits for its first line.
    pub(crate) fn new(arguments: &[&str]) -> Self {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_farcall"));
        command.args(arguments).stderr(Stdio::piped());
        let process = Process::start("farcall", &mut command);
        let mut process = process.unwrap_or_else(|error| panic!("{error}"));
        let line = process.line(LIMIT).unwrap_or_else(|error| panic!("{arguments:?}: {error}"));
        Self { process, line }
    }

    /// Returns its log from now on.
    pub(crate) fn log(&mut self) -> ProcessLog {
        self.process.log().unwrap_or_else(|| panic!("its log is read once"))
    }

    /// Returns the next line of its output.
    pub(crate) fn next_line(&mut self) -> String {
        self.process.line(LIMIT).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Presses Ctrl-C.
    pub(crate) fn interrupt(&self) {
        self.process.signal(Signal::SIGINT).unwrap_or_else(|error| panic!("{error}"));
    }

    /// Waits for its end, and returns its exit code.
    pub(crate) fn exit_code(&mut self) -> Option<i32> {
        self.process.wait(LIMIT).unwrap_or_else(|error| panic!("{error}")).code()
    }
}
