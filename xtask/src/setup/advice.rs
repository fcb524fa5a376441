//! Advice on needs that cannot be installed here: the names of this distribution's packages, and
//! the command that installs them.

use super::needs::{Need, Packaged};
use super::system::System;

/// Returns a sentence with the command to run.
pub(super) fn command(system: &System, missing: &[&Need]) -> String {
    let name = &system.name;
    let Some(family) = system.family else {
        let packages: Vec<&str> = missing.iter().map(|need| need.debian()).collect();
        return format!(
            "xtask does not know the packages of {name}: install what Debian calls `{}`, then run \
             the command again",
            packages.join(" ")
        );
    };
    let mut packages: Vec<&str> = Vec::new();
    for need in missing {
        // One package may have several of them.
        if let Packaged::As(package) = need.packaged(family)
            && !packages.contains(&package)
        {
            packages.push(package);
        }
    }
    if packages.is_empty() {
        return format!("{name} has no packages for the missing parts");
    }
    format!(
        "xtask may not install packages here ({name}): run `{} {}` as root, then the command again",
        family.install_command(),
        packages.join(" ")
    )
}

/// A line for each need: the package that has it, or why there is none.
pub(super) fn packages(system: &System, missing: &[&Need]) -> Vec<String> {
    let line = |need: &&Need| {
        let packaged = system.family.map(|family| need.packaged(family));
        match packaged.unwrap_or(Packaged::As(need.debian())) {
            Packaged::As(package) => format!("{package} ({})", need.reason),
            Packaged::Not(why) => format!("{} ({}): {why}", need.probe, need.reason),
        }
    };
    missing.iter().map(line).collect()
}

/// A line for each need: what is not there, and the command that installs it alone.
pub(super) fn remedies(system: &System, missing: &[&Need]) -> Vec<String> {
    let line = |need: &&Need| {
        let remedy = match system.family.map(|family| (family, need.packaged(family))) {
            None => format!("what Debian calls {}", need.debian()),
            Some((_, Packaged::Not(why))) => why.to_owned(),
            Some((family, Packaged::As(name))) => format!("`{} {name}`", family.install_command()),
        };
        format!("{} ({}): {remedy}", need.probe, need.reason)
    };
    missing.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::super::needs::with_debian_names;
    use super::*;

    const MISSING: [&str; 4] = ["apt", "rdma-core", "ibverbs-utils", "perftest"];

    fn system(os_release: &str) -> System {
        System::described(os_release)
    }

    #[test]
    fn the_command_is_the_distributions_and_names_each_package_once() {
        let missing = with_debian_names(&MISSING);
        let said = |os_release| command(&system(os_release), &missing);
        let fedora = said("ID=fedora\nNAME=\"Fedora Linux\"\n");
        assert_eq!(
            fedora,
            "xtask may not install packages here (Fedora Linux): run \
             `dnf install rdma-core libibverbs-utils perftest` as root, then the command again"
        );
        assert!(said("ID=arch\n").contains("`pacman -S rdma-core`"));
        assert!(said("ID=alpine\n").contains("`apk add rdma-core`"));
        let suse = "`zypper install rdma-core libibverbs-utils perftest`";
        assert!(said("ID=opensuse-leap\nID_LIKE=\"suse opensuse\"\n").contains(suse));
        assert!(said("ID=ubuntu\n").contains("`apt-get install --no-install-recommends apt"));
        assert!(said("ID=void\n").contains("what Debian calls `apt rdma-core ibverbs-utils"));
    }

    #[test]
    fn what_a_distribution_does_not_package_is_said_with_its_reason() {
        let arch = system("ID=arch\n");
        let lines = packages(&arch, &with_debian_names(&["rdma-core", "perftest"]));
        assert_eq!(lines[0], "rdma-core (names and modules of RDMA devices)");
        assert_eq!(
            lines[1],
            "the program ib_send_lat (farcall is measured against it): Arch has perftest in its \
             user repository only"
        );
        let only = with_debian_names(&["perftest"]);
        assert_eq!(command(&arch, &only), "arch has no packages for the missing parts");
    }

    #[test]
    fn a_remedy_is_a_command_for_one_thing() {
        let missing = with_debian_names(&["iproute2", "perftest"]);
        assert_eq!(
            remedies(&system("ID=alpine\n"), &missing),
            [
                "the program rdma (makes the Soft-RoCE devices): `apk add iproute2-rdma`",
                "the program ib_send_lat (farcall is measured against it): Alpine has no package \
                 of perftest",
            ]
        );
    }
}
