//! The metrics of a client's calls and their attempts.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use metrics::{Counter, Histogram};
use tonic::Code;

use super::calls::{ByCode, ByMethod, OTHER, bytes, seconds};
use super::list::{
    ATTEMPT_DURATION, ATTEMPT_RECEIVED, ATTEMPT_SENT, ATTEMPT_STARTED, CALL_DURATION,
};
use super::metric::is_enabled;
use crate::Method;

/// The handles of calls to one target. They live as long as the process, as the series of an
/// exporter do.
struct TargetHandles {
    target: Arc<str>,
    methods: ByMethod<ClientMethod>,
}

/// The handles of one method at one target.
struct ClientMethod {
    target: Arc<str>,
    label: &'static str,
    started: Counter,
    ends: ByCode<ClientEnds>,
}

/// The numbers of an attempt that has ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AttemptEnd {
    pub(crate) took: Duration,
    /// Bytes of the request messages.
    pub(crate) sent: u64,
    /// Bytes of the response messages.
    pub(crate) received: u64,
}

/// The handles of calls that end with one code.
struct ClientEnds {
    attempt_duration: Histogram,
    sent: Histogram,
    received: Histogram,
    call_duration: Histogram,
}

static TARGETS: Mutex<BTreeMap<Arc<str>, &'static TargetHandles>> = Mutex::new(BTreeMap::new());

impl TargetHandles {
    /// Returns those of a target. Channels to the same target share them.
    fn find(target: &Arc<str>) -> &'static Self {
        let mut targets = TARGETS.lock().unwrap_or_else(PoisonError::into_inner);
        targets.entry(Arc::clone(target)).or_insert_with(|| {
            Box::leak(Box::new(Self { target: Arc::clone(target), methods: ByMethod::new() }))
        })
    }

    fn method(&'static self, method: &Method) -> &'static ClientMethod {
        let described = match method {
            Method::Static(method) => Some(*method),
            Method::Shared(_) => None,
        };
        self.methods.get(described, |label| ClientMethod {
            target: Arc::clone(&self.target),
            label,
            started: ATTEMPT_STARTED.counter_with(&[label, &self.target]),
            ends: ByCode::new(),
        })
    }
}

impl ClientMethod {
    fn ends(&self, code: Code) -> &ClientEnds {
        self.ends.get(code, |code| {
            let labels = [self.label, &*self.target, code];
            ClientEnds {
                attempt_duration: ATTEMPT_DURATION.histogram_with(&labels),
                sent: ATTEMPT_SENT.histogram_with(&labels),
                received: ATTEMPT_RECEIVED.histogram_with(&labels),
                call_duration: CALL_DURATION.histogram_with(&labels),
            }
        })
    }
}

/// The metrics of the calls of a channel. Those of a channel without a target are not counted.
#[derive(Clone, Default)]
pub struct ChannelMeters {
    target: Option<Arc<str>>,
    handles: OnceLock<&'static TargetHandles>,
}

impl ChannelMeters {
    /// Returns the metrics of a channel to `target`.
    #[must_use]
    pub fn new(target: impl Into<Arc<str>>) -> Self {
        Self { target: Some(target.into()), handles: OnceLock::new() }
    }

    /// Returns the target's label.
    pub(crate) fn target(&self) -> &str {
        self.target.as_deref().unwrap_or(OTHER)
    }

    /// Returns the metrics of a call of `method`.
    #[inline]
    pub(crate) fn method(&self, method: &Method) -> ClientMeter {
        match &self.target {
            Some(target) if is_enabled() => {
                let handles = self.handles.get_or_init(|| TargetHandles::find(target));
                ClientMeter(Some(handles.method(method)))
            }
            _ => ClientMeter(None),
        }
    }
}

impl fmt::Debug for ChannelMeters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ChannelMeters").field(&self.target).finish()
    }
}

/// The metrics of a call on the client; of none where nothing is counted.
#[derive(Clone, Copy, Default)]
pub(crate) struct ClientMeter(Option<&'static ClientMethod>);

impl ClientMeter {
    /// Returns true if the call is counted.
    pub(crate) fn is_on(self) -> bool {
        self.0.is_some()
    }

    /// Counts an attempt that begins.
    pub(crate) fn attempt_started(self) {
        if let Some(method) = self.0 {
            method.started.increment(1);
        }
    }

    /// Counts the end of an attempt, of a call, or of both.
    #[inline]
    pub(crate) fn ended(self, code: Code, attempt: Option<AttemptEnd>, call: Option<Duration>) {
        let Some(method) = self.0 else { return };
        let ends = method.ends(code);
        if let Some(AttemptEnd { took, sent, received }) = attempt {
            ends.attempt_duration.record(seconds(took));
            ends.sent.record(bytes(sent));
            ends.received.record(bytes(received));
        }
        if let Some(took) = call {
            ends.call_duration.record(seconds(took));
        }
    }
}

impl fmt::Debug for ClientMeter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ClientMeter").field(&self.0.map(|method| method.label)).finish()
    }
}
