//! The W3C trace context of a call: its headers `traceparent` and `tracestate`.
//!
//! <https://www.w3.org/TR/trace-context-2/> defines both. A header that breaks its rules is
//! ignored, as the recommendation asks, so a peer can at most lose its own trace.

use std::fmt;

use tonic::metadata::{AsciiMetadataValue, MetadataMap};
use tracing::Span;

pub(super) use self::bridge::{context, set_parent};

/// The header with the ids of a call's trace and parent span.
const TRACEPARENT: &str = "traceparent";
/// The header with the data of tracing systems, passed on as it came.
const TRACESTATE: &str = "tracestate";
/// The flag of a trace whose spans are recorded.
const SAMPLED: u8 = 0x01;
/// The flags that version 00 defines: sampled, and an id that is random. Others are cleared.
const KNOWN_FLAGS: u8 = 0x03;
/// Length of a `traceparent` of version 00.
const PARENT_LEN: usize = 55;
/// Bytes of `tracestate` that every system passes on; more of it is cut.
const MAX_STATE_LEN: usize = 512;
/// Members of `tracestate` that a header may have.
const MAX_MEMBERS: usize = 32;
/// Longest member of a `tracestate` that is kept when the header is too long.
const LONG_MEMBER: usize = 128;
/// Longest key, and longest value, of a member.
const MAX_PART_LEN: usize = 256;

/// The trace that a call belongs to, and the span in it that made the call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TraceContext {
    trace_id: u128,
    span_id: u64,
    flags: u8,
    /// The valid members of `tracestate`, or empty.
    state: String,
}

impl TraceContext {
    /// A context with these ids. `None` if one of them is zero, which stands for no id.
    #[cfg(any(test, feature = "otel"))]
    pub(super) fn new(trace_id: u128, span_id: u64, flags: u8, state: &str) -> Option<Self> {
        if trace_id == 0 || span_id == 0 {
            return None;
        }
        let state = valid_state([state].into_iter());
        Some(Self { trace_id, span_id, flags: flags & KNOWN_FLAGS, state })
    }

    /// The context of a trace that begins here and that no system records.
    pub(super) fn unsampled() -> Self {
        let (trace_id, span_id) = (fastrand::u128(1..), fastrand::u64(1..));
        Self { trace_id, span_id, flags: 0, state: String::new() }
    }

    /// Reads the headers of a call. `None` if there is no `traceparent`, several, or a wrong one.
    pub(super) fn extract(metadata: &MetadataMap) -> Option<Self> {
        let mut parents = metadata.get_all(TRACEPARENT).iter();
        let parent = parents.next()?;
        if parents.next().is_some() {
            return None;
        }
        let (trace_id, span_id, flags) = parse_parent(parent.as_bytes())?;
        // The header may be split over several lines, which belong together in their order.
        let lines = metadata.get_all(TRACESTATE).iter();
        let state = valid_state(lines.map(|line| line.to_str().unwrap_or("=")));
        Some(Self { trace_id, span_id, flags: flags & KNOWN_FLAGS, state })
    }

    /// Sets the headers of a call, unless its caller has set them.
    pub(super) fn inject(&self, metadata: &mut MetadataMap) {
        if metadata.contains_key(TRACEPARENT) {
            return;
        }
        metadata.remove(TRACESTATE);
        if let Ok(parent) = AsciiMetadataValue::try_from(self.to_string()) {
            metadata.insert(TRACEPARENT, parent);
        }
        if !self.state.is_empty()
            && let Ok(state) = AsciiMetadataValue::try_from(self.state.as_str())
        {
            metadata.insert(TRACESTATE, state);
        }
    }

    /// Returns true if the spans of the trace are recorded.
    pub(super) fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// The id of the trace.
    pub(super) fn trace_id(&self) -> u128 {
        self.trace_id
    }
}

#[cfg(feature = "otel")]
impl TraceContext {
    /// The id of the span that made the call.
    pub(super) fn span_id(&self) -> u64 {
        self.span_id
    }

    /// The flags that version 00 defines.
    pub(super) fn flags(&self) -> u8 {
        self.flags
    }

    /// The members of `tracestate`.
    pub(super) fn state(&self) -> &str {
        &self.state
    }
}

/// Writes a `traceparent` of version 00.
impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { trace_id, span_id, flags, .. } = self;
        write!(f, "00-{trace_id:032x}-{span_id:016x}-{flags:02x}")
    }
}

