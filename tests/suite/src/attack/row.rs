//! What a row is: the attacker, its victim, and what the attack may cost the victim.

use super::Scale;
use super::hostile::{Assault, Trap};

/// A row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) name: &'static str,
    /// What the hostile peer does, in a line.
    pub(super) what: &'static str,
    pub(super) scene: Scene,
    pub(super) bounds: Bounds,
    pub(super) quick: Quick,
}

/// Whether the short form, which every build runs, has a row.
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
    /// So much memory for all clients, in MiB: a quarter of a large machine is more than the short
    /// form could fill.
    Memory(u64),
}

/// What a row may cost. On all of them: honest calls do not fail, honest newcomers connect, and the
/// victim's log holds what [`super::log_text`] allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bounds {
    /// How much more resident memory the victim may have at any time than before, in MiB.
    pub(super) growth_mib: u64,
    /// The processor time that the attack may cost the victim, in nanoseconds per byte sent.
    pub(super) cpu_ns_per_byte: Option<u64>,
    /// How often the victim may connect to its hostile server, short and full form.
    pub(super) attempts: Option<(u64, u64)>,
    /// Which of the hostile connections the victim has to close.
    pub(super) closed: Closed,
    /// Where the figures come from.
    pub(super) why: &'static str,
}

/// Which hostile connections the victim has to close.
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
    /// Whether it has to close them all.
    pub(super) fn is_due(self, scale: Scale) -> bool {
        match self {
            Self::Any => false,
            Self::All => true,
            Self::AllInTime => scale == Scale::Full,
        }
    }
}
