//! The table of farcall's needs: programs and libraries of the machine, each with a reason and a
//! probe.
//!
//! The table names the packages of each family of distributions; the probes look for what is in
//! them, so that a machine of another kind that has the same programs is left alone. How to install
//! stands in `apt`, and what to say where that is impossible in `advice`.

use std::fmt;
use std::path::{Path, PathBuf};

use super::system::Family;
use crate::kernel::Kernel;
use crate::program;

/// The purpose of a group of needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Compiling the workspace.
    Build,
    /// Comparing our declarations of the verbs ABI with C's.
    Headers,
    /// Compiling the RDMA crate over rdma-sys.
    Linked,
    /// Formatting, lints and licences.
    Checks,
    /// Counting what a call costs.
    Budgets,
    /// The virtual machine, and what runs in it.
    Vm,
    /// Measuring.
    Bench,
    /// Trying the README on a bare Debian.
    Portability,
    /// Calls from a browser.
    Browser,
}

impl Purpose {
    /// Purposes of all steps of `cargo xtask test`.
    pub const OF_TESTS: &[Self] =
        &[Self::Build, Self::Headers, Self::Linked, Self::Checks, Self::Budgets, Self::Vm];
}

/// One thing that must be on the machine.
#[derive(Debug)]
pub(crate) struct Need {
    purpose: Purpose,
    /// Probe that finds it.
    pub(super) probe: Probe,
    /// Reason for the need.
    pub(super) reason: &'static str,
    /// Packages that contain it, one for each family, in the order of [`Family::ALL`].
    packages: [Packaged; Family::ALL.len()],
}

