//! The environment of every figure.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;

use super::effort::Effort;
use super::options::Options;
use super::place::Place;
use super::side::Side;
use crate::subjects::Certificates;

/// The environment of every figure: the effort, and the paths of the programs.
#[derive(Debug)]
pub struct Bench {
    /// Effort of each measurement.
    pub effort: Effort,
    /// The RDMA devices, where those are measured.
    pub place: Place,
    /// This program, which has workers of its own.
    program: PathBuf,
    peers: PathBuf,
    /// Certificates, once a side wants them.
    tls: OnceCell<TempDir>,
}

impl Bench {
    /// Makes the environment that `options` describe.
    ///
    /// # Errors
    ///
    /// Returns an error if this program's path is unknown.
    pub fn new(options: &Options) -> Result<Self> {
        Self::at(options.effort(), options.place.clone(), options.peers.clone())
    }

    /// Makes an environment with this effort and these devices, and the peers of that program or of
    /// the one next to this.
    ///
    /// # Errors
    ///
    /// Returns an error if this program's path is unknown.
    pub fn at(effort: Effort, place: Place, peers: Option<PathBuf>) -> Result<Self> {
        let program = std::env::current_exe().context("where this program is")?;
        let beside = program.with_file_name("farcall-bench-peers");
        let peers = peers.unwrap_or(beside);
        Ok(Self { effort, place, program, peers, tls: OnceCell::new() })
    }

    /// farcall over the transport of `address`.
    #[must_use]
    pub fn farcall(&self, address: &str) -> Side {
        Side::new("farcall", &self.program, address).with_arguments(&["--subject", "farcall"])
    }

    /// Another subject of this crate, on a TCP port of loopback.
    #[must_use]
    pub fn built_in(&self, subject: &str) -> Side {
        Side::new(subject, &self.program, LOOPBACK).with_arguments(&["--subject", subject])
    }

    /// `side` over TLS, with certificates of its own, under another name.
    ///
    /// # Errors
    ///
    /// Returns an error if the certificates cannot be made.
    pub fn over_tls(&self, side: Side) -> Result<Side> {
        if self.tls.get().is_none() {
            let folder = tempfile::tempdir().context("a folder for certificates")?;
            Certificates::make(folder.path()).context("certificates")?;
            // It was empty.
            let _ = self.tls.set(folder);
        }
        let folder = self.tls.get().context("certificates")?.path().display().to_string();
        let name = format!("{} over TLS", side.name);
        Ok(side.with_arguments(&["--tls", &folder]).named(&name))
    }

    /// A peer, on a TCP port of loopback.
    ///
    /// # Errors
    ///
    /// Returns an error if the program with the peers is not there.
    pub fn peer(&self, subject: &str) -> Result<Side> {
        self.peer_at(subject, LOOPBACK)
    }

    /// A peer that listens at `address`.
    ///
    /// # Errors
    ///
    /// Returns an error if the program with the peers is not there.
    pub fn peer_at(&self, subject: &str, address: &str) -> Result<Side> {
        require(&self.peers)?;
        let side = Side::new(subject, &self.peers, address);
        Ok(side.with_arguments(&["--subject", subject]))
    }

    /// farcall over TCP and the subjects that it is compared with; where every peer is wanted, also
    /// those of `others`.
    ///
    /// # Errors
    ///
    /// Returns an error if the program with the peers is needed and not there.
    pub fn sides(&self, needed: &[&str], others: &[&str]) -> Result<Vec<Side>> {
        let mut sides = vec![self.farcall(LOOPBACK)];
        let others = if self.effort.all_peers { others } else { &[] };
        for &subject in needed.iter().chain(others) {
            sides.push(match subject {
                "std" | "mux" => self.built_in(subject),
                _ => self.peer(subject)?,
            });
        }
        Ok(sides)
    }

    /// The twin of a program of ours that counts allocations.
    ///
    /// # Errors
    ///
    /// Returns an error if it is not there.
    pub fn counting(&self, side: Side) -> Result<Side> {
        let mut name = side.program.file_name().unwrap_or_default().to_owned();
        name.push("-counting");
        let program = side.program.with_file_name(name);
        require(&program)?;
        Ok(Side { program, ..side })
    }
}

/// Listening address of servers that are measured over TCP.
pub const LOOPBACK: &str = "tcp://127.0.0.1:0";

fn require(program: &Path) -> Result<()> {
    ensure!(program.is_file(), "{} is not built; `cargo xtask bench` builds it", program.display());
    Ok(())
}

/// The commit that is checked out where the driver runs, marked when files differ from it.
pub(crate) fn commit() -> String {
    farcall_testkit::git::commit().unwrap_or_else(|_| "unknown".to_owned())
}

/// Processor, cores and kernel, in a line.
pub(crate) fn machine() -> String {
    let read = |file| std::fs::read_to_string(file).unwrap_or_default();
    let (processors, kernel) = (read("/proc/cpuinfo"), read("/proc/sys/kernel/osrelease"));
    let model = processors.lines().find_map(|line| line.strip_prefix("model name"));
    let model = model.map_or("unknown processor", |rest| rest.trim_start_matches([' ', '\t', ':']));
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    format!("{model}, {cores} cores, Linux {}", kernel.trim())
}
