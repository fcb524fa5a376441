//! `cargo xtask package`: packs the crates that users need, looks into the packages, and has a
//! crate outside of the workspace built against them, as the README of farcall tells its readers.
//!
//! `packed` makes and unpacks the packages, `contents` says what belongs into one, `readme` finds
//! the reader's files in the README, `user` builds and starts the reader's crate, `mistakes` reads
//! what the reader is told of a wrong one, `published` has services of other people's crates
//! served, and `weight` compares what it costs to build with tonic's. Nothing here publishes.

mod contents;
mod mistakes;
mod packed;
mod published;
mod readme;
mod user;
mod weight;

use std::fmt::{self, Write as _};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use farcall_testkit::table::Columns;

use packed::Packed;
use xtask::cargo;
use xtask::setup::{self, Purpose};

/// Arguments of `cargo xtask package`.
#[derive(Debug, Default, Args)]
pub(crate) struct PackageOptions {
    /// Name every file of every package.
    #[arg(long)]
    list: bool,
    /// Serve services that other crates publish, too: OpenTelemetry's, gRPC's health, Arrow Flight.
    #[arg(long)]
    published: bool,
    /// Build the reader's crate and tonic's from nothing as often as this, and compare them.
    #[arg(long, value_name = "RUNS", value_parser = clap::value_parser!(u8).range(1..=20))]
    weight: Option<u8>,
}

/// The crate whose README tells a reader how to begin.
const ENTRANCE: &str = "farcall";

/// Packs, checks, builds the reader's crate, and prints a table.
///
/// # Errors
///
/// Returns an error if cargo is too old, a package lacks something or has too much, or the reader's
/// crate does not build or does not do its call.
pub(crate) fn run(options: &PackageOptions) -> Result<()> {
    setup::ensure(&[Purpose::Build])?;
    if let Some(reason) = cargo::too_old_to_pack()? {
        bail!(reason);
    }
    let packages = checked()?;
    if options.list {
        for package in &packages {
            for file in &package.files {
                println!("{}/{file}", package.name);
            }
        }
    }
    println!("{}", table(&packages));
    if options.published {
        published::are_served(&packages)?;
    }
    if let Some(runs) = options.weight {
        println!("{}", weight::compare(entrance(&packages)?, &packages, runs)?);
    }
    Ok(())
}

/// The packages, once they have been seen to be right and used.
fn checked() -> Result<Vec<Packed>> {
    let packages = packed::pack()?;
    let faults: Vec<String> = packages.iter().flat_map(contents::faults).collect();
    if !faults.is_empty() {
        bail!("faulty packages:\n{}", faults.join("\n"));
    }
    user::try_out(entrance(&packages)?, &packages)?;
    mistakes::are_explained(entrance(&packages)?, &packages)?;
    Ok(packages)
}

fn entrance(packages: &[Packed]) -> Result<&Packed> {
    let entrance = packages.iter().find(|package| package.name == ENTRANCE);
    entrance.with_context(|| format!("{ENTRANCE} is not among the packages"))
}

fn table(packages: &[Packed]) -> String {
    let columns = Columns::new()
        .left("package", 20)
        .right("files", 6)
        .right("KiB", 10)
        .right("KiB packed", 10);
    let mut table = format!("{}\n", columns.heading());
    for Packed { name, files, len, packed_len, .. } in packages {
        let (files, len, packed_len) = (files.len(), len.div_ceil(1024), packed_len.div_ceil(1024));
        let cells: [&dyn fmt::Display; 4] = [name, &files, &len, &packed_len];
        // Writing to a string cannot fail.
        let _ = writeln!(table, "{}", columns.line(cells));
    }
    table
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn the_table_has_a_row_a_package() {
        let package = Packed {
            name: "farcall".into(),
            folder: PathBuf::new(),
            files: vec!["Cargo.toml".into(), "src/lib.rs".into()],
            len: 2049,
            packed_len: 1024,
        };
        let expected = "package               files        KiB KiB packed\n\
                        farcall                   2          3          1\n";
        assert_eq!(table(&[package]), expected);
    }
}