/// The package of a need in a family of distributions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Packaged {
    /// The package of this name.
    As(&'static str),
    /// Not at all, and why.
    Not(&'static str),
}

/// A probe for a package.
#[derive(Debug)]
pub(crate) enum Probe {
    /// A program, on the path or in a folder for the administrator's programs.
    Program(&'static str),
    /// A file or folder.
    Exists(&'static str),
    /// Chromium, by either name that distributions have for it.
    Chromium,
    /// A busybox that needs no library, because it runs alone in the initramfs.
    StaticBusybox,
    /// A kernel for the virtual machine, or apt, which fetches one.
    GuestKernel,
}

use Packaged::{As, Not};
use Probe::{Chromium, Exists, GuestKernel, Program, StaticBusybox};
use Purpose::{Bench, Browser, Budgets, Build, Headers, Linked, Portability, Vm};

/// Every need, with Debian's package and those of Fedora, Arch, Alpine and openSUSE.
const NEEDS: &[Need] = &[
    need(Build, Program("cc"), "the linker that rustc calls", everywhere("gcc")),
    need(
        Build,
        Exists("/usr/include/stdio.h"),
        "libraries for the linker",
        [As("libc6-dev"), As("glibc-devel"), As("glibc"), As("musl-dev"), As("glibc-devel")],
    ),
    need(Build, Program("ld"), "the linker that cc calls", everywhere("binutils")),
    need(
        Headers,
        Exists("/usr/include/infiniband/verbs.h"),
        "our declarations of the verbs ABI are compared with it",
        [
            As("libibverbs-dev"),
            As("rdma-core-devel"),
            As("rdma-core"),
            As("rdma-core-dev"),
            As("rdma-core-devel"),
        ],
    ),
    need(
        Linked,
        Program("pkg-config"),
        "rdma-sys finds the libraries with it",
        [
            As("pkg-config"),
            As("pkgconf-pkg-config"),
            As("pkgconf"),
            As("pkgconf"),
            As("pkg-config"),
        ],
    ),
    need(
        Linked,
        Exists("/usr/include/rdma/rdma_cma.h"),
        "rdma-sys makes its bindings of it",
        [
            As("librdmacm-dev"),
            As("rdma-core-devel"),
            As("rdma-core"),
            As("rdma-core-dev"),
            As("rdma-core-devel"),
        ],
    ),
    need(Budgets, Program("valgrind"), "counts instructions", everywhere("valgrind")),
    need(
        Vm,
        GuestKernel,
        "the kernel that it boots",
        on_debian(
            "apt",
            "it is one of Debian's, which apt fetches: a container of Debian's can run this",
        ),
    ),
    need(
        Vm,
        Program("qemu-system-x86_64"),
        "the virtual machine",
        [
            As("qemu-system-x86"),
            As("qemu-system-x86"),
            As("qemu-system-x86"),
            As("qemu-system-x86_64"),
            As("qemu-x86"),
        ],
    ),
    need(
        Vm,
        StaticBusybox,
        "the first programs in the virtual machine",
        [
            As("busybox-static"),
            As("busybox"),
            As("busybox"),
            As("busybox-static"),
            As("busybox-static"),
        ],
    ),
    need(Vm, Program("modprobe"), "finds the modules of the guest's kernel", everywhere("kmod")),
    need(Vm, Program("cpio"), "packs the initramfs", everywhere("cpio")),
    need(Vm, Program("gzip"), "packs the initramfs", everywhere("gzip")),
    need(
        Vm,
        Program("xz"),
        "unpacks the modules of newer kernels",
        [As("xz-utils"), As("xz"), As("xz"), As("xz"), As("xz")],
    ),
    need(
        Vm,
        Program("rdma"),
        "makes the Soft-RoCE devices",
        [As("iproute2"), As("iproute"), As("iproute2"), As("iproute2-rdma"), As("iproute2")],
    ),
    need(
        Vm,
        Exists("/etc/rdma/modules"),
        "names and modules of RDMA devices",
        everywhere("rdma-core"),
    ),
    need(
        Vm,
        Exists("/etc/libibverbs.d/rxe.driver"),
        "the driver of Soft-RoCE",
        [
            As("ibverbs-providers"),
            As("libibverbs"),
            As("rdma-core"),
            As("rdma-core"),
            As("libibverbs"),
        ],
    ),
    need(
        Vm,
        Program("ibv_devices"),
        "shows devices",
        [
            As("ibverbs-utils"),
            As("libibverbs-utils"),
            As("rdma-core"),
            As("rdma-core"),
            As("libibverbs-utils"),
        ],
    ),
    need(
        Vm,
        Program("rping"),
        "an independent check of the devices",
        [
            As("rdmacm-utils"),
            As("librdmacm-utils"),
            As("rdma-core"),
            As("rdma-core"),
            As("librdmacm-utils"),
        ],
    ),
    need(
        Vm,
        Program("ib_send_lat"),
        "farcall is measured against it",
        [
            As("perftest"),
            As("perftest"),
            Not("Arch has perftest in its user repository only"),
            Not("Alpine has no package of perftest"),
            As("perftest"),
        ],
    ),
    need(Bench, Program("taskset"), "places processes on cores", everywhere("util-linux")),
    need(
        Bench,
        Program("ucx_perftest"),
        "farcall is compared with it over RDMA",
        [
            As("ucx-utils"),
            As("ucx"),
            As("openucx"),
            Not("Alpine has no package of UCX"),
            As("openucx-tools"),
        ],
    ),
    need(
        Bench,
        Program("perf"),
        "counts system calls",
        [As("linux-perf"), As("perf"), As("perf"), As("perf"), As("perf")],
    ),
    need(Bench, Program("capnp"), "compiles a peer's schema", everywhere("capnproto")),
    need(Portability, Program("debootstrap"), "creates a bare Debian", everywhere("debootstrap")),
    need(
        Portability,
        Exists("/usr/share/keyrings/debian-archive-keyring.gpg"),
        "the keys with which Debian signs its archive",
        [
            As("debian-archive-keyring"),
            As("debian-keyring"),
            As("debian-archive-keyring"),
            As("debian-archive-keyring"),
            Not("openSUSE has no package of Debian's keys"),
        ],
    ),
    need(Portability, Program("git"), "clones the committed tree", everywhere("git")),
    need(Browser, Chromium, "the browser that calls by grpc-web", everywhere("chromium")),
];

const fn need(
    purpose: Purpose,
    probe: Probe,
    reason: &'static str,
    packages: [Packaged; Family::ALL.len()],
) -> Need {
    Need { purpose, probe, reason, packages }
}

/// A package that every family names alike.
const fn everywhere(name: &'static str) -> [Packaged; Family::ALL.len()] {
    [As(name); Family::ALL.len()]
}

/// A package that only Debian's family has, and why the others do not.
const fn on_debian(name: &'static str, why: &'static str) -> [Packaged; Family::ALL.len()] {
    [As(name), Not(why), Not(why), Not(why), Not(why)]
}

impl Need {
    /// The package of `family` that has it.
    pub(super) fn packaged(&self, family: Family) -> Packaged {
        self.packages[family as usize]
    }

    /// Debian's package.
    pub(super) fn debian(&self) -> &'static str {
        match self.packaged(Family::Debian) {
            As(name) | Not(name) => name,
        }
    }
}

/// Returns the needs for `purposes` that are missing.
pub(crate) fn missing(purposes: &[Purpose]) -> Vec<&'static Need> {
    NEEDS.iter().filter(|need| purposes.contains(&need.purpose) && !need.probe.is_there()).collect()
}

impl Probe {
    fn is_there(&self) -> bool {
        match self {
            Program(name) => program::find(name).is_some(),
            Exists(path) => Path::new(path).exists(),
            Chromium => chromium().is_some(),
            StaticBusybox => static_busybox().is_some(),
            GuestKernel => program::find("apt-get").is_some() || Kernel::is_cached(),
        }
    }
}

impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Program(name) => write!(f, "the program {name}"),
            Exists(path) => f.write_str(path),
            Chromium => f.write_str("the program chromium"),
            StaticBusybox => f.write_str("a statically linked busybox"),
            GuestKernel => f.write_str("a kernel for the virtual machine"),
        }
    }
}

