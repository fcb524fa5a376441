//! The columns of the matrix: the transports that calls travel over.

use std::fmt;

/// A column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Column {
    /// `tcp://`.
    Tcp,
    /// `auto://`: RDMA while it can be had.
    Auto,
    /// `rdma://`: nothing else.
    Rdma,
}

impl Column {
    pub(super) const ALL: [Self; 3] = [Self::Tcp, Self::Auto, Self::Rdma];

    /// The scheme of its addresses.
    pub(super) fn scheme(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Auto => "auto",
            Self::Rdma => "rdma",
        }
    }

    /// Returns the transport of its connections when nothing is wrong.
    pub(super) fn transport(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Auto | Self::Rdma => "rdma",
        }
    }
}

impl fmt::Display for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.scheme())
    }
}
