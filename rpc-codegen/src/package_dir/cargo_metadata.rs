//! The query to cargo for a package's location.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use crate::error::CodegenError;

/// See [`package_dir`](super::package_dir).
pub(super) fn find_package(name: &str) -> Result<PathBuf, CodegenError> {
    let dir = std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| ".".into(), PathBuf::from);
    let manifest = dir.join("Cargo.toml");
    let metadata = metadata(&manifest)?;
    let is_build_script = std::env::var_os("OUT_DIR").is_some();
    if let Some(root) = metadata["workspace_root"].as_str().filter(|_| is_build_script) {
        println!("cargo:rerun-if-changed={}", Path::new(root).join("Cargo.lock").display());
    }
    find(&metadata, name, &manifest)
}

/// Runs `cargo metadata` on the manifest, without the network if possible.
fn metadata(manifest: &Path) -> Result<Value, CodegenError> {
    let mut last = run(manifest, &["--locked", "--offline"])?;
    if !last.1.status.success() {
        last = run(manifest, &["--locked"])?;
    }
    let (command, output) = last;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(CodegenError::CargoMetadata { command, message });
    }
    serde_json::from_slice(&output.stdout)
        .map_err(|error| CodegenError::CargoMetadata { command, message: error.to_string() })
}

fn run(manifest: &Path, flags: &[&str]) -> Result<(String, Output), CodegenError> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["metadata", "--format-version=1"]).args(flags);
    command.arg("--manifest-path").arg(manifest);
    let text = format!("{command:?}");
    match command.output() {
        Ok(output) => Ok((text, output)),
        Err(reason) => Err(CodegenError::CargoStart { command: text, reason }),
    }
}

/// Returns the directory of the dependency `name` of the manifest's package.
fn find(metadata: &Value, name: &str, manifest: &Path) -> Result<PathBuf, CodegenError> {
    let dependencies = dependencies(metadata, manifest);
    let is_wanted = |package: &&Value| {
        package["name"] == name && dependencies.iter().any(|id| **id == package["id"])
    };
    let found: Vec<&Value> = array(&metadata["packages"]).filter(is_wanted).collect();
    let (name, manifest) = (name.to_owned(), manifest.to_owned());
    match found[..] {
        [] => Err(CodegenError::PackageNotFound { name, manifest }),
        [package] => match package["manifest_path"].as_str().map(|path| Path::new(path).parent()) {
            Some(Some(dir)) => Ok(dir.to_owned()),
            _ => Err(CodegenError::PackageNotFound { name, manifest }),
        },
        _ => {
            let versions = found.iter().filter_map(|package| package["version"].as_str());
            let versions = versions.map(str::to_owned).collect();
            Err(CodegenError::PackageAmbiguous { name, manifest, versions })
        }
    }
}

/// Returns the package IDs of the dependencies of the manifest's package.
fn dependencies<'a>(metadata: &'a Value, manifest: &Path) -> Vec<&'a Value> {
    let is_asking = |package: &&Value| {
        package["manifest_path"]
            .as_str()
            .is_some_and(|path| is_same_file(Path::new(path), manifest))
    };
    let asking = array(&metadata["packages"]).find(is_asking).map(|package| &package["id"]);
    let nodes = array(&metadata["resolve"]["nodes"]);
    let asking_nodes = nodes.filter(|node| Some(&node["id"]) == asking);
    asking_nodes
        .flat_map(|node| array(&node["deps"]))
        .map(|dependency| &dependency["pkg"])
        .collect()
}

fn is_same_file(one: &Path, other: &Path) -> bool {
    match (one.canonicalize(), other.canonicalize()) {
        (Ok(one), Ok(other)) => one == other,
        _ => one == other,
    }
}

fn array(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sample() -> Value {
        let package = |name: &str, version: &str| {
            json!({
                "name": name, "version": version, "id": format!("{name}@{version}"),
                "manifest_path": format!("/crates/{name}-{version}/Cargo.toml"),
            })
        };
        json!({
            "packages": [
                package("me", "1.0.0"), package("protos", "2.0.0"), package("protos", "1.0.0"),
                package("twice", "1.0.0"), package("twice", "2.0.0"),
            ],
            "resolve": { "nodes": [{ "id": "me@1.0.0", "deps": [
                { "pkg": "protos@1.0.0" }, { "pkg": "twice@1.0.0" }, { "pkg": "twice@2.0.0" },
            ]}]},
        })
    }

    #[test]
    fn the_version_of_the_asking_package_is_found() {
        let manifest = Path::new("/crates/me-1.0.0/Cargo.toml");
        let dir = find(&sample(), "protos", manifest).unwrap();
        assert_eq!(dir, Path::new("/crates/protos-1.0.0"));
    }

    #[test]
    fn errors_name_the_manifest_and_the_package() {
        let manifest = Path::new("/crates/me-1.0.0/Cargo.toml");
        let absent = find(&sample(), "nothing", manifest).unwrap_err().to_string();
        assert_eq!(absent, "nothing is not a dependency of /crates/me-1.0.0/Cargo.toml");
        let twice = find(&sample(), "twice", manifest).unwrap_err().to_string();
        assert!(twice.contains("twice in versions 1.0.0, 2.0.0"), "{twice}");
    }

    #[test]
    fn cargo_finds_a_dependency_of_this_crate() {
        let dir = find_package("prost-types").unwrap();
        assert!(dir.join("Cargo.toml").is_file(), "{}", dir.display());
    }
}
