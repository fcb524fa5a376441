//! A reader's crate: outside of the workspace, with the files that a document shows, built against
//! the packages and started.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use farcall_testkit::process::bounded::{self, command_line};
use tempfile::TempDir;

use super::packed::{self, Packed};
use super::readme::{self, Shown};
use xtask::cargo;

/// The first line that the README's program prints.
const GREETING: &str = "Hello, world!";

/// The program's name in every document that shows a hello world.
pub(super) const PROGRAM: &str = "hello";

/// Several times what a build from nothing takes on two busy cores.
pub(super) const BUILD_LIMIT: Duration = Duration::from_secs(600);

/// A program that makes a few calls.
pub(super) const CALL_LIMIT: Duration = Duration::from_secs(60);

/// A crate in a folder of its own, which goes with the value.
#[derive(Debug)]
pub(super) struct UserCrate {
    folder: TempDir,
}

impl UserCrate {
    /// Writes the crate that `document` shows, with `packages` in place of what crates.io has.
    ///
    /// # Errors
    ///
    /// Returns an error if the document shows none, or the disk refuses it.
    pub(super) fn shown_in(document: &Path, packages: &[Packed], root: &Path) -> Result<Self> {
        Self::changed(document, packages, root, |_| Ok(()))
    }

    /// The same with its files changed before they are written.
    pub(super) fn changed(
        document: &Path,
        packages: &[Packed],
        root: &Path,
        change: impl FnOnce(&mut [Shown]) -> Result<()>,
    ) -> Result<Self> {
        let text =
            fs::read_to_string(document).with_context(|| format!("{}", document.display()))?;
        let mut files = readme::files(&text);
        // Not below the workspace, whose settings a reader does not have.
        let folder = tempfile::tempdir().context("a folder for the reader's crate")?;
        change(&mut files)
            .and_then(|()| write(folder.path(), &files, packages))
            .with_context(|| format!("{}", document.display()))?;
        // The versions that everything else here is checked with.
        fs::copy(root.join("Cargo.lock"), folder.path().join("Cargo.lock"))
            .context("Cargo.lock")?;
        Ok(Self { folder })
    }

    /// Builds the crate, which must fail, and returns cargo's output.
    ///
    /// # Errors
    ///
    /// Returns an error if it builds, or if the output cannot be read.
    pub(super) fn refusal(&self, target: &Path) -> Result<String> {
        let said = self.folder.path().join("said");
        let file = fs::File::create(&said).with_context(|| format!("{}", said.display()))?;
        let mut command = self.build(target);
        if bounded::run(command.stderr(file), BUILD_LIMIT).is_ok() {
            bail!("it was built");
        }
        fs::read_to_string(&said).with_context(|| format!("{}", said.display()))
    }

    /// A build in it, of dependencies as the workspace builds its own: what both have alike is
    /// built once.
    pub(super) fn build(&self, target: &Path) -> Command {
        let mut command = self.cargo(&["build", "--offline"], target);
        command.env("CARGO_PROFILE_DEV_DEBUG", "0");
        println!("{}", command_line(&command));
        command
    }

    /// Removes what was built of its `program`: its folder has another name each time, and cargo
    /// would keep what it built of each.
    pub(super) fn clean(&self, target: &Path, program: &str) -> Result<()> {
        let mut command = self.cargo(&["clean", "--quiet", "--package", program], target);
        command.env("CARGO_PROFILE_DEV_DEBUG", "0");
        Ok(bounded::run(&mut command, CALL_LIMIT)?)
    }

    /// A cargo command in it, whose outputs go to `target`.
    pub(super) fn cargo(&self, arguments: &[&str], target: &Path) -> Command {
        let mut command = cargo::command(arguments);
        command.current_dir(self.folder.path()).env("CARGO_TARGET_DIR", target);
        command
    }
}

