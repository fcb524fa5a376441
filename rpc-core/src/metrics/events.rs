//! Counts of rare events, made when they happen: retries and connections.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use super::calls::label;
use super::list::{CONNECTIONS_OPENED, RETRIES, RETRIES_DENIED};
use super::metric::{Metric, is_enabled};
use super::{FallbackKind, RetryKind};
use crate::Method;
use crate::connect::ConnectionInfo;
use crate::transport::TransportStats;

/// Counts an attempt beside the first one.
pub(crate) fn retried(method: &Method, kind: RetryKind) {
    count(&RETRIES, method, kind);
}

/// Counts an attempt that a budget did not allow.
pub(crate) fn retry_denied(method: &Method, kind: RetryKind) {
    count(&RETRIES_DENIED, method, kind);
}

fn count(metric: &Metric, method: &Method, kind: RetryKind) {
    if is_enabled() {
        let method = match method {
            Method::Static(method) => label(Some(method)),
            Method::Shared(_) => label(None),
        };
        metric.counter_with(&[method, kind.label()]).increment(1);
    }
}

/// Counts a connection that was established; `side` is `client` or `server`.
pub(crate) fn connection_opened(side: &'static str, info: &ConnectionInfo) {
    if is_enabled() {
        let labels = [side, info.transport, FallbackKind::new(info).label()];
        CONNECTIONS_OPENED.counter_with(&labels).increment(1);
    }
}

/// The final counts of the process's ended connections, by side and transport.
pub type EndedConnections = BTreeMap<(&'static str, &'static str), TransportStats>;

static ENDED: Mutex<EndedConnections> = Mutex::new(BTreeMap::new());

/// Keeps what a connection had counted; `side` is `client` or `server`.
pub(crate) fn connection_ended(side: &'static str, transport: &'static str, stats: TransportStats) {
    let mut ended = ENDED.lock();
    ended.entry((side, transport)).or_default().add(stats);
}

/// Returns what the connections of the process that have ended had counted. Together with those
/// that are open, these are counts that only grow.
#[must_use]
pub fn ended_connections() -> EndedConnections {
    ENDED.lock().clone()
}
