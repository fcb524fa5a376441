//! A kernel in the cache: its image, its modules, and the check that it can do what the virtual
//! machine needs.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::ValueEnum as _;
use farcall_testkit::process::bounded;

use super::archive;
use super::release::{Series, by_numbers};
use crate::phase::ProgressPhase;
use crate::program;

/// The usual time of a download of 70 MB and of unpacking it.
const FETCH_USUALLY: Duration = Duration::from_secs(25);

const UNPACK_LIMIT: Duration = Duration::from_secs(300);
const MODPROBE_LIMIT: Duration = Duration::from_secs(30);

/// An unpacked kernel package.
#[derive(Debug)]
pub(crate) struct Kernel {
    root: PathBuf,
    /// Its release, as `uname -r` prints it in the guest.
    pub(crate) release: String,
}

impl Kernel {
    /// The newest cached kernel of `series`, fetched first if there is none.
    ///
    /// # Errors
    ///
    /// Returns an error if it cannot be fetched, or the package holds no kernel.
    pub(crate) fn obtain(series: Series) -> Result<Self> {
        let cache = cache_folder()?;
        fs::create_dir_all(&cache).with_context(|| format!("creating {}", cache.display()))?;
        if let Some(kernel) = Self::cached(series, &cache) {
            return Ok(kernel);
        }
        let what = format!("fetching Debian's kernel {series} for the virtual machine");
        ProgressPhase::announce(&what, FETCH_USUALLY);
        fetch(series, &cache)?;
        Self::cached(series, &cache)
            .with_context(|| format!("no kernel {series} in {} after fetching it", cache.display()))
    }

    /// Returns true if a kernel of any series is there without a download.
    pub(crate) fn is_cached() -> bool {
        let is_there = |cache: &Path| {
            Series::value_variants().iter().any(|series| Self::cached(*series, cache).is_some())
        };
        cache_folder().is_ok_and(|cache| is_there(&cache))
    }

    fn cached(series: Series, cache: &Path) -> Option<Self> {
        let releases = fs::read_dir(cache).ok()?.flatten().filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            name.strip_prefix("kernel-").map(str::to_owned)
        });
        let release = releases
            .filter(|release| series.has_release(release))
            .max_by(|a, b| by_numbers(a, b))?;
        Some(Self { root: cache.join(format!("kernel-{release}")), release })
    }

    /// The image that qemu boots.
    pub(crate) fn image(&self) -> PathBuf {
        self.root.join("boot").join(format!("vmlinuz-{}", self.release))
    }

    /// The files of `names` and all that they depend on, in the order in which they are to be
    /// loaded. A module that is built in has no file.
    ///
    /// # Errors
    ///
    /// Returns an error if the kernel lacks one of them.
    pub(crate) fn modules(&self, names: &[&str]) -> Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        for name in names {
            let mut modprobe = program::command("modprobe");
            let root = self.root.display().to_string();
            modprobe.args(["-d", &root, "-S", &self.release, "--show-depends", name]);
            let printed = bounded::output(&mut modprobe, MODPROBE_LIMIT)
                .with_context(|| format!("kernel {} has no module {name}", self.release))?;
            for file in printed.lines().filter_map(inserted_file) {
                if !files.contains(&file) {
                    files.push(file);
                }
            }
        }
        Ok(files)
    }
}

/// The file of a line `insmod FILE OPTION...`.
fn inserted_file(line: &str) -> Option<PathBuf> {
    let rest = line.strip_prefix("insmod ")?;
    rest.split_whitespace().next().map(PathBuf::from)
}

/// Returns the folder that keeps kernels and initramfs images between runs.
///
/// # Errors
///
/// Returns an error if the environment names no home.
pub(crate) fn cache_folder() -> Result<PathBuf> {
    let cache = match std::env::var_os("XDG_CACHE_HOME") {
        Some(cache) if !cache.is_empty() => PathBuf::from(cache),
        _ => {
            let home =
                std::env::var_os("HOME").context("neither XDG_CACHE_HOME nor HOME is set")?;
            PathBuf::from(home).join(".cache")
        }
    };
    Ok(cache.join("farcall-vm"))
}

/// Unpacks a package beside its final place and moves it there whole, so that a run beside this
/// one, or one that was interrupted, never leaves half a kernel.
fn fetch(series: Series, cache: &Path) -> Result<()> {
    let work = tempfile::Builder::new().prefix("fetch-").tempdir_in(cache)?;
    let package = archive::download(series, work.path())?;
    let root = work.path().join("root");
    bounded::run(program::command("dpkg").arg("-x").arg(&package).arg(&root), UNPACK_LIMIT)?;
    let release = only_release(&root)?;
    if !series.has_release(&release) {
        bail!("the package {} holds kernel {release}, not {series}", package.display());
    }
    if !root.join("boot").join(format!("vmlinuz-{release}")).is_file() {
        bail!("the package {} holds no image of kernel {release}", package.display());
    }
    bounded::run(program::command("depmod").arg("-b").arg(&root).arg(&release), UNPACK_LIMIT)?;
    let place = cache.join(format!("kernel-{release}"));
    if let Err(error) = fs::rename(&root, &place)
        && !place.is_dir()
    {
        return Err(error).with_context(|| format!("moving a kernel to {}", place.display()));
    }
    Ok(())
}

fn only_release(root: &Path) -> Result<String> {
    let modules = root.join("lib/modules");
    let mut entries =
        fs::read_dir(&modules).with_context(|| format!("reading {}", modules.display()))?;
    let entry = entries.next().context("the kernel package holds no modules")??;
    entry.file_name().into_string().ok().context("the kernel release is not UTF-8")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_cached_kernel_of_a_series_is_taken() {
        let cache = tempfile::tempdir().unwrap();
        for name in
            ["kernel-6.1.0-9-amd64", "kernel-6.1.0-10-amd64", "kernel-6.12.3-amd64", "other"]
        {
            fs::create_dir(cache.path().join(name)).unwrap();
        }
        let kernel = Kernel::cached(Series::V6_1, cache.path()).unwrap();
        assert_eq!(kernel.release, "6.1.0-10-amd64");
        assert_eq!(
            kernel.image(),
            cache.path().join("kernel-6.1.0-10-amd64/boot/vmlinuz-6.1.0-10-amd64")
        );
    }

    #[test]
    fn built_in_modules_have_no_file() {
        assert_eq!(inserted_file("builtin crc32"), None);
        let file = inserted_file("insmod /m/kernel/veth.ko debug=1");
        assert_eq!(file, Some(PathBuf::from("/m/kernel/veth.ko")));
    }
}
