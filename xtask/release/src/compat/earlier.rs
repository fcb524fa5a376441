//! The earlier version: which one, and its files. They come from the clone's own history.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use farcall_testkit::process::bounded;

/// Unpacking a few thousand files on a slow disk.
const LIMIT: Duration = Duration::from_secs(120);

/// Note of the commit and the program's files that an unpacked tree belongs to.
const NOTE: &str = "commit";

/// Suffix of the earlier packages' versions. A lock file cannot hold two packages of the same name
/// and version. Build metadata makes them two, and every requirement still matches.
const SUFFIX: &str = "+then";

/// The files of an earlier version.
#[derive(Debug)]
pub(super) struct Tree {
    /// The commit, and the tag where it has one.
    pub(super) name: String,
    /// The checkout's folder.
    pub(super) folder: PathBuf,
}

/// Unpacks the version of `wanted`, or of the newest release, into a folder below `folder`.
///
/// # Errors
///
/// Returns an error if git does not know it, or the disk refuses it.
pub(super) fn unpack(wanted: Option<&str>, folder: &Path) -> Result<Tree> {
    let revision = match wanted {
        Some(revision) => revision.to_owned(),
        None => newest_before_head(),
    };
    let commit = git(&["rev-parse", "--verify", "--quiet", &format!("{revision}^{{commit}}")]);
    let commit = commit.with_context(|| {
        format!(
            "{revision} is not a commit of this clone: choose one with --commit, or fetch its \
             history"
        )
    })?;
    let name = git(&["describe", "--tags", "--always", &commit])?;
    eprintln!("xtask: the earlier version is {name}");
    let tree = Tree { name, folder: folder.join("then") };
    let note = folder.join(NOTE);
    if fs::read_to_string(&note).ok().as_ref() == Some(&commit) && tree.folder.is_dir() {
        return Ok(tree);
    }
    // The note goes first: it must not vouch for a tree that is unpacked by half.
    let _ = fs::remove_file(&note);
    if tree.folder.exists() {
        fs::remove_dir_all(&tree.folder).context("the tree that was unpacked last")?;
    }
    fs::create_dir_all(&tree.folder).context("a folder for the earlier version")?;
    let archive = folder.join("then.tar");
    let mut pack = Command::new("git");
    bounded::run(pack.args(["archive", "--output"]).arg(&archive).arg(&commit), LIMIT)?;
    let mut tar = Command::new("tar");
    // Files get the time of now, so that cargo notices that they are others.
    tar.arg("--touch").arg("-xf").arg(&archive).arg("-C").arg(&tree.folder);
    bounded::run(&mut tar, LIMIT)?;
    let manifest = tree.folder.join("Cargo.toml");
    let text = fs::read_to_string(&manifest).context("the earlier version's Cargo.toml")?;
    fs::write(&manifest, marked(&text)?).context("the earlier version's Cargo.toml")?;
    fs::write(&note, &commit).context("a note of the commit")?;
    Ok(tree)
}

/// The newest release before HEAD, which may be a release itself; HEAD's parent where there is no
/// release.
fn newest_before_head() -> String {
    let tag = git(&["describe", "--tags", "--abbrev=0", "--match", "v[0-9]*", "HEAD^"]);
    tag.unwrap_or_else(|_| "HEAD^".to_owned())
}

fn git(arguments: &[&str]) -> Result<String> {
    let printed = bounded::tool_output(Command::new("git").args(arguments), LIMIT)?;
    Ok(printed.trim().to_owned())
}

/// The workspace's manifest with [`SUFFIX`] behind the version that its packages inherit.
fn marked(manifest: &str) -> Result<String> {
    let section = "[workspace.package]";
    let (before, package) = manifest.split_once(section).context("it has no package version")?;
    let Some((line, after)) = package.split_once("version = \"") else {
        bail!("{section} has no version");
    };
    let (version, rest) = after.split_once('"').context("a version without an end")?;
    Ok(format!("{before}{section}{line}version = \"{version}{SUFFIX}\"{rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_inherited_version_is_marked() {
        let manifest = "[workspace.package]\nversion = \"0.1.0\"\nrust-version = \"1.88\"\n\
                        [workspace.dependencies]\na = { path = \"a\", version = \"0.1.0\" }\n";
        let expected = manifest.replacen("0.1.0", "0.1.0+then", 1);
        assert_eq!(marked(manifest).unwrap(), expected);
        assert!(marked("[package]\nversion = \"0.1.0\"\n").is_err());
    }
}
