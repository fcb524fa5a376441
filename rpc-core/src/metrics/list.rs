//! The metrics that the runtime counts by itself.

use super::metric::{Metric, MetricUnit};

const METHOD: &str = "grpc.method";
const TARGET: &str = "grpc.target";
const STATUS: &str = "grpc.status";

pub(super) const ATTEMPT_STARTED: Metric = Metric::counter(
    "grpc.client.attempt.started",
    MetricUnit::Count,
    &[METHOD, TARGET],
    "Attempts started.",
    "How many requests does this client send?",
);

pub(super) const ATTEMPT_DURATION: Metric = Metric::counter(
    "grpc.client.attempt.duration",
    MetricUnit::Seconds,
    &[METHOD, TARGET, STATUS],
    "Duration of an attempt, including the wait for a connection.",
    "How long does a server take, and how often does it fail?",
)
.as_histogram();

pub(super) const ATTEMPT_SENT: Metric = Metric::counter(
    "grpc.client.attempt.sent_total_compressed_message_size",
    MetricUnit::Bytes,
    &[METHOD, TARGET, STATUS],
    "Bytes of an attempt's request messages, as sent.",
    "How large are requests?",
)
.as_histogram();

pub(super) const ATTEMPT_RECEIVED: Metric = Metric::counter(
    "grpc.client.attempt.rcvd_total_compressed_message_size",
    MetricUnit::Bytes,
    &[METHOD, TARGET, STATUS],
    "Bytes of an attempt's response messages, as received.",
    "How large are responses?",
)
.as_histogram();

pub(super) const CALL_DURATION: Metric = Metric::counter(
    "grpc.client.call.duration",
    MetricUnit::Seconds,
    &[METHOD, TARGET, STATUS],
    "Duration of a call, including all attempts.",
    "How long do callers wait, and how many calls fail in the end?",
)
.as_histogram();

pub(super) const SERVER_STARTED: Metric = Metric::counter(
    "grpc.server.call.started",
    MetricUnit::Count,
    &[METHOD],
    "Calls received, including refused ones.",
    "How many calls arrive?",
);

pub(super) const SERVER_DURATION: Metric = Metric::counter(
    "grpc.server.call.duration",
    MetricUnit::Seconds,
    &[METHOD, STATUS],
    "Time from the arrival of a request to its response.",
    "How long do handlers take, and how many calls fail?",
)
.as_histogram();

pub(super) const SERVER_SENT: Metric = Metric::counter(
    "grpc.server.call.sent_total_compressed_message_size",
    MetricUnit::Bytes,
    &[METHOD, STATUS],
    "Bytes of a call's response messages, as sent.",
    "How large are responses?",
)
.as_histogram();

pub(super) const SERVER_RECEIVED: Metric = Metric::counter(
    "grpc.server.call.rcvd_total_compressed_message_size",
    MetricUnit::Bytes,
    &[METHOD, STATUS],
    "Bytes of a call's request messages, as received.",
    "How large are requests?",
)
.as_histogram();

pub(super) const RETRIES: Metric = Metric::counter(
    "farcall.client.retries",
    MetricUnit::Count,
    &[METHOD, "kind"],
    "Attempts after the first, by the policy that allowed them.",
    "Do retries hide failures?",
);

pub(super) const RETRIES_DENIED: Metric = Metric::counter(
    "farcall.client.retries.denied",
    MetricUnit::Count,
    &[METHOD, "kind"],
    "Attempts that a budget denied.",
    "Is the retry budget spent?",
);

pub(super) const CONNECTIONS_OPENED: Metric = Metric::counter(
    "farcall.connections.opened",
    MetricUnit::Count,
    &["side", "transport", "fallback"],
    "Connections established, by path.",
    "How often do clients connect, and do they use RDMA?",
);

/// The metrics that the runtime counts by itself.
pub const METRICS: &[Metric] = &[
    ATTEMPT_STARTED,
    ATTEMPT_DURATION,
    ATTEMPT_SENT,
    ATTEMPT_RECEIVED,
    CALL_DURATION,
    SERVER_STARTED,
    SERVER_DURATION,
    SERVER_SENT,
    SERVER_RECEIVED,
    RETRIES,
    RETRIES_DENIED,
    CONNECTIONS_OPENED,
];
