//! The quirks of drivers, in one table, and what is decided by them.
//!
//! | driver | Linux | a READ that completes | a key that a peer takes away |
//! |---|---|---|---|
//! | Soft-RoCE | 6.1 | is whole | may panic the host |
//! | Soft-RoCE | 6.12 | may be short | may panic the host |
//! | Soft-RoCE | others | was not checked | may panic the host |
//! | hardware | any | is whole | is dead, if the device passes a check |
//!
//! | driver | Linux | last receive of a dead queue pair | half a message's | slots are filled |
//! |---|---|---|---|---|
//! | Soft-RoCE | 6.1 | has no event | is flushed | in order |
//! | Soft-RoCE | others | has an event | is lost | in order |
//! | hardware | any | has an event, by the specification | is flushed before | undocumented |
//!
//! **READs.** A READ that a device reports as complete and that stops before its end is silent
//! corruption: the rest of the memory has whatever it had before, and nothing above verbs can tell.
//! A device is therefore trusted by evidence, by driver and kernel release. Drivers of hardware are
//! trusted, because their READs are checked by the adapter. Soft-RoCE is a driver whose READs are
//! assembled by the kernel, and it is trusted on the releases that passed the check only. The check
//! is `tests/verbs/lossy.rs`; its figures stand in [`SOFT_ROCE`] and in `docs/book/src/rdma.md`.
//!
//! **Windows.** What hardware does is found out by using its windows (`memory_window_check`).
//!
//! **Receives.** The rows of Soft-RoCE were seen in `tests/verbs/closing.rs`; its queue of receives
//! is a ring in the kernel's `rxe_srq.c`, from whose front alone a queue pair takes. libmlx5, mlx4
//! and hns free the receives of a queue pair that is destroyed before they were polled, and bnxt_re
//! and irdma skip them, so that with all of them nothing may be left to poll by then.
//!
//! **Loss.** A device that the kernel has taken away answers everything with `EIO`, whatever its
//! driver: `sys::provider::is_gone` knows by that what is destroyed already.
//!
//! Pure, but for [`kernel_release`].

use rpc_core::connect::{Declined, Obstacle};

use crate::device::{WindowFault, check_windows};
#[cfg(feature = "ibverbs")]
use crate::sys::provider::Ibverbs;
use crate::sys::provider::{Device, Port, Quirks, ReceiveDrain};
use crate::{RdmaConfig, RkeyScope};

/// A kernel release, as far as it decides anything: `6.12.9-amd64` is 6.12.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Kernel {
    major: u16,
    minor: u16,
}

/// The results of the check on a kernel release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Evidence {
    /// Every READ that completed was whole.
    Whole,
    /// This many of so many READs completed short.
    Short { short: u32, of: u32 },
}

/// Soft-RoCE on a kernel release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SoftRoce {
    kernel: Kernel,
    /// 30 s of READs and SENDs with 0.1 % of the packets lost.
    reads: Evidence,
    drain: ReceiveDrain,
}

/// Soft-RoCE by kernel release. A release that is not listed was not checked: its READs are not
/// trusted, and its receives are taken for the worst of those that were.
const SOFT_ROCE: &[SoftRoce] = &[
    // Of 23,774 READs none was short, and no queue pair failed.
    SoftRoce {
        kernel: Kernel { major: 6, minor: 1 },
        reads: Evidence::Whole,
        drain: ReceiveDrain::SILENT,
    },
    SoftRoce {
        kernel: Kernel { major: 6, minor: 12 },
        reads: Evidence::Short { short: 80, of: 35_186 },
        drain: ReceiveDrain::LEAKY,
    },
];

/// The vendor that Soft-RoCE gives itself (`RXE_VENDOR_ID` in Linux).
const SOFT_ROCE_VENDOR: u32 = 0x00ff_ffff;

/// Seen on Linux 6.1 and 6.12: `rxe_do_invalidate_mw` follows the queue pair and the region of the
/// window, which are null once that is free; and `req_retry` starts again with the oldest request,
/// so that binds and invalidations behind it are executed once more.
const SOFT_ROCE_WINDOWS: &str =
    "on Soft-RoCE, a peer that invalidates a window's key twice panics this host's kernel";

impl Kernel {
    /// The release in the text of `uname -r`, if that begins with two numbers.
    fn parse(release: &str) -> Option<Self> {
        let (major, rest) = release.trim().split_once('.')?;
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        Some(Self { major: major.parse().ok()?, minor: rest[..end].parse().ok()? })
    }
}

/// The row of Soft-RoCE on a kernel release.
fn soft_roce(release: Option<&str>) -> Option<&'static SoftRoce> {
    let kernel = release.and_then(Kernel::parse);
    SOFT_ROCE.iter().find(|row| Some(row.kernel) == kernel)
}

/// The quirks of a vendor's driver on a kernel release, given as `uname -r` prints it.
fn quirks_of(vendor: u32, release: Option<&str>) -> Quirks {
    if vendor != SOFT_ROCE_VENDOR {
        return Quirks::NONE;
    }
    Quirks {
        read_defect: soft_roce_defect(release),
        window_defect: Some(SOFT_ROCE_WINDOWS),
        queues_are_locked: false,
        receive_drain: soft_roce(release).map_or(ReceiveDrain::LEAKY, |row| row.drain),
        ..Quirks::NONE
    }
}

/// Why Soft-RoCE's READs are not trusted on a kernel release, given as `uname -r` prints it; `None`
/// if they are.
fn soft_roce_defect(release: Option<&str>) -> Option<String> {
    let evidence = soft_roce(release).map(|row| row.reads);
    let shown = release.unwrap_or("of an unknown release").trim();
    match evidence {
        Some(Evidence::Whole) => None,
        Some(Evidence::Short { short, of }) => Some(format!(
            "Soft-RoCE on Linux {shown} completes READs before their data arrived: {short} of \
             {of} under packet loss"
        )),
        None => Some(format!(
            "Soft-RoCE on Linux {shown} was never checked for READs that complete early"
        )),
    }
}