/// Builds the crate that `entrance`'s README shows against `packages`, and starts it: as it stands
/// there, with tonic as most have it, and with a build script whose tonic-prost-build has tonic's
/// `transport`.
///
/// # Errors
///
/// Returns an error if the README shows none, or it does not build, or prints something else.
pub(super) fn try_out(entrance: &Packed, packages: &[Packed]) -> Result<()> {
    let workspace = packed::metadata()?;
    let readme = entrance.folder.join("README.md");
    same_program(&readme, &workspace.workspace_root.join("README.md"))?;
    resolves_from_a_clone(&readme, &workspace.workspace_root, &workspace.target_directory)?;
    let variants: [Change; 3] = [|_| Ok(()), with_default_tonic, with_tonics_build];
    for change in variants {
        let manifest = |files: &mut [Shown]| change(manifest(files)?);
        let root = &workspace.workspace_root;
        let user = UserCrate::changed(&readme, packages, root, manifest)?;
        build_and_call(&user, &workspace.target_directory)?;
    }
    Ok(())
}

/// Sees that the repository's README shows the very program of the package's, which is built.
fn same_program(package: &Path, repository: &Path) -> Result<()> {
    let shown = |path: &Path| -> Result<Vec<Shown>> {
        let text = fs::read_to_string(path).with_context(|| format!("{}", path.display()))?;
        Ok(readme::files(&text))
    };
    let (ours, theirs) = (shown(package)?, shown(repository)?);
    if let Some(other) = ours.iter().find(|file| !theirs.contains(file)) {
        bail!("{} shows another {} than {}", repository.display(), other.path, package.display());
    }
    Ok(())
}

/// Changes the text of a manifest.
pub(super) type Change = fn(&mut String) -> Result<()>;

/// The text of the manifest among `files`.
pub(super) fn manifest(files: &mut [Shown]) -> Result<&mut String> {
    let manifest = files.iter_mut().find(|file| file.path == "Cargo.toml");
    Ok(&mut manifest.context("it shows no Cargo.toml")?.text)
}

/// Path of the reader's clone, relative to the reader's crate.
const CLONE: &str = "../farcall/";

/// Sees that cargo finds the crates of the manifest as it stands there, with the repository where
/// the reader has a clone. The registry's form is the one that is built.
fn resolves_from_a_clone(readme: &Path, root: &Path, target: &Path) -> Result<()> {
    let here = |files: &mut [Shown]| {
        let manifest = manifest(files)?;
        if !manifest.contains(CLONE) {
            bail!("it takes nothing from {CLONE}");
        }
        *manifest = manifest.replace(CLONE, &format!("{}/", root.display()));
        Ok(())
    };
    let user = UserCrate::changed(readme, &[], root, here)?;
    let mut command =
        user.cargo(&["metadata", "--offline", "--quiet", "--format-version", "1"], target);
    bounded::output(&mut command, CALL_LIMIT)?;
    Ok(())
}

/// The manifest as a reader has it once the crates are published: the lines that its comments say,
/// in the place of those below them.
fn from_registry(manifest: &str) -> Result<String> {
    const LATER: &str = "# Once it is on crates.io: ";
    let mut lines = manifest.lines();
    let mut text = String::new();
    while let Some(line) = lines.next() {
        let line = match line.strip_prefix(LATER) {
            Some(later) => {
                let now = lines.next().unwrap_or_default();
                if !is_from_clone(later, now) {
                    bail!("below {line:?} stands {now:?}");
                }
                later
            }
            None => line,
        };
        let _ = writeln!(text, "{line}");
    }
    if text.contains(CLONE) {
        bail!("a crate has no line for crates.io:\n{text}");
    }
    Ok(text)
}

/// Returns true if `now` takes from a clone what `later` takes from the registry: the dependency of
/// the same name, or a path in place of a version in a table of its own.
fn is_from_clone(later: &str, now: &str) -> bool {
    match later.split(" = ").next().unwrap_or_default() {
        "version" => now.starts_with(&format!("path = \"{CLONE}")),
        name => now.starts_with(&format!("{name} = {{ path = \"{CLONE}")),
    }
}

/// tonic beside farcall, with the features that it has by default, as a program has it that moves.
fn with_default_tonic(manifest: &mut String) -> Result<()> {
    add_dependency(manifest, "[dependencies]\n", "tonic = \"0.14\"\n")
}

