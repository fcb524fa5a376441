//! The server that clients from elsewhere call: the program `farcall-interop`.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use farcall_testkit::process::Process;

use crate::rdma_programs::{RdmaProgram, Target};

const START_LIMIT: Duration = Duration::from_secs(30);

const PROGRAM: RdmaProgram = RdmaProgram {
    package: "farcall-rig",
    target: Target::Bin { name: "farcall-interop", test: "soak" },
    arguments: &[],
    limit_seconds: 120,
};

/// The running program, which is killed when this is dropped.
#[derive(Debug)]
pub struct Server {
    _process: Process,
    program: PathBuf,
    /// Host and port without TLS, with it, and with certificates of both sides.
    pub authorities: [String; 3],
    /// The path of the Unix socket.
    pub(super) unix: String,
    /// Host and port for load balancers that send the PROXY header: without TLS, and with TLS
    /// without ALPN.
    pub(super) proxied: [String; 2],
}

impl Server {
    /// Builds and starts it. Pages of `web_origins` have leave to call it.
    ///
    /// # Errors
    ///
    /// Returns an error if it cannot be built or started.
    pub fn start(web_origins: &[&str]) -> Result<Self> {
        let jobs = PROGRAM.build(&Default::default())?;
        let program = jobs.into_iter().next().context("the build produced no program")?.program;
        let mut command = Command::new(&program);
        let mut process = Process::start("the server", command.arg(folder()?).args(web_origins))?;
        let mut next = || {
            let address = process.line(START_LIMIT)?;
            let authority = address.split_once("://").map_or(&*address, |(_, rest)| rest);
            anyhow::Ok(authority.to_owned())
        };
        let authorities = [next()?, next()?, next()?];
        let (unix, proxied) = (next()?, [next()?, next()?]);
        Ok(Self { _process: process, program, authorities, unix, proxied })
    }

    /// The program as a client that runs the cases against `address`.
    pub(super) fn client(&self, address: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["--call", address]);
        command
    }
}

/// The folder of what clients need.
pub fn folder() -> Result<PathBuf> {
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    let folder = std::path::absolute(PathBuf::from(target).join("interop"))?;
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}
