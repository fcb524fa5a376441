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
/// Returns an error if a file cannot be copied.
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

/// Returns true if one of the built files and folders has tests of a machine.
fn has_tests(reduced: &Reduced, source: &str) -> bool {
    let mut machines = MACHINES.iter().filter(|machine| machine.of == *reduced);
    machines.any(|machine| machine.is_tested_by(source))
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
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let folder = tempfile::tempdir().unwrap();
        for machine in MACHINES {
            let tree = make(&workspace, &machine.of, folder.path()).unwrap();
            let files = tree.join(machine.of.folder).join("src").join(machine.files);
            assert!(files.exists(), "{}", files.display());
            let root = fs::read_to_string(tree.join("Cargo.toml")).unwrap();
            assert!(root.contains("\nproptest = "), "{root}");
            let core = workspace.join("rpc-core").display().to_string();
            assert!(root.contains(&core), "{root}");
        }
    }
    /// A module that a machine begins to import would break the package long before the next run.
    #[test]
    fn what_the_files_of_a_tree_import_is_built_there() {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let folder = tempfile::tempdir().unwrap();
        for machine in MACHINES {
            let tree = make(&workspace, &machine.of, folder.path()).unwrap();
            let sources = tree.join(machine.of.folder).join("src");
            let text = text_of(&sources);
            for path in imports(&text) {
                assert!(is_built(&path, &sources, &text), "{path} in {}", machine.of.folder);
            }
        }
    }

    /// All sources of a folder, without comments.
    fn text_of(path: &Path) -> String {
        if path.is_dir() {
            return fs::read_dir(path).unwrap().map(|it| text_of(&it.unwrap().path())).collect();
        }
        let text = fs::read_to_string(path).unwrap();
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        code.map(|line| format!("{line}\n")).collect()
    }

    /// The first two names of each path from the crate's root.
    fn imports(text: &str) -> Vec<String> {
        let paths = text.split("crate::").zip(text.split("crate::").skip(1));
        let outside_macros = paths.filter(|(before, _)| !before.ends_with('$'));
        let path = |(_, path): (&str, &str)| {
            let end = path.find(|it: char| !it.is_alphanumeric() && it != '_' && it != ':');
            let names = path[..end.unwrap_or(path.len())].split("::").take(2);
            names.collect::<Vec<_>>().join("::").trim_end_matches(':').to_owned()
        };
        outside_macros.map(path).filter(|path| !path.is_empty()).collect()
    }

    /// Returns true if the root declares the path's first name, and the second is a module of the
    /// tree or an item.
    fn is_built(path: &str, sources: &Path, text: &str) -> bool {
        let (first, second) = path.split_once("::").unwrap_or((path, ""));
        let root = fs::read_to_string(sources.join("lib.rs")).unwrap();
        let is_word = |text: &str, word: &str| {
            text.split(|it: char| !it.is_alphanumeric() && it != '_').any(|it| it == word)
        };
        if text.contains(&format!("macro_rules! {first} ")) {
            return true;
        }
        let is_module = second.starts_with(char::is_lowercase);
        let folder = sources.join(first);
        let is_there = !is_module
            || !folder.is_dir()
            || folder.join(second).with_extension("rs").exists()
            || folder.join(second).is_dir()
            || text.contains(&format!("fn {second}"));
        is_word(&root, first) && is_there
    }
}
