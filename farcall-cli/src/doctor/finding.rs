//! Findings: one line per fact, with its cause and the commands that fix it.

use serde::Serialize;

/// A judgment of one fact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) enum Mark {
    /// The fact is as RDMA needs it.
    #[serde(rename = "ok")]
    Ok,
    /// The fact keeps connections off RDMA, or makes RDMA fail under load.
    #[serde(rename = "!!")]
    Fault,
    /// The fact is unknown, was not looked at, or costs speed alone.
    #[serde(rename = "--")]
    Note,
}

/// A cause that keeps a host or a pod off RDMA, or slows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Cause {
    Library,
    Provider,
    DeviceNode,
    PortDown,
    NoGid,
    ForeignGid,
    GidIndex,
    GidTable,
    Nat,
    Memlock,
    IpcLock,
    MaxRdAtomic,
    Mtu,
    ShortReads,
    Udp4791,
    Congestion,
    Iommu,
    Numa,
    HugePages,
    Clock,
    OpenFiles,
    TcpBuffers,
}

/// The page of the book that explains the causes.
pub(crate) const PAGE: &str = "docs/book/src/rdma.md";

/// A judgment of one fact, for people and for programs.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Finding {
    pub(crate) mark: Mark,
    /// Name of the fact.
    pub(crate) name: &'static str,
    pub(crate) text: String,
    pub(crate) cause: Option<Cause>,
    /// The side that a fault of a path is on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) side: Option<&'static str>,
    /// Commands, with a comment behind `#` where one needs it.
    pub(crate) fixes: Vec<String>,
    /// Place in the book.
    pub(crate) link: Option<String>,
}

impl Cause {
    /// Returns the heading of [`PAGE`] that explains the cause, as a link names it.
    pub(crate) fn anchor(self) -> &'static str {
        match self {
            Self::Library | Self::Provider => "put-a-service-on-rdma",
            Self::DeviceNode | Self::ForeignGid | Self::GidTable | Self::Nat => "containers",
            Self::PortDown | Self::NoGid | Self::GidIndex | Self::Numa => "choose-device-and-port",
            Self::Memlock | Self::IpcLock => "locked-memory",
            Self::MaxRdAtomic => "each-nic",
            Self::Mtu | Self::Udp4791 | Self::Congestion => "the-network",
            Self::ShortReads => "soft-roce",
            Self::Iommu | Self::HugePages | Self::Clock | Self::OpenFiles | Self::TcpBuffers => {
                "the-machine"
            }
        }
    }
}

impl Finding {
    /// A fact that is as it should be.
    pub(crate) fn ok(name: &'static str, text: impl Into<String>) -> Self {
        let (text, fixes) = (text.into(), Vec::new());
        Self { mark: Mark::Ok, name, text, cause: None, side: None, fixes, link: None }
    }

    /// A fact that could not be looked at, or has no cause of its own.
    pub(crate) fn note(name: &'static str, text: impl Into<String>) -> Self {
        Self { mark: Mark::Note, ..Self::ok(name, text) }
    }

    /// A fact that costs speed alone, for a known cause.
    pub(crate) fn advice(name: &'static str, cause: Cause, text: impl Into<String>) -> Self {
        Self { mark: Mark::Note, ..Self::fault(name, cause, text) }
    }

    /// A fact that keeps connections off RDMA.
    pub(crate) fn fault(name: &'static str, cause: Cause, text: impl Into<String>) -> Self {
        let link = Some(format!("{PAGE}#{}", cause.anchor()));
        Self { mark: Mark::Fault, cause: Some(cause), link, ..Self::ok(name, text) }
    }

    /// A fault without a cause of the list.
    pub(crate) fn other_fault(name: &'static str, text: impl Into<String>) -> Self {
        Self { mark: Mark::Fault, ..Self::ok(name, text) }
    }

    /// Adds a command that fixes it.
    pub(crate) fn fix(mut self, command: impl Into<String>) -> Self {
        self.fixes.push(command.into());
        self
    }

    /// Names the side that the fault is on.
    pub(crate) fn on(mut self, side: &'static str) -> Self {
        self.side = Some(side);
        self
    }

    pub(crate) fn is_fault(&self) -> bool {
        self.mark == Mark::Fault
    }

    /// Returns the lines for people.
    pub(crate) fn lines(&self) -> Vec<String> {
        let mark = match self.mark {
            Mark::Ok => "ok",
            Mark::Fault => "!!",
            Mark::Note => "--",
        };
        let side = self.side.map(|side| format!("{side}: ")).unwrap_or_default();
        let mut lines = vec![format!("{mark}  {:<12} {side}{}", self.name, self.text)];
        lines.extend(self.fixes.iter().map(|command| format!("      fix: {command}")));
        lines.extend(self.link.iter().map(|link| format!("      see: {link}")));
        lines
    }
}
