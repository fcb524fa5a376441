//! Fetching a kernel package from Debian's archive: with the machine's own package lists when they
//! have one, otherwise with private ones for the suite that has it. Neither changes the machine's
//! configuration.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use farcall_testkit::process::bounded;

use super::debian_source::DebianSource;
use super::release::Series;

const SEARCH_LIMIT: Duration = Duration::from_secs(60);
const UPDATE_LIMIT: Duration = Duration::from_secs(300);
/// 70 to 100 MB at 300 KB/s.
const DOWNLOAD_LIMIT: Duration = Duration::from_secs(330);

/// The user that apt drops to when it is root cannot write to a private folder.
const AS_ROOT: &str = "APT::Sandbox::User=root";

/// Downloads the newest kernel package of `series` into `folder` and returns its file.
///
/// # Errors
///
/// Returns an error if there is no apt, no source with the package, or the download fails.
pub(super) fn download(series: Series, folder: &Path) -> Result<PathBuf> {
    let own = AptOptions::read();
    let found = own.newest(series)?;
    let (options, package) = match found {
        Some(package) => (own, package),
        None => {
            let private = AptOptions::private(series, folder)?;
            let package = private.newest(series)?.with_context(|| {
                format!("the suite {} has no kernel package of series {series}", series.suite())
            })?;
            (private, package)
        }
    };
    eprintln!("xtask: downloading {package} for the virtual machine");
    let mut download = options.command("apt-get");
    bounded::run(download.args(["download", &package]).current_dir(folder), DOWNLOAD_LIMIT)?;
    for entry in fs::read_dir(folder)? {
        let file = entry?.path();
        if file.extension().is_some_and(|extension| extension == "deb") {
            return Ok(file);
        }
    }
    bail!("apt-get downloaded no file for {package}")
}

/// Options that point apt at package lists.
struct AptOptions(Vec<String>);

impl AptOptions {
    fn read() -> Self {
        Self(vec![AS_ROOT.into()])
    }

    /// Makes package lists of one suite under `folder`.
    fn private(series: Series, folder: &Path) -> Result<Self> {
        let codename = os_release("VERSION_CODENAME")?;
        let is_debian = os_release("ID")? == "debian";
        let Some(source) = DebianSource::configured(&codename).filter(|_| is_debian) else {
            bail!(
                "kernel {series} comes from Debian's suite {}, and this machine has no source of \
                 Debian packages: add one to /etc/apt, or run this in a Debian 12 container",
                series.suite()
            );
        };
        let apt = folder.join("apt");
        for state in ["lists/partial", "archives/partial"] {
            fs::create_dir_all(apt.join(state))?;
        }
        let list = apt.join("sources.list");
        fs::write(&list, source.line_for(series.suite()))?;
        let options = Self(vec![
            format!("Dir::Etc::SourceList={}", list.display()),
            "Dir::Etc::SourceParts=-".into(),
            format!("Dir::State::Lists={}", apt.join("lists").display()),
            format!("Dir::Cache={}", apt.display()),
            format!("Dir::Cache::Archives={}", apt.join("archives").display()),
            AS_ROOT.into(),
        ]);
        eprintln!("xtask: reading the package lists of {}", series.suite());
        let mut update = options.command("apt-get");
        bounded::run(update.args(["update", "--quiet"]), UPDATE_LIMIT)?;
        Ok(options)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        for option in &self.0 {
            command.args(["-o", option]);
        }
        command
    }

    fn newest(&self, series: Series) -> Result<Option<String>> {
        let pattern = format!("^{}", series.package_prefix().replace('.', r"\."));
        let mut search = self.command("apt-cache");
        let listed =
            bounded::output(search.args(["search", "--names-only", &pattern]), SEARCH_LIMIT)
                .context("finding kernels for the virtual machine needs apt")?;
        let names = listed.lines().filter_map(|line| line.split_whitespace().next());
        Ok(series.newest_package(names).map(str::to_owned))
    }
}

fn os_release(field: &str) -> Result<String> {
    let text = fs::read_to_string("/etc/os-release").context("reading /etc/os-release")?;
    text.lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix('='))
        .map(|value| value.trim_matches('"').to_owned())
        .with_context(|| format!("/etc/os-release has no {field}"))
}
