//! Load balancing: chooses the endpoint of each call. Pure machines; time is an argument.
//!
//! ```text
//!   resolver ──endpoints──> Roster ──snapshot──> Picker ──endpoint──> call
//!   connections ──state──>    ^                                        │
//!   timer ──────────────────> └────────── outcome, if it is a suspect ─┘
//! ```
//!
//! The [`Roster`] knows the endpoints, which of them are connected, and which are ejected. It
//! changes seldom, stands behind a lock, and makes a [`Picker`] after each change. A `Picker` never
//! changes, so that callers on all threads pick without a lock. What does change with each call is
//! atomic and stands with the endpoint ([`Load`]).
//!
//! Candidates stand in tiers, and a pick is made in the first one that has any:
//!
//! 1. connected and not ejected (and upgraded, where that is preferred);
//! 2. not ejected, and perhaps connected soon: the call waits;
//! 3. ejected, and connected.
//!
//! So an ejected endpoint is picked only while no other lives. Envoy's panic threshold sends calls
//! to ejected hosts as soon as half of all are ejected; there is none here.

mod config;
mod endpoint;
mod load;
mod picker;
mod roster;
#[cfg(test)]
mod roster_tests;
#[cfg(test)]
mod schedule_tests;

pub use config::{BalanceConfig, OutlierDetection, Policy};
#[doc(hidden)]
pub use config::{BalanceOverlay, OutlierDetectionOverlay};
pub use endpoint::{Connectivity, Endpoint, EndpointId, EndpointStatus};
pub use load::{CallEnd, Load, Suspicion};
pub use picker::{Candidate, Pick, Picker};
pub use roster::{Changes, Roster};
