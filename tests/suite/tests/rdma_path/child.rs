//! This binary as another process, which can be killed.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitCode, Stdio};

use farcall_suite::Failure;
use farcall_suite::proto::probe_rpc::ProbeStub;

use crate::rig::{Serving, connect, devices, download, runtime, slow, upload};

/// The variable that says what the process is to do.
const ROLE: &str = "FARCALL_RDMA_PATH_CHILD";

/// The role of a child, each with the reads of [`slow`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Role {
    /// Serves on a host, says on which address, and goes on until it is killed.
    Serve(String),
    /// Sends that many bytes to a server.
    Upload(String, usize),
    /// Receives that many bytes from a server.
    Download(String, usize),
    /// Makes a call of that many bytes, and exits with its connection as it is.
    Leave(String, usize),
}

impl Role {
    fn to_text(&self) -> String {
        match self {
            Self::Serve(host) => format!("serve {host} 0"),
            Self::Upload(authority, len) => format!("upload {authority} {len}"),
            Self::Download(authority, len) => format!("download {authority} {len}"),
            Self::Leave(authority, len) => format!("leave {authority} {len}"),
        }
    }

    fn from_text(text: &str) -> Option<Self> {
        let mut pieces = text.split(' ');
        let (verb, place) = (pieces.next()?, pieces.next()?.to_owned());
        let len = pieces.next()?.parse().ok()?;
        match verb {
            "serve" => Some(Self::Serve(place)),
            "upload" => Some(Self::Upload(place, len)),
            "download" => Some(Self::Download(place, len)),
            "leave" => Some(Self::Leave(place, len)),
            _ => None,
        }
    }
}

/// The role of this process; `None` when it runs the tests.
pub(crate) fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// Plays a role.
pub(crate) fn run(role: &str) -> ExitCode {
    let role = Role::from_text(role).expect("a role");
    match runtime().block_on(play(role)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("child: {failure}");
            ExitCode::FAILURE
        }
    }
}

async fn play(role: Role) -> Result<(), Failure> {
    match role {
        Role::Serve(host) => {
            let serving = Serving::start(&format!("auto://{host}:0"), slow()).await?;
            println!("{}", serving.authority);
            std::future::pending().await
        }
        Role::Upload(authority, len) => {
            let stub = ProbeStub::new(connect(&authority, &devices(slow())).await?);
            println!("connected");
            upload(&stub, len).await
        }
        Role::Download(authority, len) => {
            let stub = ProbeStub::new(connect(&authority, &devices(slow())).await?);
            println!("connected");
            download(&stub, 1, len).await.map(drop)
        }
        Role::Leave(authority, len) => {
            let stub = ProbeStub::new(connect(&authority, &devices(slow())).await?);
            println!("connected");
            upload(&stub, len).await?;
            std::process::exit(0)
        }
    }
}

/// A running child. It says one line when it is ready. Dropped, it is killed.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) child: Child,
    /// Line that it printed.
    pub(crate) line: String,
}

impl Process {
    /// Starts a child and waits until it is ready.
    ///
    /// # Errors
    ///
    /// Returns an error if it cannot be started or ends before it is ready.
    pub(crate) async fn start(role: &Role) -> Result<Self, Failure> {
        let program = std::env::current_exe()?;
        let mut command = Command::new(program);
        command.env(ROLE, role.to_text()).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut process = Self { child: command.spawn()?, line: String::new() };
        let stdout = process.child.stdout.take().expect("its output is piped");
        let read = tokio::task::spawn_blocking(move || {
            let mut line = String::new();
            BufReader::new(stdout).read_line(&mut line).map(|_| line)
        });
        process.line = crate::rig::within("a line of the child", read).await??.trim().to_owned();
        assert!(!process.line.is_empty(), "the child {role:?} ended before it was ready");
        Ok(process)
    }

    /// Kills it with SIGKILL, in the middle of what it does.
    pub(crate) fn kill(mut self) {
        let ended = self.child.try_wait().expect("it is our child");
        assert_eq!(ended, None, "the child had ended before it was killed");
        self.child.kill().expect("it is our child");
        let status = self.child.wait().expect("it is our child");
        assert_eq!(status.code(), None, "it ended by the signal");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have been killed before.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
