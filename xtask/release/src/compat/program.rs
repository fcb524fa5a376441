//! The program of two versions: a workspace of its own in the target folder, with a package for
//! each version and one that starts them.
//!
//! Each version generates code from this version's `proto/talk.proto` with its own generator, and
//! is compiled with its own copy of `program/side.rs` where it has one: a change of the interface
//! of Rust does not keep two versions from speaking to each other.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::earlier::Tree;
use xtask::cargo;

/// Two builds of farcall from nothing, on a slow machine.
const BUILD_LIMIT: Duration = Duration::from_secs(1800);

const PROGRAM: &str = "farcall-compat";
const MAIN: &str = include_str!("program/main.rs");
const SIDE: &str = include_str!("program/side.rs");
const BUILD: &str = include_str!("program/build.rs");
/// Path of `side.rs` in a checkout.
const SIDE_IN_TREE: &str = "xtask/release/src/compat/program/side.rs";

/// Builds the program of this version and `then`, and returns its path.
///
/// # Errors
///
/// Returns an error if the disk refuses its files, or it does not build.
pub(super) fn build(then: &Tree, folder: &Path) -> Result<PathBuf> {
    let now = std::env::current_dir().context("this checkout's folder")?;
    let workspace = folder.join("program");
    let files = files(&now, &then.folder)?;
    for (path, text) in &files {
        let path = workspace.join(path);
        fs::create_dir_all(path.parent().unwrap_or(&workspace))?;
        // A file that is the same keeps its time, so that cargo does not build it once more.
        if fs::read_to_string(&path).ok().as_ref() != Some(text) {
            fs::write(&path, text).with_context(|| format!("{}", path.display()))?;
        }
    }
    // The versions that everything else here is checked with. cargo adds what `then` needs.
    fs::copy(now.join("Cargo.lock"), workspace.join("Cargo.lock")).context("Cargo.lock")?;
    let manifest = workspace.join("Cargo.toml").display().to_string();
    let target = folder.join("target").display().to_string();
    let arguments = ["build", "--manifest-path", &manifest, "--target-dir", &target];
    let built = cargo::executables(&arguments, BUILD_LIMIT)?;
    let program = built.into_iter().find(|built| built.name == PROGRAM);
    Ok(program.context("cargo built no program")?.path)
}

/// The program's files by their paths.
fn files(now: &Path, then: &Path) -> Result<Vec<(String, String)>> {
    let proto = now.join("proto/talk.proto");
    let proto = fs::read_to_string(&proto).with_context(|| format!("{}", proto.display()))?;
    let then_side = fs::read_to_string(then.join(SIDE_IN_TREE)).unwrap_or_else(|_| SIDE.to_owned());
    let mut files = vec![
        ("Cargo.toml".to_owned(), main_manifest()),
        ("src/main.rs".to_owned(), MAIN.to_owned()),
    ];
    for (name, root, side) in [("now", now, SIDE), ("then", then, &then_side)] {
        files.extend([
            (format!("{name}/Cargo.toml"), side_manifest(name, root)),
            (format!("{name}/src/lib.rs"), side.to_owned()),
            (format!("{name}/build.rs"), BUILD.to_owned()),
            (format!("{name}/talk.proto"), proto.clone()),
        ]);
    }
    Ok(files)
}

fn main_manifest() -> String {
    format!(
        "[workspace]\nmembers = [\"now\", \"then\"]\n\n\
         [package]\nname = \"{PROGRAM}\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n\
         [dependencies]\nnow.path = \"now\"\nthen.path = \"then\"\n\
         tokio = {{ version = \"1\", features = [\"macros\", \"rt-multi-thread\", \"time\"] }}\n\n\
         [profile.dev]\ndebug = false\n"
    )
}

fn side_manifest(name: &str, root: &Path) -> String {
    let path = |folder: &str| toml_text(&root.join(folder));
    format!(
        "[package]\nname = \"{name}\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n\
         [dependencies]\nfarcall = {{ path = {}, features = [\"sim\"] }}\n\
         tokio = {{ version = \"1\", features = [\"macros\", \"rt\", \"sync\", \"time\"] }}\n\
         tokio-stream = \"0.1\"\n\n\
         [build-dependencies]\nrpc-codegen = {{ path = {} }}\n",
        path("farcall"),
        path("rpc-codegen"),
    )
}

/// A path as a string of TOML.
fn toml_text(path: &Path) -> String {
    format!("{:?}", path.display().to_string())
}
