//! Finding a libclang that rdma-sys can use.
//!
//! rdma-sys generates its bindings with bindgen 0.59, which panics on the syntax trees of libclang
//! 16 and later. A machine's default may be newer, so one that works is looked for. Where the
//! distribution has none, PyPI's package of libclang 14 is unpacked into the target folder.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use farcall_testkit::process::bounded;

use super::apt;
use crate::program;

/// The environment variable with which bindgen is told where libclang is.
const VARIABLE: &str = "LIBCLANG_PATH";
/// The variable for bindgen's further arguments to clang.
const ARGUMENTS: &str = "BINDGEN_EXTRA_CLANG_ARGS";

/// The newest version that bindgen 0.59 understands.
const NEWEST: u32 = 15;
/// Packages that hold a usable one, by preference: 14 is what farcall is developed with.
const PACKAGES: [&str; 2] = ["libclang-14-dev", "libclang-15-dev"];
/// PyPI's package: the shared library without clang's own headers.
const WHEEL: &str = "libclang==14.0.6";
const PROBE_LIMIT: Duration = Duration::from_secs(30);
const DOWNLOAD_LIMIT: Duration = Duration::from_secs(300);

/// Environment variables for a build, each with its value.
pub(crate) type Variables = Vec<(&'static str, String)>;

/// Finds a usable libclang, or installs one, and returns the variables with which bindgen finds
/// it. The user's own choice in the environment is respected.
///
/// # Errors
///
/// Returns an error if there is none and none can be installed.
pub(crate) fn ensure() -> Result<Variables> {
    if std::env::var_os(VARIABLE).is_some() {
        return Ok(Variables::new());
    }
    if let Some(found) = find() {
        return named(&found);
    }
    eprintln!(
        "xtask: no libclang up to version {NEWEST} (rdma-sys generates its bindings with it)"
    );
    let Some(package) = PACKAGES.into_iter().find(|package| apt::knows(package)) else {
        return from_wheel();
    };
    apt::install(&[package])?;
    match find() {
        Some(found) => named(&found),
        None => bail!("{package} was installed, but its libclang was not found under /usr/lib"),
    }
}

fn named(folder: &Path) -> Result<Variables> {
    let folder = folder.to_str().context("the name of libclang's folder is not UTF-8")?;
    Ok(vec![(VARIABLE, folder.to_owned())])
}

/// Unpacks PyPI's package. It has no headers of its own, and takes the C compiler's.
fn from_wheel() -> Result<Variables> {
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    let folder = std::path::absolute(PathBuf::from(target).join("libclang"))?;
    let library = folder.join("clang/native");
    if !has_library(&library) {
        ensure_pip()?;
        eprintln!("xtask: installing {WHEEL} of PyPI into {}", folder.display());
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "install", "--quiet", "--no-deps", "--target"]);
        // A folder of its own can break no system's packages, of which pip warns root.
        pip.env("PIP_ROOT_USER_ACTION", "ignore");
        bounded::run(pip.arg(&folder).arg(WHEEL), DOWNLOAD_LIMIT).with_context(|| {
            format!(
                "rdma-sys needs a libclang up to version {NEWEST}: neither this machine nor its \
                 package archive has one, and python3 with pip could not install {WHEEL}. \
                 Install one (Debian 12 calls it {}) and set {VARIABLE} to the folder of its \
                 libclang.so",
                PACKAGES[0]
            )
        })?;
    }
    let mut variables = named(&library)?;
    let headers = bounded::output(Command::new("cc").arg("-print-file-name=include"), PROBE_LIMIT)?;
    variables.push((ARGUMENTS, format!("-I{}", headers.trim())));
    Ok(variables)
}

/// Installs pip where apt does that. Elsewhere pip itself fails, and the error says what it is for.
fn ensure_pip() -> Result<()> {
    let mut python = Command::new("python3");
    if bounded::succeeds(python.args(["-m", "pip", "--version"]), PROBE_LIMIT)
        || program::find("apt-get").is_none()
    {
        return Ok(());
    }
    apt::install(&["python3-pip"])
}

