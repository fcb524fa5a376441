//! Finds the package whose `.proto` files are compiled, in cargo's downloads.

use std::env;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The folder of the package `name`, of which one version is locked.
pub(crate) fn package(name: &str) -> Result<PathBuf, Box<dyn Error>> {
    let mut command = Command::new(env::var("CARGO")?);
    command.args(["metadata", "--format-version=1", "--locked"]);
    let output = command.current_dir(env::var("CARGO_MANIFEST_DIR")?).output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let mut named = packages.filter(|package| package["name"] == name);
    let manifest = named.next().and_then(|package| package["manifest_path"].as_str());
    let folder = manifest.and_then(|manifest| Path::new(manifest).parent());
    Ok(folder.ok_or_else(|| format!("{name} is not among the packages"))?.to_owned())
}
