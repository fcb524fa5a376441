//! The step `deploy`: the files of `deploy/` against the schemas and programs that read them.
//!
//! What needs no other program is a test here: names of metrics, and keys of units.

#[cfg(test)]
mod metrics_tests;
mod prometheus;
#[cfg(test)]
mod unit_tests;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use farcall_testkit::process::bounded;

use crate::interop;

/// The folder.
const FOLDER: &str = "deploy";

/// Maximum time of each program.
const LIMIT: Duration = Duration::from_secs(120);

/// The programs that check something here.
const PROGRAMS: usize = 4;

/// The package of PyPI with Kubernetes' schemas.
const SCHEMAS: [&str; 1] = ["kubernetes-validate"];

/// The script that parses documents and the JSON in them.
const DOCUMENTS: &str = include_str!("documents.py");

/// The result of a check that nothing failed.
pub(crate) enum Checked {
    /// Every program was there.
    Whole,
    /// Some were not, as the text says.
    Partly(String),
    /// None was there.
    Nothing(String),
}

/// Checks the files by the programs that this machine has.
///
/// # Errors
///
/// Returns an error if a file does not fit its schema, or its program refuses it.
pub(crate) fn check() -> Result<Checked> {
    let mut left_out = Vec::new();
    match interop::environment_with(&SCHEMAS, "import kubernetes_validate, yaml") {
        Ok(python) => manifests(&python)?,
        Err(error) => left_out.push(format!("manifests: {error:#}")),
    }
    match bounded::succeeds(Command::new("systemd-analyze").arg("--version"), LIMIT) {
        true => unit()?,
        false => left_out.push("no systemd-analyze".to_owned()),
    }
    match bounded::succeeds(Command::new("promtool").arg("--version"), LIMIT) {
        true => prometheus::check_files()?,
        false => left_out.push("no promtool".to_owned()),
    }
    match bounded::succeeds(Command::new("prometheus").arg("--version"), LIMIT) {
        true => prometheus::scrape()?,
        false => left_out.push("no prometheus (Debian: prometheus)".to_owned()),
    }
    let names = left_out.join("; ");
    Ok(match left_out.len() {
        0 => Checked::Whole,
        PROGRAMS => Checked::Nothing(names),
        _ => Checked::Partly(names),
    })
}

fn manifests(python: &Path) -> Result<()> {
    let mut schemas = Command::new(python);
    schemas.args(["-m", "kubernetes_validate", "--strict"]);
    schemas.args(files(&Path::new(FOLDER).join("kubernetes"))?);
    bounded::run(&mut schemas, LIMIT).context("a manifest does not fit Kubernetes' schemas")?;
    let mut documents = Command::new(python);
    bounded::run(documents.args(["-c", DOCUMENTS, FOLDER]), LIMIT)?;
    Ok(())
}

/// The files in a folder, in order.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut files: Vec<_> =
        entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
    files.sort();
    Ok(files)
}

/// Verifies by systemd a copy of the unit, whose program is one of this machine.
fn unit() -> Result<()> {
    let text = fs::read_to_string(Path::new(FOLDER).join("systemd/orders.service"))?;
    let folder = tempfile::tempdir()?;
    let copy = folder.path().join("orders.service");
    fs::write(&copy, text.replace("/usr/local/bin/orders", "/bin/true"))?;
    let mut verify = Command::new("systemd-analyze");
    // Without the last of these, keys and values that it does not know are a warning alone.
    bounded::run(verify.args(["verify", "--man=no", "--recursive-errors=no"]).arg(&copy), LIMIT)
        .context("systemd refuses the unit")
}
