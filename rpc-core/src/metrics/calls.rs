//! The handles of methods, and the metrics of calls: a server's, and a client's with its attempts.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::{fmt, ptr};

use metrics::{Counter, Histogram};
use parking_lot::Mutex;
use tonic::Code;

use super::list::{SERVER_DURATION, SERVER_RECEIVED, SERVER_SENT, SERVER_STARTED};
use super::metric::is_enabled;
use crate::call::log::NameOf;
use crate::metrics::list::{
    ATTEMPT_DURATION, ATTEMPT_RECEIVED, ATTEMPT_SENT, ATTEMPT_STARTED, CALL_DURATION,
};
use crate::{Method, MethodDescriptor};

/// The label of methods that no descriptor describes.
const OTHER: &str = "other";

/// Number of status codes.
const CODE_COUNT: usize = 17;

/// Places of a table before its next part.
const SLOT_COUNT: usize = 32;

/// The label of a method: its path without the first slash.
pub(super) fn label(method: Option<&'static MethodDescriptor>) -> &'static str {
    method.map_or(OTHER, |method| method.path.trim_start_matches('/'))
}

/// A time as exporters take it. Signed numbers become floats in one instruction.
#[expect(clippy::cast_precision_loss, reason = "2^53 ns are 104 days, and longer ones lose ns")]
#[inline]
fn seconds(nanos: u64) -> f64 {
    nanos.cast_signed() as f64 * 1e-9
}

/// A size as exporters take it.
#[expect(clippy::cast_precision_loss, reason = "sizes are far below 2^53")]
#[inline]
fn bytes(len: u64) -> f64 {
    len.cast_signed() as f64
}

/// Values by the address of a method's descriptor. Nothing is ever removed, so that a look needs no
/// lock. Two descriptors in the same place are in two parts.
struct ByMethod<M> {
    slots: [OnceLock<(&'static MethodDescriptor, M)>; SLOT_COUNT],
    more: OnceLock<Box<Self>>,
    other: OnceLock<M>,
}

impl<M> ByMethod<M> {
    pub(super) const fn new() -> Self {
        Self {
            slots: [const { OnceLock::new() }; SLOT_COUNT],
            more: OnceLock::new(),
            other: OnceLock::new(),
        }
    }

    /// Returns the value of a method, which `make` makes at the first time.
    #[inline(always)]
    pub(super) fn get(
        &self,
        method: Option<&'static MethodDescriptor>,
        make: impl Fn(&'static str) -> M,
    ) -> &M {
        let Some(method) = method else { return self.other.get_or_init(|| make(OTHER)) };
        // The descriptors of a service lie side by side, a multiple of a pointer apart. The higher
        // bits part those that have the lower ones in common, without a division by the size.
        let number = ptr::from_ref(method).addr() / align_of::<MethodDescriptor>();
        let place = (number ^ (number / SLOT_COUNT)) % SLOT_COUNT;
        let mut table = self;
        loop {
            let slot = &table.slots[place];
            let (found, value) = slot.get_or_init(|| (method, make(label(Some(method)))));
            if ptr::eq(*found, method) {
                return value;
            }
            table = table.more.get_or_init(|| Box::new(Self::new()));
        }
    }
}

/// Values by status code, each made when the first call ends with its code.
struct ByCode<H>([OnceLock<Box<H>>; CODE_COUNT]);

impl<H> ByCode<H> {
    pub(super) const fn new() -> Self {
        Self([const { OnceLock::new() }; CODE_COUNT])
    }

    /// Returns the value of a code, which `make` makes of the code's name at the first time.
    #[inline(always)]
    pub(super) fn get(&self, code: Code, make: impl Fn(&str) -> H) -> &H {
        let slot = &self.0[(code as usize).min(CODE_COUNT - 1)];
        slot.get_or_init(|| Box::new(make(&NameOf(code).to_string())))
    }
}

/// The handles of one method, for all servers of the process.
struct ServerMethod {
    label: &'static str,
    started: Counter,
    ends: ByCode<ServerEnds>,
}

/// The handles of calls that end with one code.
struct ServerEnds {
    duration: Histogram,
    sent: Histogram,
    received: Histogram,
}

static SERVER: ByMethod<ServerMethod> = ByMethod::new();

/// The metrics of a call on the server; of none where nothing is counted.
#[derive(Clone, Copy, Default)]
pub(crate) struct ServerMeter(Option<&'static ServerMethod>);

impl ServerMeter {
    /// Returns the metrics of a call of `method`.
    #[inline]
    pub(crate) fn new(method: impl FnOnce() -> Option<&'static MethodDescriptor>) -> Self {
        if is_enabled() { Self::enabled(method()) } else { Self(None) }
    }

    #[inline(always)]
    fn enabled(method: Option<&'static MethodDescriptor>) -> Self {
        Self(Some(SERVER.get(method, |label| ServerMethod {
            label,
            started: SERVER_STARTED.counter_with(&[label]),
            ends: ByCode::new(),
        })))
    }

    /// Returns true if calls that arrive now are counted.
    #[inline]
    pub(crate) fn is_counting() -> bool {
        is_enabled()
    }

    /// Returns true if the call is counted.
    pub(crate) fn is_on(self) -> bool {
        self.0.is_some()
    }

    /// Counts a call that has arrived.
    pub(crate) fn started(self) {
        if let Some(method) = self.0 {
            method.started.increment(1);
        }
    }

    /// Counts a call that has ended after `nanos` nanoseconds.
    #[inline(always)]
    pub(crate) fn ended(self, code: Code, nanos: u64, sent: u64, received: u64) {
        let Some(method) = self.0 else { return };
        let ends = method.ends.get(code, |code| {
            let labels = [method.label, code];
            ServerEnds {
                duration: SERVER_DURATION.histogram_with(&labels),
                sent: SERVER_SENT.histogram_with(&labels),
                received: SERVER_RECEIVED.histogram_with(&labels),
            }
        });
        ends.duration.record(seconds(nanos));
        ends.sent.record(bytes(sent));
        ends.received.record(bytes(received));
    }
}

impl fmt::Debug for ServerMeter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ServerMeter").field(&self.0.map(|method| method.label)).finish()
    }
}

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
    /// Its duration in nanoseconds.
    pub(crate) nanos: u64,
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
        let mut targets = TARGETS.lock();
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
    #[inline(always)]
    pub(crate) fn ended(self, code: Code, attempt: Option<AttemptEnd>, call_nanos: Option<u64>) {
        let Some(method) = self.0 else { return };
        let ends = method.ends(code);
        if let Some(AttemptEnd { nanos, sent, received }) = attempt {
            ends.attempt_duration.record(seconds(nanos));
            ends.sent.record(bytes(sent));
            ends.received.record(bytes(received));
        }
        if let Some(nanos) = call_nanos {
            ends.call_duration.record(seconds(nanos));
        }
    }
}

impl fmt::Debug for ClientMeter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ClientMeter").field(&self.0.map(|method| method.label)).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::{CallKind, Idempotency};

    const METHOD: MethodDescriptor =
        MethodDescriptor::new("/t.T/M", CallKind::Unary, Idempotency::Unknown);

    static METHODS: [MethodDescriptor; 100] = [METHOD; 100];

    #[test]
    fn each_method_has_one_value_that_is_made_once() {
        let (table, made) = (ByMethod::new(), Cell::new(0));
        let make = |_: &str| {
            made.set(made.get() + 1);
            made.get()
        };
        let first: Vec<i32> = METHODS.iter().map(|it| *table.get(Some(it), make)).collect();
        let again: Vec<i32> = METHODS.iter().map(|it| *table.get(Some(it), make)).collect();
        assert_eq!((first, made.get()), (again, 100));
        assert_eq!([*table.get(None, make), *table.get(None, make)], [101, 101]);
    }

    #[test]
    fn label_is_the_path_without_its_slash() {
        assert_eq!((label(Some(&METHODS[0])), label(None)), ("t.T/M", "other"));
    }
}