/// A second generator in the build script's graph, whose feature `transport` cargo turns on for
/// rpc-codegen's too.
fn with_tonics_build(manifest: &mut String) -> Result<()> {
    add_dependency(manifest, "[build-dependencies]\n", "tonic-prost-build = \"0.14\"\n")
}

fn add_dependency(manifest: &mut String, section: &str, line: &str) -> Result<()> {
    if !manifest.contains(section) {
        bail!("it has no {section:?}");
    }
    *manifest = manifest.replace(section, &format!("{section}{line}"));
    Ok(())
}

fn build_and_call(user: &UserCrate, target: &Path) -> Result<()> {
    bounded::run(&mut user.build(target), BUILD_LIMIT)?;
    let called = call(&target.join("debug").join(PROGRAM));
    user.clean(target, PROGRAM)?;
    called
}

/// Starts a reader's program, which makes one call and prints the answer.
///
/// # Errors
///
/// Returns an error if it fails, or prints something else.
pub(super) fn call(program: &Path) -> Result<()> {
    let printed = bounded::output(&mut Command::new(program), CALL_LIMIT)?;
    print!("{printed}");
    if printed.lines().next() != Some(GREETING) {
        bail!("{} did not print {GREETING:?}", program.display());
    }
    Ok(())
}

/// Writes the reader's crate into `folder`, with the packages in place of what crates.io has.
fn write(folder: &Path, files: &[Shown], packages: &[Packed]) -> Result<()> {
    for required in ["Cargo.toml", "build.rs", "src/main.rs"] {
        if !files.iter().any(|file| file.path == required) {
            bail!("it shows no {required}");
        }
    }
    for Shown { path, text } in files {
        let mut text = text.clone();
        if path == "Cargo.toml" && !packages.is_empty() {
            text = from_registry(&text)?;
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
    fn the_registrys_lines_take_the_place_of_the_clones() {
        let farcall = "# Once it is on crates.io: farcall = \"0.1\"\n";
        let now = "farcall = { path = \"../farcall/farcall\" }\n";
        let manifest =
            format!("[dependencies]\n# tonic comes with it.\n{farcall}{now}tokio = \"1\"\n");
        let later = "[dependencies]\n# tonic comes with it.\nfarcall = \"0.1\"\ntokio = \"1\"\n";
        assert_eq!(from_registry(&manifest).unwrap(), later);
        assert!(from_registry(now).is_err(), "it says nothing of the registry");
        let table = "[dependencies.farcall]\n# Once it is on crates.io: version = \"0.1\"\n\
                     path = \"../farcall/farcall\"\n# features = [\"grpc\"]\n";
        let later = "[dependencies.farcall]\nversion = \"0.1\"\n# features = [\"grpc\"]\n";
        assert_eq!(from_registry(table).unwrap(), later);
        assert!(from_registry(&format!("{farcall}tokio = \"1\"\n{now}")).is_err());
    }

    #[test]
    fn variants_of_the_manifest_differ_in_tonic_only() {
        let shown = "[dependencies]\nfarcall = \"0.1\"\n\n\
                     [build-dependencies]\nrpc-codegen = \"0.1\"\n";
        let mut manifest = shown.to_owned();
        with_default_tonic(&mut manifest).unwrap();
        let section = "[dependencies]\ntonic = \"0.14\"\nfarcall = \"0.1\"\n";
        assert!(manifest.starts_with(section), "{manifest}");
        let mut manifest = shown.to_owned();
        with_tonics_build(&mut manifest).unwrap();
        assert!(manifest.ends_with("tonic-prost-build = \"0.14\"\nrpc-codegen = \"0.1\"\n"));
        assert!(with_default_tonic(&mut String::new()).is_err());
        assert!(with_tonics_build(&mut String::new()).is_err());
    }

    #[test]
    fn a_readme_that_shows_no_program_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let error = write(folder.path(), &[shown("Cargo.toml")], &[]).unwrap_err();
        assert_eq!(error.to_string(), "it shows no build.rs");
    }
}
