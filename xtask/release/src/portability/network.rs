//! Access of this host to package archives and registries, repeated for a machine: name servers,
//! proxies, apt's settings for them, and certificate authorities that the administrator trusts.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use farcall_testkit::process::bounded;

const PROBE_LIMIT: Duration = Duration::from_secs(30);

/// Variables that name proxies.
const PROXIES: [&str; 8] = [
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
];

/// Beginnings of apt's settings that are about reaching an archive.
const APT_SETTINGS: [&str; 4] =
    ["Acquire::http:", "Acquire::https:", "Acquire::Check-", "Acquire::Retries "];

/// Files that tell names and addresses.
const NAMES: [&str; 2] = ["etc/hosts", "etc/resolv.conf"];

/// Folder in which a Debian's administrator puts authorities, one to a file. `ca-certificates` adds
/// them to its own when it is installed.
const AUTHORITIES: &str = "usr/local/share/ca-certificates";

/// Makes the machine in `root` reach what this host reaches.
///
/// # Errors
///
/// Returns an error if a file cannot be copied.
pub(super) fn repeat_in(root: &Path) -> Result<()> {
    for name in NAMES {
        // A symbolic link would name a file of the machine, not of this host.
        let (from, to) = (Path::new("/").join(name), root.join(name));
        let _ = fs::remove_file(&to);
        fs::copy(&from, &to).with_context(|| format!("copying {}", from.display()))?;
    }
    let settings = root.join("etc/apt/apt.conf.d/90network");
    fs::write(&settings, apt_settings())
        .with_context(|| format!("writing {}", settings.display()))?;
    let authorities = root.join(AUTHORITIES);
    fs::create_dir_all(&authorities)?;
    for entry in fs::read_dir(Path::new("/").join(AUTHORITIES)).into_iter().flatten().flatten() {
        fs::copy(entry.path(), authorities.join(entry.file_name()))
            .with_context(|| format!("copying {}", entry.path().display()))?;
    }
    Ok(())
}

/// The variables that name proxies, as `NAME=VALUE`.
pub(super) fn variables() -> Vec<String> {
    let set = PROXIES.iter().filter_map(|name| Some((name, std::env::var(name).ok()?)));
    set.map(|(name, value)| format!("{name}={value}")).collect()
}

fn apt_settings() -> String {
    // A host without apt has none.
    let dumped = bounded::output(Command::new("apt-config").arg("dump"), PROBE_LIMIT);
    about_the_network(&dumped.unwrap_or_default())
}

fn about_the_network(dumped: &str) -> String {
    let is_wanted = |line: &&str| APT_SETTINGS.iter().any(|start| line.starts_with(start));
    dumped.lines().filter(is_wanted).flat_map(|line| [line, "\n"]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_settings_about_the_network_are_repeated() {
        let dumped = "APT::Architecture \"amd64\";\nAcquire::Languages \"none\";\n\
                      Acquire::http::Proxy \"http://proxy.test:3128\";\n\
                      Acquire::Check-Valid-Until \"false\";\n";
        assert_eq!(
            about_the_network(dumped),
            "Acquire::http::Proxy \"http://proxy.test:3128\";\n\
             Acquire::Check-Valid-Until \"false\";\n"
        );
    }
}