#[cfg(feature = "ibverbs")]
impl Ibverbs {
    /// The provider. It opens libibverbs when it is first asked for devices, so that a host
    /// without the library can have one, and learns then that it is missing.
    #[must_use]
    pub fn new() -> Self {
        Self::with_quirks(|vendor| quirks_of(vendor, kernel_release().as_deref()))
    }
}

#[cfg(feature = "ibverbs")]
impl Default for Ibverbs {
    fn default() -> Self {
        Self::new()
    }
}

/// The release of the running kernel, as `uname -r` prints it.
#[cfg(feature = "ibverbs")]
fn kernel_release() -> Option<String> {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").ok()
}

fn untrusted(reason: String) -> Declined {
    Declined::with(Obstacle::Untrusted, reason)
}

/// Declines a device whose READs are not trusted, unless the configuration allows it.
///
/// # Errors
///
/// [`Declined`] names the device, the evidence and the setting.
pub(crate) fn check(device: &Device, config: &RdmaConfig) -> Result<(), Declined> {
    match device.read_defect() {
        Some(defect) if !config.allow_untrusted_reads => Err(untrusted(format!(
            "READs on {} cannot be trusted: {defect} (rdma.allow_untrusted_reads)",
            device.name()
        ))),
        _ => Ok(()),
    }
}

impl RkeyScope {
    /// Returns the scope that this policy gives on a port: a window's or a region's.
    ///
    /// # Errors
    ///
    /// Returns [`WindowFault`] if windows are required and not possible.
    pub(crate) fn on(self, port: &Port) -> Result<Self, WindowFault> {
        let device = port.device.name();
        let defect = port.device.window_defect();
        match (self, defect) {
            (Self::Region, _) => Ok(Self::Region),
            (Self::Window, defect) => {
                if !port.device.has_known_windows() {
                    check_windows(port)?;
                }
                if let Some(defect) = defect {
                    rpc_core::limited_log!(
                        target: "farcall::rdma",
                        process_wide,
                        WARN,
                        "rkey scope is window, as configured",
                        device,
                        defect
                    );
                }
                Ok(Self::Window)
            }
            (Self::Auto, Some(defect)) => {
                rpc_core::limited_log!(
                    target: "farcall::rdma",
                    process_wide,
                    INFO,
                    "rkey scope is region",
                    device,
                    reason = defect
                );
                Ok(Self::Region)
            }
            (Self::Auto, None) => Ok(match check_windows(port) {
                Ok(()) => Self::Window,
                Err(reason) => {
                    rpc_core::limited_log!(
                        target: "farcall::rdma",
                        process_wide, INFO, "rkey scope is region", device, %reason
                    );
                    Self::Region
                }
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_release_is_its_first_two_numbers() {
        let parsed = |text| Kernel::parse(text).map(|kernel| (kernel.major, kernel.minor));
        for (text, release) in [
            ("6.1.0-18-amd64\n", Some((6, 1))),
            ("6.12.9+bpo-amd64", Some((6, 12))),
            ("6.12", Some((6, 12))),
            ("6.1-rc3", Some((6, 1))),
            ("10.0.0", Some((10, 0))),
            ("", None),
            ("6", None),
            ("6.", None),
            ("linux-6.1", None),
            ("6.99999999.1", None),
        ] {
            assert_eq!(parsed(text), release, "{text:?}");
        }
    }

    #[test]
    fn hardware_has_the_class_of_its_data_center() {
        let class = |vendor| quirks_of(vendor, Some("6.1.0-18-amd64")).traffic_class();
        // The vendor number of mlx5 and mlx4.
        assert_eq!([class(0x02c9), class(SOFT_ROCE_VENDOR)], [106, 0]);
    }

    #[test]
    fn soft_roce_is_trusted_only_where_the_check_passed() {
        assert_eq!(soft_roce_defect(Some("6.1.0-18-amd64")), None);
        let defect = |release| soft_roce_defect(release).unwrap_or_default();
        assert!(defect(Some("6.12.9-amd64\n")).contains("80 of 35186"), "known to be short");
        for release in ["6.10.1", "6.11.0", "6.13.0", "5.15.0", "7.0.1", "nonsense"] {
            let defect = defect(Some(release));
            assert!(defect.contains("never checked") && defect.contains(release), "{defect}");
        }
        assert!(defect(None).contains("unknown release"));
    }

    #[test]
    fn soft_roce_drains_as_was_seen_of_a_kernel_or_as_the_worst() {
        let drain = |release| quirks_of(SOFT_ROCE_VENDOR, release).receive_drain;
        for release in ["6.1.0-18-amd64\n", "6.1.129"] {
            assert_eq!(drain(Some(release)), ReceiveDrain::SILENT);
        }
        for release in ["6.12.9-amd64", "6.10.1", "5.15.0", "6.18.2", "nonsense", ""] {
            assert_eq!(drain(Some(release)), ReceiveDrain::LEAKY);
        }
        assert_eq!(drain(None), ReceiveDrain::LEAKY);
    }

    #[test]
    fn hardware_has_no_quirk_that_is_known() {
        assert_eq!(quirks_of(0x02c9, Some("6.12.9")), Quirks::NONE);
        assert!(quirks_of(SOFT_ROCE_VENDOR, None).window_defect.is_some());
    }

    proptest! {
        #[test]
        fn any_text_is_a_release_or_none(text in ".{0,20}") {
            let _ = soft_roce_defect(Some(&text));
        }
    }
}
