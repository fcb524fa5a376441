//! The context of a call's span, where a subscriber of OpenTelemetry gives spans their ids.

use tracing::Span;

use super::trace_context::TraceContext;

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

pub(super) use bridge::{context, set_parent};
