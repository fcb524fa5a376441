//! The distribution that this machine runs, and its package manager.

use std::fs;

/// Files in which a distribution names itself. The second is used if the first is missing.
const FILES: [&str; 2] = ["/etc/os-release", "/usr/lib/os-release"];

/// Distributions that name packages alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    /// Debian, Ubuntu and their kin.
    Debian,
    /// Fedora, Red Hat's and their kin.
    Fedora,
    /// Arch and its kin.
    Arch,
    /// Alpine, whose C library is musl.
    Alpine,
    /// openSUSE and SUSE's.
    Suse,
}

impl Family {
    /// Every family, in the order of the table of needs.
    pub(super) const ALL: [Self; 5] =
        [Self::Debian, Self::Fedora, Self::Arch, Self::Alpine, Self::Suse];

    /// The family that a distribution belongs to, by its identifier in `os-release`.
    fn from_id(id: &str) -> Option<Self> {
        match id {
            "debian" | "ubuntu" => Some(Self::Debian),
            "fedora" | "rhel" | "centos" => Some(Self::Fedora),
            "arch" | "archarm" => Some(Self::Arch),
            "alpine" => Some(Self::Alpine),
            "suse" | "opensuse" | "opensuse-leap" | "opensuse-tumbleweed" | "sles" => {
                Some(Self::Suse)
            }
            _ => None,
        }
    }

    /// The command that installs packages, which follow it.
    pub(super) fn install_command(self) -> &'static str {
        match self {
            Self::Debian => "apt-get install --no-install-recommends",
            Self::Fedora => "dnf install",
            Self::Arch => "pacman -S",
            Self::Alpine => "apk add",
            Self::Suse => "zypper install",
        }
    }
}

/// A distribution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct System {
    /// The distribution's own name.
    pub(super) name: String,
    /// None for one that is not known.
    pub(super) family: Option<Family>,
}

impl System {
    /// This machine's.
    pub(super) fn read() -> Self {
        let text = FILES.iter().find_map(|file| fs::read_to_string(file).ok());
        Self::described(&text.unwrap_or_default())
    }

    /// The one that `os_release` describes: the text of the file of that name.
    pub(super) fn described(os_release: &str) -> Self {
        let field = |wanted: &str| {
            let value = os_release.lines().find_map(|line| {
                let (name, value) = line.trim().split_once('=')?;
                (name == wanted).then(|| value.trim_matches(['"', '\'']))
            });
            value.filter(|value| !value.is_empty())
        };
        let id = field("ID");
        // The nearest kin comes first.
        let kin = field("ID_LIKE").into_iter().flat_map(str::split_whitespace);
        let name = field("PRETTY_NAME").or(field("NAME")).or(id);
        Self {
            name: name.unwrap_or("an unknown system").to_owned(),
            family: id.into_iter().chain(kin).find_map(Family::from_id),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn family(os_release: &str) -> Option<Family> {
        System::described(os_release).family
    }

    #[test]
    fn a_distribution_is_known_by_its_identifier() {
        let fedora = System::described("NAME=\"Fedora Linux\"\nID=fedora\nVERSION_ID=41\n");
        assert_eq!((fedora.name.as_str(), fedora.family), ("Fedora Linux", Some(Family::Fedora)));
        assert_eq!(family("ID=alpine\n"), Some(Family::Alpine));
        assert_eq!(family("ID='arch'\n"), Some(Family::Arch));
        assert_eq!(family("ID=\"opensuse-tumbleweed\"\n"), Some(Family::Suse));
    }

    #[test]
    fn a_distribution_that_is_not_known_is_its_kin() {
        assert_eq!(family("ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n"), Some(Family::Fedora));
        assert_eq!(family("ID=linuxmint\nID_LIKE=\"ubuntu debian\"\n"), Some(Family::Debian));
        assert_eq!(family("ID_LIKE=\"suse opensuse\"\nID=other\n"), Some(Family::Suse));
        assert_eq!(family("ID=manjaro\nID_LIKE=arch\n"), Some(Family::Arch));
    }

    #[test]
    fn what_is_not_known_has_a_name_at_least() {
        let nixos = System::described("ID=nixos\nPRETTY_NAME=\"NixOS 25.05\"\n");
        assert_eq!((nixos.name.as_str(), nixos.family), ("NixOS 25.05", None));
        assert_eq!(System::described("").name, "an unknown system");
    }
}
