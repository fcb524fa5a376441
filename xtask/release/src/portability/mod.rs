//! `cargo xtask portability`: the README's commands as a new user runs them, on a bare Debian.
//!
//! A machine is a folder with a fresh Debian, entered by `chroot` in namespaces of its own. It has
//! what the README asks for and a fresh clone of what is committed, and nothing else: its
//! crates and packages come from the registries, as a new user's do.
//!
//! `options` says what is tried, `network` how this host reaches the registries, `machine` makes
//! and enters the folders, `trial` runs a command in one, and `table` shows how all went.

mod machine;
mod network;
mod options;
mod table;
mod trial;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use farcall_testkit::process::bounded;
use machine::{BareDebian, Machine, Source};
pub(crate) use options::PortabilityOptions;
use options::{Suite, User};
use table::Table;
use trial::Trial;
use xtask::interrupt;
use xtask::setup::{self, Purpose};

const PROBE_LIMIT: Duration = Duration::from_secs(30);

/// Runs every chosen command as every chosen user on every chosen suite, then shows how they went.
///
/// # Errors
///
/// Returns an error if this process is not root, when this host has no toolchain to show to the
/// machines, or if a command has failed; the table has been printed by then.
pub(crate) fn run(options: &PortabilityOptions) -> Result<()> {
    if !nix::unistd::geteuid().is_root() {
        bail!(
            "creating and entering a bare Debian needs root: run \
             `sudo env \"PATH=$PATH\" \"HOME=$HOME\" cargo xtask portability`"
        );
    }
    setup::ensure(&[Purpose::Portability])?;
    let source = source()?;
    let folder = target_folder()?.join("portability");
    let mut table = Table::default();
    for suite in options.suites() {
        try_suite(options, suite, &source, &folder.join(suite.to_string()), &mut table);
        if interrupt::requested() {
            break;
        }
    }
    println!("\n{table}");
    match table.failed_count() {
        0 if interrupt::requested() => bail!("interrupted"),
        0 => Ok(()),
        count => bail!("{count} of {} failed", table.count()),
    }
}

fn try_suite(
    options: &PortabilityOptions,
    suite: Suite,
    source: &Source,
    folder: &Path,
    table: &mut Table,
) {
    let bare = match BareDebian::make(suite, options.mirror(), folder) {
        Ok(bare) => bare,
        Err(error) => {
            let trials = options.users().into_iter().flat_map(|user| trials(options, suite, user));
            trials.for_each(|trial| table.add(trial.prevented(&error)));
            return;
        }
    };
    for user in options.users() {
        try_user(options, &bare, user, source, table);
        if interrupt::requested() {
            return;
        }
    }
}

/// Returns the trials of `user` on `suite`.
fn trials(options: &PortabilityOptions, suite: Suite, user: User) -> Vec<Trial> {
    let commands = options.commands().into_iter();
    commands.map(|(command, text)| Trial::new(suite, user, command, text)).collect()
}

fn try_user(
    options: &PortabilityOptions,
    bare: &BareDebian,
    user: User,
    source: &Source,
    table: &mut Table,
) {
    let trials = trials(options, bare.suite(), user);
    let machine = match Machine::make(bare, user, source) {
        Ok(machine) => machine,
        Err(error) => {
            trials.iter().for_each(|trial| table.add(trial.prevented(&error)));
            return;
        }
    };
    for trial in &trials {
        table.add(trial.run(&machine));
        if interrupt::requested() {
            return;
        }
    }
    if options.keeps_machines() {
        eprintln!("xtask: the machine is kept in {}", machine.root().display());
    } else if let Err(error) = machine.remove() {
        eprintln!("xtask: {error:#}");
    }
}

/// Returns the files that machines get from this host: the commit that is checked out, and the
/// toolchain that runs this program.
fn source() -> Result<Source> {
    let printed_by = |program: &str, arguments: &[&str]| {
        let printed = bounded::output(Command::new(program).args(arguments), PROBE_LIMIT)?;
        Ok::<String, anyhow::Error>(printed.trim().to_owned())
    };
    let toolchain = PathBuf::from(printed_by("rustc", &["--print", "sysroot"])?);
    if toolchain == Path::new("/usr") {
        // Mounting it would show all programs of this host to a machine that is to be bare.
        bail!("the machines need a toolchain of rustup's, but this host's Rust is in /usr");
    }
    let repository = PathBuf::from(printed_by("git", &["rev-parse", "--show-toplevel"])?);
    let commit = printed_by("git", &["rev-parse", "HEAD"])?;
    if !printed_by("git", &["status", "--porcelain"])?.is_empty() {
        eprintln!(
            "xtask: the tree has uncommitted changes: the machines get {commit} without \
                   them"
        );
    }
    Ok(Source { repository, commit, toolchain })
}

fn target_folder() -> Result<PathBuf> {
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    std::path::absolute(target).context("finding the target folder")
}