/// Reads a `traceparent`: the ids of trace and span, and the flags.
fn parse_parent(header: &[u8]) -> Option<(u128, u64, u8)> {
    // Later versions may append fields, and nothing else.
    let (known, rest) = header.split_at_checked(PARENT_LEN)?;
    let fields: Vec<_> = known.split(|byte| *byte == b'-').collect();
    let [version, trace_id, span_id, flags] = fields[..] else { return None };
    let version = hex(version, 2)?;
    let is_well_ended = match version {
        0 => rest.is_empty(),
        0xff => false,
        _ => rest.first().is_none_or(|byte| *byte == b'-'),
    };
    let trace_id = hex(trace_id, 32)?;
    let span_id = u64::try_from(hex(span_id, 16)?).ok()?;
    let flags = u8::try_from(hex(flags, 2)?).ok()?;
    (is_well_ended && trace_id != 0 && span_id != 0).then_some((trace_id, span_id, flags))
}

/// Reads `len` lowercase hexadecimal digits.
fn hex(digits: &[u8], len: usize) -> Option<u128> {
    if digits.len() != len {
        return None;
    }
    digits.iter().try_fold(0_u128, |value, digit| {
        let digit = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(value << 4 | u128::from(digit))
    })
}

/// Joins the lines of a `tracestate`, at most [`MAX_STATE_LEN`] bytes of it. Returns an empty text
/// if a member breaks the rules.
fn valid_state<'a>(lines: impl Iterator<Item = &'a str>) -> String {
    let mut members = Vec::new();
    for member in lines.flat_map(|line| line.split(',')) {
        let member = member.trim_matches([' ', '\t']);
        if member.is_empty() {
            continue;
        }
        if members.len() == MAX_MEMBERS || !is_member(member) {
            return String::new();
        }
        members.push(member);
    }
    let len = |members: &[&str]| members.iter().map(|it| it.len() + 1).sum::<usize>();
    // The recommendation's order: long members go first, then those that were added first.
    if len(&members) > MAX_STATE_LEN + 1 {
        members.retain(|member| member.len() <= LONG_MEMBER);
    }
    while len(&members) > MAX_STATE_LEN + 1 {
        members.pop();
    }
    members.join(",")
}

/// Returns true for `key=value` as the recommendation allows it.
fn is_member(member: &str) -> bool {
    let Some((key, value)) = member.split_once('=') else { return false };
    let is_key =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-*/@".contains(&byte);
    let begins = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_value = |byte: u8| (0x20..=0x7e).contains(&byte) && byte != b',' && byte != b'=';
    key.as_bytes().first().is_some_and(begins)
        && key.len() <= MAX_PART_LEN
        && key.bytes().all(is_key)
        && key.bytes().filter(|byte| *byte == b'@').count() <= 1
        && !value.is_empty()
        && value.len() <= MAX_PART_LEN
        && value.bytes().all(is_value)
}

/// The context of a span, where a subscriber of OpenTelemetry gives spans their ids.
#[cfg(feature = "otel")]
mod bridge {
    use opentelemetry::trace::{
        SpanContext, SpanId, TraceContextExt as _, TraceFlags, TraceId, TraceState,
    };
    use tracing_opentelemetry::OpenTelemetrySpanExt as _;

    use super::{Span, TraceContext};

    /// Makes `parent`, which a peer has sent, the parent of a span that was not entered yet.
    pub(in crate::layer) fn set_parent(span: &Span, parent: &TraceContext) {
        // A state that this library does not take is left out: the ids are what matters.
        let state = parent.state().parse::<TraceState>().unwrap_or_default();
        let flags = TraceFlags::new(parent.flags());
        let (trace_id, span_id) =
            (TraceId::from(parent.trace_id()), SpanId::from(parent.span_id()));
        let remote = SpanContext::new(trace_id, span_id, flags, true, state);
        // Fails where no subscriber gives spans ids, or where it takes no interest in this one.
        let _ = span.set_parent(opentelemetry::Context::new().with_remote_span_context(remote));
    }

    /// The context of `span` for the calls that belong to it. `None` without such a subscriber.
    pub(in crate::layer) fn context(span: &Span) -> Option<TraceContext> {
        if span.is_disabled() {
            return None;
        }
        let context = span.context();
        let own = context.span().span_context().clone();
        let trace_id = u128::from_be_bytes(own.trace_id().to_bytes());
        let span_id = u64::from_be_bytes(own.span_id().to_bytes());
        TraceContext::new(trace_id, span_id, own.trace_flags().to_u8(), &own.trace_state().header())
    }
}

/// The same without such a subscriber.
#[cfg(not(feature = "otel"))]
mod bridge {
    use super::{Span, TraceContext};

    /// Does nothing: spans have no ids.
    pub(in crate::layer) fn set_parent(_: &Span, _: &TraceContext) {}

