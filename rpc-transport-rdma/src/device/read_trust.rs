//! Whether a device may be used although its READs are known to complete short.
//!
//! A READ that a device reports as complete and that stops before its end is silent corruption: the
//! rest of the memory has whatever it had before, and nothing above verbs can tell. A device is
//! therefore trusted by evidence, by driver and kernel release. Drivers of hardware are trusted,
//! because their READs are checked by the adapter. Soft-RoCE is a driver whose READs are
//! assembled by the kernel, and it is trusted on the releases that passed the check only.
//!
//! The check is `tests/verbs/lossy.rs`; its figures stand in [`SOFT_ROCE`] and in
//! `docs/rdma-devices.md`. Pure, but for [`kernel_release`].

use rpc_core::connect::{Declined, Obstacle};

use crate::RdmaConfig;
use crate::verbs::Device;

/// A kernel release, as far as it decides anything: `6.12.9-amd64` is 6.12.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Kernel {
    major: u16,
    minor: u16,
}

/// What the check has shown on a kernel release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Evidence {
    /// Every READ that completed was whole.
    Whole,
    /// This many of so many READs completed short.
    Short { short: u32, of: u32 },
}

/// Soft-RoCE under 30 s of READs and SENDs with 0.1 % of the packets lost, by kernel release. A
/// release that is not listed was not checked, and is not trusted.
const SOFT_ROCE: &[(Kernel, Evidence)] = &[
    // Of 23,774 READs none was short, and no queue pair failed.
    (Kernel { major: 6, minor: 1 }, Evidence::Whole),
    (Kernel { major: 6, minor: 12 }, Evidence::Short { short: 80, of: 35_186 }),
];

impl Kernel {
    /// The release in the text of `uname -r`, if that begins with two numbers.
    fn parse(release: &str) -> Option<Self> {
        let (major, rest) = release.trim().split_once('.')?;
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        Some(Self { major: major.parse().ok()?, minor: rest[..end].parse().ok()? })
    }
}

/// Why Soft-RoCE's READs are not trusted on a kernel release, given as `uname -r` prints it; `None`
/// if they are.
pub(crate) fn soft_roce_defect(release: Option<&str>) -> Option<String> {
    let kernel = release.and_then(Kernel::parse);
    let evidence = SOFT_ROCE.iter().find(|(of, _)| Some(*of) == kernel).map(|(_, found)| *found);
    let shown = release.unwrap_or("of an unknown release").trim();
    match evidence {
        Some(Evidence::Whole) => None,
        Some(Evidence::Short { short, of }) => Some(format!(
            "Soft-RoCE on Linux {shown} reports READs as complete that are not: {short} of {of} \
             under packet loss"
        )),
        None => Some(format!(
            "Soft-RoCE on Linux {shown} was never checked for READs that complete short"
        )),
    }
}

/// The release of the running kernel, as `uname -r` prints it.
#[cfg(feature = "ibverbs")]
pub(crate) fn kernel_release() -> Option<String> {
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
            "the READs of {} are not to be trusted: {defect} (rdma.allow_untrusted_reads)",
            device.name()
        ))),
        _ => Ok(()),
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

    proptest! {
        #[test]
        fn any_text_is_a_release_or_none(text in ".{0,20}") {
            let _ = soft_roce_defect(Some(&text));
        }
    }
}