fn find() -> Option<PathBuf> {
    if program::find("apt-get").is_some() {
        // Here a library outside of these folders may be without its headers.
        return newest_usable(in_llvm_folders(Path::new("/usr/lib")).into_iter());
    }
    let cache = bounded::output(program::command("ldconfig").arg("-p"), PROBE_LIMIT);
    newest_usable(in_linker_cache(&cache.unwrap_or_default()).into_iter())
}

fn newest_usable(found: impl Iterator<Item = (u32, PathBuf)>) -> Option<PathBuf> {
    found
        .filter(|(version, _)| *version <= NEWEST)
        .max_by_key(|(version, _)| *version)
        .map(|(_, path)| path)
}

/// The folders `llvm-N/lib` of Debian that hold a libclang together with its own headers, without
/// which `stddef.h` is not found.
fn in_llvm_folders(root: &Path) -> Vec<(u32, PathBuf)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(root).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let version = name.to_str().and_then(|name| name.strip_prefix("llvm-")?.parse().ok());
        let folder = entry.path().join("lib");
        if let Some(version) = version
            && has_library(&folder)
            && folder.join("clang").is_dir()
        {
            found.push((version, folder));
        }
    }
    found
}

fn has_library(folder: &Path) -> bool {
    std::fs::read_dir(folder).is_ok_and(|entries| {
        entries.flatten().any(|entry| {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            (name.starts_with("libclang.so") || name.starts_with("libclang-"))
                && name.contains(".so")
                && !name.starts_with("libclang-cpp")
        })
    })
}

/// The libraries `libclang-N.so...` and `libclang.so.N` of the linker's cache, as `ldconfig -p`
/// prints it.
fn in_linker_cache(printed: &str) -> Vec<(u32, PathBuf)> {
    let mut found = Vec::new();
    for line in printed.lines() {
        let Some((name, path)) = line.trim().split_once(" => ") else { continue };
        if let Some(version) = name.split_whitespace().next().and_then(version_in_name) {
            found.push((version, PathBuf::from(path)));
        }
    }
    found
}

fn version_in_name(name: &str) -> Option<u32> {
    let digits = name.strip_prefix("libclang-").or_else(|| name.strip_prefix("libclang.so."))?;
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    digits[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_names_of_both_kinds() {
        assert_eq!(version_in_name("libclang-14.so.13"), Some(14));
        assert_eq!(version_in_name("libclang.so.15"), Some(15));
        assert_eq!(version_in_name("libclang-cpp.so.14"), None);
        assert_eq!(version_in_name("libclangd.so.14"), None);
    }

    #[test]
    fn the_newest_that_works_is_taken_and_newer_ones_are_not() {
        let cache = "\tlibclang-19.so.19 (libc6,x86-64) => /lib/libclang-19.so.19\n\
                     \tlibclang-14.so.13 (libc6,x86-64) => /lib/libclang-14.so.13\n\
                     \tlibclang-11.so.1 (libc6,x86-64) => /lib/libclang-11.so.1\n";
        let chosen = newest_usable(in_linker_cache(cache).into_iter());
        assert_eq!(chosen, Some(PathBuf::from("/lib/libclang-14.so.13")));
        assert_eq!(newest_usable([(16, PathBuf::from("/lib"))].into_iter()), None);
    }

    #[test]
    fn a_library_without_its_headers_is_passed_over() {
        let root = tempfile::tempdir().unwrap();
        for version in ["llvm-14", "llvm-15"] {
            let folder = root.path().join(version).join("lib");
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("libclang.so.1"), "").unwrap();
        }
        std::fs::create_dir(root.path().join("llvm-14/lib/clang")).unwrap();
        assert_eq!(in_llvm_folders(root.path()), [(14, root.path().join("llvm-14/lib"))]);
    }
}
