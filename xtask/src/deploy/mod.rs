//! The step `deploy`: the files of `deploy/` against the schemas and programs that read them.
//!
//! What needs no other program is a test here: names of metrics, and keys of units.

#[cfg(test)]
mod metrics_tests;
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

/// The package of PyPI with Kubernetes' schemas.
const SCHEMAS: [&str; 1] = ["kubernetes-validate"];

/// The script that parses documents and the JSON in them.
const DOCUMENTS: &str = include_str!("documents.py");

/// Checks the files. Returns the names of what could not be checked on this machine.
///
/// # Errors
///
/// Returns an error if a file does not fit its schema, or its program refuses it.
pub(crate) fn check() -> Result<Option<String>> {
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
        true => prometheus()?,
        false => left_out.push("no promtool".to_owned()),
    }
    Ok((!left_out.is_empty()).then(|| left_out.join("; ")))
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
    bounded::run(verify.args(["verify", "--man=no"]).arg(&copy), LIMIT)
        .context("systemd refuses the unit")
}

fn prometheus() -> Result<()> {
    let file = |name| Path::new(FOLDER).join("prometheus").join(name);
    let mut config = Command::new("promtool");
    bounded::run(config.args(["check", "config"]).arg(file("prometheus.yaml")), LIMIT)?;
    let mut rules = Command::new("promtool");
    Ok(bounded::run(rules.args(["check", "rules"]).arg(file("alerts.yaml")), LIMIT)?)
}
