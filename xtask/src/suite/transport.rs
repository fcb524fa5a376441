//! The columns of the table, and the program behind each.

use std::fmt;

use clap::ValueEnum;

use crate::rdma_programs::{RdmaProgram, Target};

/// A transport that the behaviours are shown over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Transport {
    /// Inside the process.
    Inproc,
    /// TCP on loopback.
    Tcp,
    /// TLS over TCP on loopback.
    Tls,
    /// A Unix socket.
    Unix,
    /// A byte stream that the program made.
    Stream,
    /// None of ours: tonic's generated clients against tonic's own server.
    Tonic,
    /// RDMA, on this host's device or in the virtual machine.
    Rdma,
}

impl Transport {
    /// The columns in their order: those that are asked for, or all that need no device; and RDMA
    /// in any case when `extra` has it.
    pub(crate) fn chosen(wanted: &[Self], extra: Option<Self>) -> Vec<Self> {
        let is_chosen = |transport: &Self| match transport {
            Self::Rdma => extra == Some(Self::Rdma) || wanted.contains(transport),
            _ => wanted.is_empty() || wanted.contains(transport),
        };
        Self::value_variants().iter().copied().filter(is_chosen).collect()
    }

    /// Its name, which is also that of its test.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Inproc => "inproc",
            Self::Tcp => "tcp",
            Self::Tls => "tls",
            Self::Unix => "unix",
            Self::Stream => "stream",
            Self::Tonic => "tonic",
            Self::Rdma => "rdma",
        }
    }

    /// The program that shows the behaviours over it.
    pub(super) fn program(self) -> RdmaProgram {
        // One at a time on a device, where a behaviour's bound counts what its neighbours take.
        let arguments: &[&str] =
            if self == Self::Rdma { &["--test-threads=1"] } else { &["--quiet"] };
        RdmaProgram {
            package: "farcall-suite",
            target: Target::Test(self.name()),
            arguments,
            limit_seconds: 600,
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_those_asked_for_in_their_order() {
        use Transport::{Inproc, Rdma, Stream, Tcp, Tls, Tonic, Unix};
        assert_eq!(Transport::chosen(&[], None), [Inproc, Tcp, Tls, Unix, Stream, Tonic]);
        let all = [Inproc, Tcp, Tls, Unix, Stream, Tonic, Rdma];
        assert_eq!(Transport::chosen(&[], Some(Rdma)), all);
        assert_eq!(Transport::chosen(&[Rdma, Tcp], None), [Tcp, Rdma]);
        assert_eq!(Transport::chosen(&[Unix], Some(Rdma)), [Unix, Rdma]);
    }
}
