//! What farcall needs of the machine, why, and how to see whether it is there.
//!
//! The table names Debian's packages; the probes look for what is in them, so that a machine of
//! another kind that has the same programs is left alone. How to install stands in `apt`.

use std::fmt;
use std::path::Path;

use super::program;

/// What a group of needs is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
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
}

impl Purpose {
    /// What all steps of `cargo xtask test` need.
    pub(crate) const OF_TESTS: &[Self] =
        &[Self::Build, Self::Headers, Self::Linked, Self::Checks, Self::Budgets, Self::Vm];
}

/// One thing that must be on the machine.
#[derive(Debug)]
pub(crate) struct Need {
    purpose: Purpose,
    /// Debian's package.
    pub(crate) package: &'static str,
    /// What shows that it is there.
    pub(crate) probe: Probe,
    /// What it is for.
    pub(crate) reason: &'static str,
}

/// How to see that a package is there.
#[derive(Debug)]
pub(crate) enum Probe {
    /// A program, on the path or in a folder for the administrator's programs.
    Program(&'static str),
    /// A file or folder.
    Exists(&'static str),
    /// A busybox that needs no library, because it runs alone in the initramfs.
    StaticBusybox,
}

use Probe::{Exists, Program, StaticBusybox};
use Purpose::{Bench, Budgets, Build, Headers, Linked, Portability, Vm};

const NEEDS: &[Need] = &[
    need(Build, "gcc", Program("cc"), "the linker that rustc calls"),
    need(Build, "libc6-dev", Exists("/usr/include/stdio.h"), "what the linker looks for"),
    need(Build, "binutils", Program("ld"), "the linker that cc calls"),
    need(
        Headers,
        "libibverbs-dev",
        Exists("/usr/include/infiniband/verbs.h"),
        "our declarations of the verbs ABI are compared with it",
    ),
    need(Linked, "pkg-config", Program("pkg-config"), "rdma-sys finds the libraries with it"),
    need(
        Linked,
        "librdmacm-dev",
        Exists("/usr/include/rdma/rdma_cma.h"),
        "rdma-sys makes its bindings of it",
    ),
    need(Budgets, "valgrind", Program("valgrind"), "counts instructions"),
    need(Vm, "qemu-system-x86", Program("qemu-system-x86_64"), "the virtual machine"),
    need(Vm, "busybox-static", StaticBusybox, "the first programs in the virtual machine"),
    need(Vm, "kmod", Program("modprobe"), "finds the modules of the guest's kernel"),
    need(Vm, "cpio", Program("cpio"), "packs the initramfs"),
    need(Vm, "gzip", Program("gzip"), "packs the initramfs"),
    need(Vm, "xz-utils", Program("xz"), "unpacks the modules of newer kernels"),
    need(Vm, "iproute2", Program("rdma"), "makes the Soft-RoCE devices"),
    need(Vm, "rdma-core", Exists("/etc/rdma/modules"), "names and modules of RDMA devices"),
    need(
        Vm,
        "ibverbs-providers",
        Exists("/etc/libibverbs.d/rxe.driver"),
        "the driver of Soft-RoCE",
    ),
    need(Vm, "ibverbs-utils", Program("ibv_devices"), "shows devices"),
    need(Vm, "rdmacm-utils", Program("rping"), "an independent check of the devices"),
    need(Vm, "perftest", Program("ib_send_lat"), "what farcall is measured against"),
    need(Bench, "util-linux", Program("taskset"), "places processes on cores"),
    need(Bench, "ucx-utils", Program("ucx_perftest"), "what farcall is compared with over RDMA"),
    need(Bench, "linux-perf", Program("perf"), "counts system calls"),
    need(Bench, "capnproto", Program("capnp"), "compiles a peer's schema"),
    need(Portability, "debootstrap", Program("debootstrap"), "makes a bare Debian"),
    need(
        Portability,
        "debian-archive-keyring",
        Exists("/usr/share/keyrings/debian-archive-keyring.gpg"),
        "the keys with which Debian signs its archive",
    ),
    need(Portability, "git", Program("git"), "clones what is committed"),
];

const fn need(purpose: Purpose, package: &'static str, probe: Probe, reason: &'static str) -> Need {
    Need { purpose, package, probe, reason }
}

/// What of the needs for `purposes` is not there.
pub(crate) fn missing(purposes: &[Purpose]) -> Vec<&'static Need> {
    NEEDS.iter().filter(|need| purposes.contains(&need.purpose) && !need.probe.is_there()).collect()
}

impl Probe {
    fn is_there(&self) -> bool {
        match self {
            Program(name) => program::find(name).is_some(),
            Exists(path) => Path::new(path).exists(),
            StaticBusybox => program::find("busybox").is_some_and(|file| is_static(&file)),
        }
    }
}

impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Program(name) => write!(f, "the program {name}"),
            Exists(path) => f.write_str(path),
            StaticBusybox => f.write_str("a statically linked busybox"),
        }
    }
}

/// Whether an executable names no interpreter. The name stands in the file's first page, behind its
/// headers.
fn is_static(file: &Path) -> bool {
    const INTERPRETER: &[u8] = b"/ld-";
    std::fs::read(file).is_ok_and(|bytes| {
        let head = &bytes[..bytes.len().min(4096)];
        !head.windows(INTERPRETER.len()).any(|window| window == INTERPRETER)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_package_is_named_once() {
        let mut packages: Vec<&str> = NEEDS.iter().map(|need| need.package).collect();
        packages.sort_unstable();
        packages.dedup();
        assert_eq!(packages.len(), NEEDS.len());
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
