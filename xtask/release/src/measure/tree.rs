//! The crates of a checkout, and their files.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// A crate, as far as it is measured.
#[derive(Debug)]
pub(super) struct Crate {
    /// Its folder in the checkout.
    pub(super) folder: String,
    /// The files of its `src` that are no tests: paths in `src`, and texts.
    pub(super) sources: Vec<(PathBuf, String)>,
    /// All its Rust and Markdown files, tests included.
    pub(super) texts: Vec<String>,
}

/// The crates below `root` by folder, and the Markdown that belongs to none as a last one.
///
/// # Errors
///
/// Returns an error if a file cannot be read.
pub(super) fn crates(root: &Path) -> Result<Vec<Crate>> {
    let mut files = Vec::new();
    add_files(root, &mut files)?;
    files.sort();
    let is_manifest = |path: &&PathBuf| path.ends_with("Cargo.toml");
    let folders = files.iter().filter(is_manifest).filter_map(|path| path.parent());
    let mut crates: Vec<(&Path, Crate)> = folders
        .map(|folder| {
            let name = folder.strip_prefix(root).unwrap_or(folder).display().to_string();
            let name = if name.is_empty() { ".".to_owned() } else { name };
            (folder, Crate { folder: name, sources: Vec::new(), texts: Vec::new() })
        })
        .collect();
    for path in &files {
        let is_measured = |extension| extension == "rs" || extension == "md";
        if !path.extension().is_some_and(is_measured) {
            continue;
        }
        let owners = crates.iter_mut().filter(|(folder, _)| path.starts_with(folder));
        let Some((folder, owner)) = owners.max_by_key(|(folder, _)| folder.as_os_str().len())
        else {
            continue;
        };
        let text =
            fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        if let Ok(source) = path.strip_prefix(folder.join("src"))
            && path.extension().is_some_and(|extension| extension == "rs")
            && !is_test(source)
        {
            owner.sources.push((source.to_owned(), text.clone()));
        }
        owner.texts.push(text);
    }
    Ok(crates.into_iter().map(|(_, known)| known).collect())
}

/// Returns true if a file of `src` holds only tests, by its name.
fn is_test(path: &Path) -> bool {
    let is_test = |name: &str| name == "tests" || name.ends_with("_tests");
    path.with_extension("").iter().any(|name| name.to_str().is_some_and(is_test))
}

/// Adds the files below `folder`, but not what cargo and git keep there.
fn add_files(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let entries = fs::read_dir(folder).with_context(|| format!("{}", folder.display()))?;
    for entry in entries {
        let entry = entry?;
        let (name, kind) = (entry.file_name(), entry.file_type()?);
        if kind.is_dir() && name != "target" && name != ".git" {
            add_files(&entry.path(), files)?;
        } else if kind.is_file() {
            files.push(entry.path());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_belongs_to_the_innermost_crate() {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("README.md", "a"),
            ("Cargo.toml", ""),
            ("outer/Cargo.toml", ""),
            ("outer/src/lib.rs", "b"),
            ("outer/src/a/tests.rs", "c"),
            ("outer/src/a/speed_tests/b.rs", "d"),
            ("outer/inner/Cargo.toml", ""),
            ("outer/inner/src/main.rs", "e"),
            ("target/x.rs", "f"),
        ] {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let crates = crates(root.path()).unwrap();
        let shown: Vec<_> = crates
            .iter()
            .map(|known| (known.folder.as_str(), known.sources.len(), known.texts.len()))
            .collect();
        assert_eq!(shown, [(".", 0, 1), ("outer", 1, 3), ("outer/inner", 1, 1)]);
    }
}
