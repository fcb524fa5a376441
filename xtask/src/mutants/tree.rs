//! The tree that mutants are built in: one reduced package, at the path that its crate has in the
//! workspace. A whole crate would be built anew for every mutant, and with it, for its tests, the
//! crates above it; the pure modules alone take a few seconds.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::machines::{MACHINES, Reduced};
use crate::measure::lines::without_tests;

/// Makes the tree of a crate anew below `folder`. What is built there by an earlier run stays.
///
/// # Errors
///
/// When a file cannot be copied.
pub(super) fn make(workspace: &Path, reduced: &Reduced, folder: &Path) -> Result<PathBuf> {
    let tree = folder.join(reduced.folder);
    let package = tree.join(reduced.folder);
    let sources = package.join("src");
    if sources.exists() {
        fs::remove_dir_all(&sources).with_context(|| format!("removing {}", sources.display()))?;
    }
    let original = workspace.join(reduced.folder).join("src");
    for source in reduced.sources {
        copy(&original.join(source), &sources.join(source))?;
    }
    // Tests of what is built only because the machines need it may need more.
    for helper in reduced.sources.iter().filter(|source| !has_tests(reduced, source)) {
        drop_tests(&sources.join(helper))?;
    }
    write(&sources.join("lib.rs"), reduced.root)?;
    write(&package.join("Cargo.toml"), &package_manifest(reduced))?;
    let root = fs::read_to_string(workspace.join("Cargo.toml")).context("reading Cargo.toml")?;
    write(&tree.join("Cargo.toml"), &root_manifest(&root, workspace, reduced))?;
    copy(&workspace.join("Cargo.lock"), &tree.join("Cargo.lock"))?;
    Ok(tree)
}

/// Whether one of the files and folders that are built has tests of a machine.
fn has_tests(reduced: &Reduced, source: &str) -> bool {
    let of_crate = MACHINES.iter().filter(|machine| machine.of == *reduced);
    of_crate.into_iter().any(|machine| machine.is_tested_by(source))
}

/// Cuts off the tests at the end of a file, or of all files in a folder.
fn drop_tests(path: &Path) -> Result<()> {
    if !path.is_dir() {
        let text = fs::read_to_string(path).with_context(|| format!("{}", path.display()))?;
        return write(path, without_tests(&text));
    }
    for entry in fs::read_dir(path).with_context(|| format!("{}", path.display()))? {
        drop_tests(&entry?.path())?;
    }
    Ok(())
}

fn package_manifest(reduced: &Reduced) -> String {
    format!(
        "[package]\nname = \"{}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n\
         [lib]\ndoctest = false\n\n\
         [features]\ndefault = [\"sim\", \"transport\"]\nsim = []\ntransport = []\n\n\
         [lints.rust]\nunexpected_cfgs = \"allow\"\n\n\
         [dependencies]\n{}\n[dev-dependencies]\nproptest.workspace = true\n",
        reduced.folder, reduced.dependencies
    )
}

/// The workspace of the reduced package, with the dependencies of ours. What these name by a path
/// is found where it is.
fn root_manifest(root: &str, workspace: &Path, reduced: &Reduced) -> String {
    let dependencies = root.split("\n[").find(|part| part.starts_with("workspace.dependencies]"));
    let dependencies = dependencies.unwrap_or_default();
    let from = format!("path = \"{}/", workspace.display());
    format!(
        "[workspace]\nmembers = [\"{}\"]\nresolver = \"3\"\n\n\
         [profile.dev]\ndebug = false\n\n\
         [profile.dev.package.\"*\"]\nopt-level = 1\n\n[{}",
        reduced.folder,
        dependencies.replace("path = \"", &from)
    )
}

/// Copies a file, or a folder with all that is in it.
fn copy(from: &Path, to: &Path) -> Result<()> {
    if !from.is_dir() {
        let text = fs::read_to_string(from).with_context(|| format!("{}", from.display()))?;
        return write(to, &text);
    }
    for entry in fs::read_dir(from).with_context(|| format!("{}", from.display()))? {
        let entry = entry?;
        copy(&entry.path(), &to.join(entry.file_name()))?;
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    }
    fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_a_workspace_of_the_reduced_package() {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let folder = tempfile::tempdir().unwrap();
        for machine in MACHINES {
            let tree = make(workspace, &machine.of, folder.path()).unwrap();
            let files = tree.join(machine.of.folder).join("src").join(machine.files);
            assert!(files.exists(), "{}", files.display());
            let root = fs::read_to_string(tree.join("Cargo.toml")).unwrap();
            assert!(root.contains("\nproptest = "), "{root}");
            let core = workspace.join("rpc-core").display().to_string();
            assert!(root.contains(&core), "{root}");
        }
    }
}
