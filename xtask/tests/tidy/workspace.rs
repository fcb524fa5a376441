//! Reading the workspace: its packages as cargo sees them, and its files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use crate::manifests::Manifest;
use crate::source::Source;

/// The workspace that this test belongs to.
#[derive(Debug)]
pub(crate) struct Workspace {
    /// Its folder.
    pub(crate) root: PathBuf,
    /// Its packages.
    pub(crate) packages: Vec<Package>,
}

/// A package, in what the rules look at.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) manifest_path: PathBuf,
    pub(crate) dependencies: Vec<Dependency>,
    pub(crate) targets: Vec<Target>,
    #[serde(flatten)]
    pub(crate) manifest: Manifest,
}

/// A dependency of a package.
#[derive(Debug, Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// `dev` or `build`; nothing for an ordinary one.
    pub(crate) kind: Option<String>,
}

/// A library, program or test of a package.
#[derive(Debug, Deserialize)]
pub(crate) struct Target {
    pub(crate) kind: Vec<String>,
    pub(crate) src_path: PathBuf,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    workspace_root: PathBuf,
}

impl Workspace {
    pub(crate) fn load() -> Self {
        let output = Command::new(env!("CARGO"))
            .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output()
            .expect("cargo can be started");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "cargo metadata failed: {errors}");
        let metadata: Metadata =
            serde_json::from_slice(&output.stdout).expect("cargo prints what it documents");
        Self { root: metadata.workspace_root, packages: metadata.packages }
    }

    /// All Rust files.
    pub(crate) fn sources(&self) -> Vec<Source> {
        let is_rust = |path: &&PathBuf| path.extension().is_some_and(|extension| extension == "rs");
        self.files().iter().filter(is_rust).map(|path| self.source(path)).collect()
    }

    /// All files that are text, by path.
    pub(crate) fn text_files(&self) -> Vec<(String, String)> {
        let read = |path: &PathBuf| Some((self.relative(path), fs::read_to_string(path).ok()?));
        self.files().iter().filter_map(read).collect()
    }

    /// The first files of all libraries, programs, examples and benchmarks.
    pub(crate) fn crate_roots(&self) -> Vec<Source> {
        let is_root = |target: &&Target| {
            target.kind.iter().all(|kind| kind != "test" && kind != "custom-build")
        };
        let targets = self.packages.iter().flat_map(|package| &package.targets);
        targets.filter(is_root).map(|target| self.source(&target.src_path)).collect()
    }

    fn source(&self, path: &Path) -> Source {
        let text = fs::read_to_string(path)
            .unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()));
        Source { path: self.relative(path), text }
    }

    fn relative(&self, path: &Path) -> String {
        path.strip_prefix(&self.root).unwrap_or(path).display().to_string()
    }

    fn files(&self) -> Vec<PathBuf> {
        let mut files = Vec::new();
        add_files(&self.root, &mut files);
        files.sort();
        files
    }
}

/// Adds the files below `folder`, but not what cargo and git keep there.
fn add_files(folder: &Path, files: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("cannot read {}: {error}", folder.display()));
    for entry in entries.map(|entry| entry.expect("a readable folder")) {
        let path = entry.path();
        let kind = entry.file_type().expect("a file has a kind");
        let name = entry.file_name();
        if name == ".git" {
            // A folder, or a file where the checkout is a linked one.
            continue;
        }
        if kind.is_dir() && name != "target" {
            add_files(&path, files);
        } else if kind.is_file() {
            files.push(path);
        }
    }
}
