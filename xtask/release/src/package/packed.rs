//! Making packages and unpacking them. What belongs into one is decided in `contents`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use farcall_testkit::process::bounded::{self, command_line};
use serde::Deserialize;
use xtask::cargo;

/// Reading the workspace, packing ten crates, unpacking one: seconds each on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

/// Downloading what a workspace locks, on a new machine.
pub(super) const FETCH_LIMIT: Duration = Duration::from_secs(600);

/// A crate as it would be published.
#[derive(Debug)]
pub(super) struct Packed {
    pub(super) name: String,
    /// Folder of the unpacked files.
    pub(super) folder: PathBuf,
    /// Their paths in it.
    pub(super) files: Vec<String>,
    /// Bytes of all files.
    pub(super) len: u64,
    /// Bytes of the package.
    pub(super) packed_len: u64,
}

/// The parts of `cargo metadata` that are read.
#[derive(Debug, Deserialize)]
pub(super) struct Metadata {
    packages: Vec<Member>,
    pub(super) workspace_root: PathBuf,
    pub(super) target_directory: PathBuf,
}

#[derive(Debug, Deserialize)]
struct Member {
    name: String,
    version: String,
    /// The registries it may go to: none named means any, an empty list means none.
    publish: Option<Vec<String>>,
}

/// The workspace.
///
/// # Errors
///
/// Returns an error if cargo cannot read it.
pub(super) fn metadata() -> Result<Metadata> {
    let mut command = cargo::command(["metadata", "--no-deps", "--format-version", "1"]);
    let printed = bounded::output(&mut command, LIMIT)?;
    serde_json::from_str(&printed).context("what cargo metadata prints")
}

/// Packs the crates that may be published, and unpacks them where cargo puts packages.
///
/// # Errors
///
/// Returns an error if cargo cannot pack one, or what it made cannot be read.
pub(super) fn pack() -> Result<Vec<Packed>> {
    let Metadata { packages, target_directory, .. } = metadata()?;
    let is_public = |member: &&Member| member.publish.as_ref().is_none_or(|to| !to.is_empty());
    let members: Vec<&Member> = packages.iter().filter(is_public).collect();
    if members.is_empty() {
        bail!("no package of the workspace may be published");
    }
    // From here on the registry is not asked, so that the outcome depends on what is locked only.
    run(&mut cargo::command(["fetch", "--locked"]), FETCH_LIMIT)?;
    // The reader's crate is the verification. Changes that are not committed are packed as well.
    let mut command = cargo::command(["package", "--offline", "--no-verify", "--allow-dirty"]);
    for member in &members {
        command.args(["--package", &member.name]);
    }
    run(&mut command, LIMIT)?;
    let folder = target_directory.join("package");
    members.iter().map(|member| Packed::unpack(member, &folder)).collect()
}

impl Packed {
    fn unpack(member: &Member, packages: &Path) -> Result<Self> {
        let full_name = format!("{}-{}", member.name, member.version);
        let archive = packages.join(format!("{full_name}.crate"));
        let folder = packages.join(&full_name);
        let bytes = fs::read(&archive).with_context(|| format!("{}", archive.display()))?;
        // The files that were unpacked last keep their times while the package is the same, so
        // that cargo does not build them once more.
        let known = packages.join(format!("{full_name}.unpacked"));
        if fs::read(&known).ok().as_ref() != Some(&bytes) || !folder.is_dir() {
            // The note goes first: it must not vouch for a folder that is unpacked by half.
            let _ = fs::remove_file(&known);
            if folder.exists() {
                fs::remove_dir_all(&folder).with_context(|| format!("{}", folder.display()))?;
            }
            // Files get the time of now: with cargo's, which is the same for every package, a
            // changed file would pass for one that is built already.
            let mut tar = Command::new("tar");
            tar.arg("--touch").arg("-xzf").arg(&archive).arg("-C").arg(packages);
            bounded::run(&mut tar, LIMIT)?;
            fs::write(&known, &bytes).with_context(|| format!("{}", known.display()))?;
        }
        let mut files = Vec::new();
        let len = add_files(&folder, "", &mut files)?;
        files.sort();
        Ok(Self { name: member.name.clone(), folder, files, len, packed_len: bytes.len() as u64 })
    }
}

/// Adds the paths of the files below `folder`, and returns their length.
fn add_files(folder: &Path, prefix: &str, files: &mut Vec<String>) -> Result<u64> {
    let mut len = 0;
    let entries = fs::read_dir(folder).with_context(|| format!("{}", folder.display()))?;
    for entry in entries {
        let entry = entry?;
        let path = format!("{prefix}{}", entry.file_name().to_string_lossy());
        let metadata = entry.metadata()?;
        if metadata.is_dir() {
            len += add_files(&entry.path(), &format!("{path}/"), files)?;
        } else {
            len += metadata.len();
            files.push(path);
        }
    }
    Ok(len)
}

fn run(command: &mut Command, limit: Duration) -> Result<()> {
    println!("{}", command_line(command));
    Ok(bounded::run(command, limit)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_in_all_folders_with_their_length() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("src")).unwrap();
        fs::write(folder.path().join("Cargo.toml"), "123").unwrap();
        fs::write(folder.path().join("src/lib.rs"), "45").unwrap();
        let mut files = Vec::new();
        assert_eq!(add_files(folder.path(), "", &mut files).unwrap(), 5);
        files.sort();
        assert_eq!(files, ["Cargo.toml", "src/lib.rs"]);
    }
}
