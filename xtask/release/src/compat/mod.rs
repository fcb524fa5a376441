//! `cargo xtask compat`: calls between this version and an earlier one of the same clone.
//!
//! `earlier` chooses and unpacks the earlier version, and `program` links both versions into one
//! program, which makes calls in both directions. Recorded bytes of earlier versions are played by
//! a test of the suite, `recorded`, in every build. Simulated RDMA has no row of its own: its
//! network lives in one version's types, so that two versions cannot share one.

mod earlier;
mod program;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Args;
use farcall_testkit::process::bounded;

use xtask::batch::{self, Job};
use xtask::cargo;
use xtask::kernel::Series;
use xtask::rdma_place::RdmaPlace;
use xtask::setup::{self, Purpose};

/// Arguments of `cargo xtask compat`.
#[derive(Debug, Args)]
pub(crate) struct CompatOptions {
    /// The earlier version: a tag or a commit. Without it, the newest tag before HEAD, or HEAD's
    /// parent where there is no tag.
    #[arg(long, value_name = "REV")]
    commit: Option<String>,
    /// Call over RDMA, too: on this host's device or in the virtual machine.
    #[arg(long)]
    rdma: bool,
    /// The kernel of the virtual machine.
    #[arg(long, value_enum, default_value_t = Series::V6_1)]
    kernel: Series,
    /// Record this version's bytes for later versions, instead of calling.
    #[arg(long, conflicts_with_all = ["commit", "rdma"])]
    record: bool,
}

/// Eleven checks of at most 30 s, in two directions. They take seconds.
const LIMIT_SECONDS: u64 = 600;

/// A build of the suite from nothing.
const RECORD_LIMIT: Duration = Duration::from_secs(1800);

/// Builds both versions and calls in both directions, or records.
///
/// # Errors
///
/// Returns an error if a version cannot be built, or a check fails.
pub(crate) fn run(options: &CompatOptions) -> Result<()> {
    setup::ensure(&[Purpose::Build])?;
    if options.record {
        return record();
    }
    let folder = folder()?;
    let tree = earlier::unpack(options.commit.as_deref(), &folder)?;
    let executable = program::build(&tree, &folder)?;
    let job = |addresses: Vec<String>| Job {
        name: format!("compat with {}", tree.name),
        program: executable.clone(),
        arguments: addresses,
        variables: Vec::new(),
        directory: folder.clone(),
        limit_seconds: LIMIT_SECONDS,
    };
    let socket = std::env::temp_dir().join(format!("farcall-compat-{}", std::process::id()));
    let unix = format!("unix://{}", socket.display());
    let loopback = ["tcp", "auto"].map(|scheme| format!("{scheme}://127.0.0.1:0"));
    batch::run(&[job([&loopback[..], &[unix]].concat())])?;
    if options.rdma {
        let place = RdmaPlace::find(options.kernel);
        setup::ensure(place.purposes())?;
        place.announce();
        let [server, _] = place.addresses();
        place.run(&[job(vec![format!("rdma://{server}:0")])])?;
    }
    Ok(())
}

/// The folder of everything that this command makes.
fn folder() -> Result<PathBuf> {
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    let folder = std::path::absolute(PathBuf::from(target).join("compat"))?;
    std::fs::create_dir_all(&folder).with_context(|| format!("{}", folder.display()))?;
    Ok(folder)
}

/// Makes the tests that play recordings write them.
fn record() -> Result<()> {
    for (package, filter) in [("farcall-suite", "recorded"), ("rpc-transport-rdma", "--lib")] {
        let mut command = cargo::command(["test", "--package", package]);
        match filter {
            "--lib" => command.args(["--lib", "recorded"]),
            test => command.args(["--test", test]),
        };
        command.env("FARCALL_WRITE_GOLDEN", "1");
        bounded::run(&mut command, RECORD_LIMIT)?;
    }
    println!(
        "recorded: look at the changes of `git diff` under tests/suite and rpc-transport-rdma"
    );
    Ok(())
}
