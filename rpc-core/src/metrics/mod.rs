//! Metrics over the facade `metrics`, which every exporter understands.
//!
//! Each metric is declared once, as a [`Metric`]: its name, type, unit, labels and description. The
//! handles, what exporters are told and the page of metrics all come from the declaration.
//!
//! Calls have the names of gRPC's proposal A66. A method's handles are made when the first call of
//! it is counted, and kept: a call finds them by the address of its descriptor. No label comes from
//! a peer: a method that no descriptor describes is `other`, and the reason of a fallback is one of
//! [`FallbackKind`].
//!
//! Nothing is counted before [`enable`]. Until then a call costs a load and a branch on each side,
//! and in a build without the feature nothing.

#[cfg(feature = "metrics")]
mod calls;
#[cfg(feature = "metrics")]
mod events;
#[cfg(feature = "metrics")]
mod list;
#[cfg(feature = "metrics")]
mod metric;
#[cfg(not(feature = "metrics"))]
mod not_built_in;

use std::fmt;

use crate::connect::ConnectionInfo;

#[cfg(feature = "metrics")]
pub use calls::ChannelMeters;
#[cfg(feature = "metrics")]
pub(crate) use calls::{AttemptEnd, ClientMeter, ServerMeter};
#[cfg(feature = "metrics")]
pub use events::{EndedConnections, ended_connections};
#[cfg(feature = "metrics")]
pub(crate) use events::{connection_ended, connection_opened, retried, retry_denied};
#[cfg(feature = "metrics")]
pub use list::METRICS;
#[cfg(feature = "metrics")]
pub use metric::{Metric, MetricKind, MetricUnit, enable};
#[cfg(not(feature = "metrics"))]
pub use not_built_in::ChannelMeters;
#[cfg(not(feature = "metrics"))]
pub(crate) use not_built_in::{
    CallMeter, MeteredCall, ServerMeter, connection_ended, connection_opened, retried, retry_denied,
};

/// The rule by which a call has another attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RetryKind {
    /// No handler has seen the attempt before.
    NotExecuted,
    /// The connection ended under an idempotent call.
    Replay,
    /// A retry policy.
    Policy,
    /// A hedging policy.
    Hedge,
}

impl RetryKind {
    /// The value of the label `kind`.
    #[cfg_attr(not(feature = "metrics"), expect(dead_code, reason = "metrics alone name it"))]
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::NotExecuted => "not_executed",
            Self::Replay => "replay",
            Self::Policy => "policy",
            Self::Hedge => "hedge",
        }
    }
}

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
