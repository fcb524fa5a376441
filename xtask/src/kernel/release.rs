//! The known kernels, and the newest package of a series in an archive.

use std::cmp::Ordering;
use std::fmt;

/// A series of kernels that the virtual machine can run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Series {
    /// Debian 12's own: `rdma_rxe` works in tasklets, and figures are steady.
    #[value(name = "6.1")]
    V6_1,
    /// From Debian 12's backports: `rdma_rxe` works in work queues and shows faults that 6.1 hides.
    #[value(name = "6.12")]
    V6_12,
}

impl Series {
    /// The suite of Debian that has it.
    pub(super) fn suite(self) -> &'static str {
        match self {
            Self::V6_1 => "bookworm",
            Self::V6_12 => "bookworm-backports",
        }
    }

    /// The beginning of its packages' names. The `unsigned` packages are whole; the signed ones
    /// hold only signatures in some releases.
    pub(super) fn package_prefix(self) -> &'static str {
        match self {
            Self::V6_1 => "linux-image-6.1.",
            Self::V6_12 => "linux-image-6.12.",
        }
    }

    /// Returns true if a kernel release, as in `/lib/modules`, belongs to the series.
    pub(super) fn has_release(self, release: &str) -> bool {
        release.starts_with(&self.package_prefix()["linux-image-".len()..])
    }

    /// The newest package of the series among `names`. Cloud kernels have no InfiniBand and
    /// realtime ones another scheduler; neither ends like a plain one.
    pub(super) fn newest_package<'a>(
        self,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Option<&'a str> {
        names
            .into_iter()
            .filter(|name| {
                name.strip_prefix(self.package_prefix())
                    .and_then(|rest| rest.strip_suffix("-amd64-unsigned"))
                    .is_some_and(|rest| !rest.contains("cloud") && !rest.contains("rt"))
            })
            .max_by(|a, b| by_numbers(a, b))
    }
}

impl fmt::Display for Series {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V6_1 => "6.1",
            Self::V6_12 => "6.12",
        })
    }
}

/// Orders names by the numbers in them, so that 6.1.0-9 stands before 6.1.0-10.
pub(super) fn by_numbers(a: &str, b: &str) -> Ordering {
    numbers(a).cmp(&numbers(b)).then_with(|| a.cmp(b))
}

fn numbers(name: &str) -> Vec<u64> {
    name.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_plain_package_is_taken() {
        let names = [
            "linux-image-6.1.0-9-amd64-unsigned",
            "linux-image-6.1.0-10-amd64-unsigned",
            "linux-image-6.1.0-11-cloud-amd64-unsigned",
            "linux-image-6.1.0-11-rt-amd64-unsigned",
            "linux-image-6.12.30+bpo-amd64-unsigned",
            "linux-image-6.1.0-12-amd64",
        ];
        assert_eq!(Series::V6_1.newest_package(names), Some("linux-image-6.1.0-10-amd64-unsigned"));
        assert_eq!(
            Series::V6_12.newest_package(names),
            Some("linux-image-6.12.30+bpo-amd64-unsigned")
        );
    }

    #[test]
    fn a_release_belongs_to_one_series() {
        assert!(Series::V6_1.has_release("6.1.0-56-amd64"));
        assert!(!Series::V6_1.has_release("6.12.38+deb12-amd64"));
        assert!(Series::V6_12.has_release("6.12.38+deb12-amd64"));
    }
}
