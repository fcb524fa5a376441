//! A row: the attacker, its victim, and the bounds on the victim's cost.

use super::Scale;
use super::hostile::{Assault, Trap};

/// A row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) name: &'static str,
    /// Behavior of the hostile peer, in one line.
    pub(super) what: &'static str,
    pub(super) scene: Scene,
    pub(super) bounds: Bounds,
    pub(super) quick: Quick,
}

/// The row's presence in the short form, which every build runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quick {
    Shown,
    /// And why not.
    Left(&'static str),
}

/// The attacker and its victim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scene {
    /// Hostile clients attack the server that honest clients call.
    Server(Assault, Rules),
    /// A hostile server attacks a client, which also calls an honest server.
    Client(Trap),
    /// No peer is hostile: a handler of the server blocks its thread.
    BlockingHandler,
}

/// Under which rules the attacked server runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rules {
    /// The defaults.
    Default,
    /// The defaults in the full form. In the short form so many connections at a time, since
    /// 10,000 take too long to open.
    FewConnections(u32),
    /// Memory for all clients, in MiB. The default, a quarter of a large machine, is more than the
    /// short form could fill.
    Memory(u64),
}

/// The bounds of a row. In all rows honest calls do not fail, honest newcomers connect, and the
/// victim's log holds only what [`super::log_text`] allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bounds {
    /// Maximum growth of the victim's resident memory at any time, in MiB.
    pub(super) growth_mib: u64,
    /// The processor time that the attack may cost the victim, in nanoseconds per byte sent.
    pub(super) cpu_ns_per_byte: Option<u64>,
    /// Maximum number of the victim's attempts to connect to its hostile server, short and full
    /// form.
    pub(super) attempts: Option<(u64, u64)>,
    /// Hostile connections that the victim must close.
    pub(super) closed: Closed,
    /// Source of the figures.
    pub(super) why: &'static str,
}

/// The hostile connections that the victim must close.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Closed {
    /// It may keep them all.
    Any,
    /// All of them.
    All,
    /// All of them, and only the full form waits that long.
    AllInTime,
}

impl Closed {
    /// Returns true if it must close all of them.
    pub(super) fn is_due(self, scale: Scale) -> bool {
        match self {
            Self::Any => false,
            Self::All => true,
            Self::AllInTime => scale == Scale::Full,
        }
    }
}
