//! Why a connection has no upgraded path, as one of a few words.

use std::fmt;

use crate::connect::ConnectionInfo;

/// The kind of reason for which a connection is not on an upgraded path. The reason itself may have
/// text of the peer, and is no label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FallbackKind {
    /// The connection has an upgraded path, or its client asked for none.
    None,
    /// One side has no device.
    NoDevice,
    /// The reason can pass, and the client tries again.
    CanPass,
    /// The reason lasts as long as the connection.
    Lasting,
}

impl FallbackKind {
    /// Returns the kind of a connection.
    #[must_use]
    pub fn new(info: &ConnectionInfo) -> Self {
        match info {
            ConnectionInfo { fallback: None, .. } => Self::None,
            ConnectionInfo { is_without_device: true, .. } => Self::NoDevice,
            ConnectionInfo { fallback_can_pass: true, .. } => Self::CanPass,
            ConnectionInfo { .. } => Self::Lasting,
        }
    }

    /// Returns the value of the label `fallback`.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::NoDevice => "no_device",
            Self::CanPass => "can_pass",
            Self::Lasting => "lasting",
        }
    }
}

impl fmt::Display for FallbackKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}
