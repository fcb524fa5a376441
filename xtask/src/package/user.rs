//! A reader of farcall's README: a crate outside of the workspace, with the files that the packed
//! README shows, built against the packages and started.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::packed::{self, Packed};
use super::readme::{self, Shown};
use crate::bounded::{self, command_line};
use crate::cargo;

/// What the README's program prints first.
const GREETING: &str = "Hello, world!";

/// The program's name in the README.
const PROGRAM: &str = "hello";

/// Several times what a build from nothing takes on two busy cores.
const BUILD_LIMIT: Duration = Duration::from_secs(600);

/// A program that makes one call.
const CALL_LIMIT: Duration = Duration::from_secs(60);

/// Builds the crate that `entrance`'s README shows against `packages`, and starts it.
///
/// # Errors
///
/// When the README shows none, or it does not build, or prints something else.
pub(super) fn try_out(entrance: &Packed, packages: &[Packed]) -> Result<()> {
    let readme = fs::read_to_string(entrance.folder.join("README.md")).context("README.md")?;
    let workspace = packed::metadata()?;
    // Not below the workspace, whose settings a reader does not have.
    let folder = tempfile::tempdir().context("a folder for the reader's crate")?;
    write(folder.path(), &readme::files(&readme), packages)?;
    // The versions that everything else here is checked with.
    fs::copy(workspace.workspace_root.join("Cargo.lock"), folder.path().join("Cargo.lock"))
        .context("Cargo.lock")?;
    let target = &workspace.target_directory;
    let cargo = |arguments: &[&str]| {
        let mut command = cargo::command(arguments);
        command.current_dir(folder.path()).env("CARGO_TARGET_DIR", target);
        // As the workspace builds its dependencies: what both have alike is built once.
        command.env("CARGO_PROFILE_DEV_DEBUG", "0");
        println!("{}", command_line(&command));
        command
    };
    bounded::run(&mut cargo(&["build", "--offline"]), BUILD_LIMIT)?;
    let printed =
        bounded::output(&mut Command::new(target.join("debug").join(PROGRAM)), CALL_LIMIT)?;
    print!("{printed}");
    // Its folder has another name each time, and cargo would keep what it built of each.
    bounded::run(&mut cargo(&["clean", "--quiet", "--package", PROGRAM]), CALL_LIMIT)?;
    if printed.lines().next() != Some(GREETING) {
        bail!("the README's program printed something else than {GREETING:?}");
    }
    Ok(())
}

/// Writes the reader's crate into `folder`, with the packages in place of what crates.io has.
fn write(folder: &Path, files: &[Shown], packages: &[Packed]) -> Result<()> {
    for required in ["Cargo.toml", "build.rs", "src/main.rs"] {
        if !files.iter().any(|file| file.path == required) {
            bail!("the README shows no {required}");
        }
    }
    for Shown { path, text } in files {
        let mut text = text.clone();
        if path == "Cargo.toml" {
            text.push_str(&patch(packages));
        }
        let path = folder.join(path);
        let parent = path.parent().unwrap_or(folder);
        fs::create_dir_all(parent).with_context(|| format!("{}", parent.display()))?;
        fs::write(&path, text).with_context(|| format!("{}", path.display()))?;
    }
    Ok(())
}

/// The section of a manifest that puts the packages in place of what crates.io has.
fn patch(packages: &[Packed]) -> String {
    let mut section = "\n[patch.crates-io]\n".to_owned();
    for Packed { name, folder, .. } in packages {
        // Writing to a string cannot fail.
        let _ = writeln!(section, "{name} = {{ path = {:?} }}", folder.display().to_string());
    }
    section
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(path: &str) -> Shown {
        Shown { path: path.into(), text: format!("{path}\n") }
    }

    #[test]
    fn the_readers_crate_has_the_readmes_files_and_the_packages() {
        let folder = tempfile::tempdir().unwrap();
        let files = ["Cargo.toml", "build.rs", "src/main.rs", "proto/a.proto"].map(shown);
        let package = Packed {
            name: "farcall".into(),
            folder: "/packages/farcall-0.1.0".into(),
            files: Vec::new(),
            len: 0,
            packed_len: 0,
        };
        write(folder.path(), &files, &[package]).unwrap();
        let read = |path: &str| fs::read_to_string(folder.path().join(path)).unwrap();
        let manifest = "Cargo.toml\n\n[patch.crates-io]\n\
                        farcall = { path = \"/packages/farcall-0.1.0\" }\n";
        assert_eq!(read("Cargo.toml"), manifest);
        assert_eq!(read("proto/a.proto"), "proto/a.proto\n");
    }

    #[test]
    fn a_readme_that_shows_no_program_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let error = write(folder.path(), &[shown("Cargo.toml")], &[]).unwrap_err();
        assert_eq!(error.to_string(), "the README shows no build.rs");
    }
}