    /// None: spans have no ids.
    pub(in crate::layer) fn context(_: &Span) -> Option<TraceContext> {
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tonic::metadata::MetadataValue;

    use super::*;

    const EXAMPLE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn headers(parents: &[&str], states: &[&str]) -> MetadataMap {
        let mut metadata = MetadataMap::new();
        for parent in parents {
            metadata.append(TRACEPARENT, MetadataValue::try_from(*parent).unwrap());
        }
        for state in states {
            metadata.append(TRACESTATE, MetadataValue::try_from(*state).unwrap());
        }
        metadata
    }

    fn state(states: &[&str]) -> String {
        TraceContext::extract(&headers(&[EXAMPLE], states)).unwrap().state
    }

    #[test]
    fn the_standards_example_is_read_and_written() {
        let context = TraceContext::extract(&headers(&[EXAMPLE], &["rojo=00f0", "a=1"])).unwrap();
        assert_eq!(context.trace_id(), 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c);
        assert!(context.is_sampled());
        assert_eq!(context.to_string(), EXAMPLE);
        assert_eq!(context.state, "rojo=00f0,a=1");
        let mut written = MetadataMap::new();
        context.inject(&mut written);
        assert_eq!(TraceContext::extract(&written), Some(context));
    }

    #[test]
    fn headers_that_break_the_rules_are_ignored() {
        for wrong in [
            "",
            "00",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01.more",
            "00-0af7651916cd43dd8448eb211c80319cb-7ad6b7169203331-01",
            "00_0af7651916cd43dd8448eb211c80319c_b7ad6b7169203331_01",
        ] {
            assert_eq!(TraceContext::extract(&headers(&[wrong], &[])), None, "{wrong}");
        }
        assert_eq!(TraceContext::extract(&headers(&[EXAMPLE, EXAMPLE], &[])), None);
        let later = format!("cc{}-more", &EXAMPLE[2..]);
        let context = TraceContext::extract(&headers(&[&later], &[])).unwrap();
        assert_eq!(context.to_string(), EXAMPLE, "a later version is read as this one");
    }

    #[test]
    fn state_with_a_wrong_member_is_dropped_alone() {
        for wrong in ["a", "A=1", "=1", "a=", "a=b=c", "a@b@c=1", "-a=1", "a=1,b"] {
            assert_eq!(state(&[wrong]), "", "{wrong}");
        }
        assert_eq!(state(&["a=1 , ,", "t61@sys=x y"]), "a=1,t61@sys=x y");
        let many: Vec<_> = (0..33).map(|at| format!("k{at}=v")).collect();
        assert_eq!(state(&[&many.join(",")]), "");
    }

    #[test]
    fn long_state_loses_long_members_then_the_oldest() {
        let long = format!("long={}", "x".repeat(200));
        let short: Vec<_> = (0..9).map(|at| format!("k{at}={}", "x".repeat(60))).collect();
        let kept = state(&[&format!("{long},{}", short.join(","))]);
        assert_eq!(kept, short[..8].join(","));
        assert!(kept.len() <= MAX_STATE_LEN);
    }

    #[test]
    fn headers_of_the_caller_are_kept() {
        let mut metadata = headers(&["its own"], &["its=own"]);
        TraceContext::unsampled().inject(&mut metadata);
        assert_eq!(metadata.get(TRACEPARENT).unwrap(), "its own");
        assert_eq!(metadata.get(TRACESTATE).unwrap(), "its=own");
    }

    /// Headers that are nearly right, and any others.
    const PARENTS: &str =
        "(0[0-2]|ff)-[0-9a-f]{30,33}-[0-9a-f]{15,17}-[0-9a-f]{2}(-[a-z]{0,3})?|[ -~]{0,70}";

    proptest! {
        #[test]
        fn any_headers_give_a_valid_context_or_none(
            parent in PARENTS,
            states in prop::collection::vec("([a-z]{1,4}=[ -~]{0,40},?){0,20}|[ -~]{0,600}", 0..3),
        ) {
            let states: Vec<_> = states.iter().map(String::as_str).collect();
            let Some(context) = TraceContext::extract(&headers(&[&parent], &states)) else {
                return Ok(());
            };
            prop_assert!(context.state.len() <= MAX_STATE_LEN);
            let mut written = MetadataMap::new();
            context.inject(&mut written);
            prop_assert_eq!(TraceContext::extract(&written), Some(context));
        }

        #[test]
        fn contexts_are_read_as_they_were_written(trace in 1_u128.., span in 1_u64.., flags: u8) {
            let context = TraceContext::new(trace, span, flags, "a=1").unwrap();
            let mut written = MetadataMap::new();
            context.inject(&mut written);
            prop_assert_eq!(TraceContext::extract(&written), Some(context));
        }
    }
}