/// Chromium, which Fedora calls by its second name.
pub fn chromium() -> Option<PathBuf> {
    ["chromium", "chromium-browser"].into_iter().find_map(program::find)
}

/// A statically linked busybox. Alpine and openSUSE have it beside one that is not.
pub(crate) fn static_busybox() -> Option<PathBuf> {
    let files =
        ["busybox", "busybox-static", "busybox.static"].into_iter().filter_map(program::find);
    files.into_iter().find(|file| is_static(file))
}

/// Returns true if an executable names no interpreter. The name would be in the file's first page,
/// after its headers.
fn is_static(file: &Path) -> bool {
    const INTERPRETER: &[u8] = b"/ld-";
    std::fs::read(file).is_ok_and(|bytes| {
        let head = &bytes[..bytes.len().min(4096)];
        !head.windows(INTERPRETER.len()).any(|window| window == INTERPRETER)
    })
}

/// The needs that Debian packages under `names`.
#[cfg(test)]
pub(super) fn with_debian_names(names: &[&str]) -> Vec<&'static Need> {
    NEEDS.iter().filter(|need| names.contains(&need.debian())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_package_is_named_once() {
        let mut packages: Vec<&str> = NEEDS.iter().map(Need::debian).collect();
        packages.sort_unstable();
        packages.dedup();
        assert_eq!(packages.len(), NEEDS.len());
    }

    #[test]
    fn every_family_has_a_package_or_a_reason_for_each_need() {
        for need in NEEDS {
            assert!(matches!(need.packaged(Family::Debian), As(_)), "{}", need.probe);
            for family in Family::ALL {
                match need.packaged(family) {
                    As(name) => assert!(is_package_name(name), "{family:?}: {name}"),
                    Not(why) => assert!(why.contains(' '), "{family:?}: {why}"),
                }
            }
        }
    }

    fn is_package_name(name: &str) -> bool {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "+-._".contains(c);
        !name.is_empty() && name.chars().all(plain)
    }

    #[test]
    fn the_families_stand_in_the_order_of_the_columns() {
        for (index, family) in Family::ALL.into_iter().enumerate() {
            assert_eq!(family as usize, index);
        }
        let qemu = NEEDS.iter().find(|need| need.debian() == "qemu-system-x86").unwrap();
        assert_eq!(qemu.packaged(Family::Alpine), As("qemu-system-x86_64"));
        assert_eq!(qemu.packaged(Family::Suse), As("qemu-x86"));
    }

    #[test]
    fn probes_tell_presence_from_absence() {
        assert!(Program("sh").is_there());
        assert!(!Program("no-such-program").is_there());
        assert!(Exists("/").is_there());
        assert!(!Exists("/no/such/file").is_there());
    }

    #[test]
    fn a_dynamic_executable_is_not_static() {
        assert!(!is_static(&program::find("sh").unwrap()));
    }
}
