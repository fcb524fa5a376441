//! The declarations of the metrics that are read from what farcall counts anyway.

use rpc_core::metrics::{METRICS, Metric, MetricUnit};

#[cfg(all(target_os = "linux", any(feature = "rdma", feature = "sim")))]
pub(super) mod rdma;

const TARGET: &str = "grpc.target";

/// Declares gauges and counters, and the list of them.
macro_rules! declare {
    (
        $list:ident {
            $($name:ident = $kind:ident $text:literal, $unit:ident, $labels:expr,
                $description:literal, $question:literal;)+
        }
    ) => {
        $(pub(in crate::metrics) const $name: Metric = declare!(@$kind Metric::counter(
            $text, MetricUnit::$unit, $labels, $description, $question,
        ));)+

        /// All of them.
        pub(super) const $list: &[Metric] = &[$($name),+];
    };
    (@counter $metric:expr) => { $metric };
    (@gauge $metric:expr) => { $metric.as_gauge() };
}
#[cfg(all(target_os = "linux", any(feature = "rdma", feature = "sim")))]
use declare;

declare! { OBSERVED {
    SERVER_CONNECTIONS = gauge "farcall.server.connections", Count,
        &["server", "transport", "fallback"],
        "Open connections of a server, by the path that they take and why not a better one.",
        "Which share of the clients is on RDMA, and why are the others not?";
    SERVER_CALLS = gauge "farcall.server.calls.running", Count, &["server"],
        "Calls of which the handlers have not ended.",
        "Is the server near `max_calls`?";
    SERVER_MEMORY = gauge "farcall.server.memory.held", Bytes, &["server"],
        "Bytes that clients make the server keep.",
        "Is the server short of memory?";
    SERVER_MEMORY_LIMIT = gauge "farcall.server.memory.limit", Bytes, &["server"],
        "Bytes that clients may make the server keep: `max_memory`.",
        "How much is left for clients?";
    CERTIFICATE_DAYS = gauge "farcall.tls.certificate.days_left", Days, &["certificate"],
        "Days until a certificate of TLS expires; negative afterwards.",
        "Which certificate has to be renewed?";
    CLIENT_CONNECTIONS = gauge "farcall.client.connections", Count,
        &[TARGET, "state", "transport", "fallback"],
        "Servers of a channel, by the state of the path to them.",
        "Which servers are reached over RDMA, over TCP, or not at all?";
    CLIENT_BREAKERS = gauge "farcall.client.breakers.open", Count, &[TARGET],
        "Servers of a channel whose path over RDMA is tried again later.",
        "Do breakers keep calls off RDMA?";
    CLIENT_EJECTED = gauge "farcall.client.ejected", Count, &[TARGET],
        "Servers of a channel that are left out because they failed too often.",
        "Which target has servers that fail?";
    CLIENT_CALLS = gauge "farcall.client.calls.in_flight", Count, &[TARGET],
        "Calls in flight of a channel.",
        "Do calls pile up?";
    CLIENT_FAILOVERS = counter "farcall.client.failovers", Count, &[TARGET],
        "Times that RDMA failed while calls took it.",
        "Does RDMA flap?";
    CLIENT_FAILBACKS = counter "farcall.client.failbacks", Count, &[TARGET],
        "Times that calls took RDMA again.",
        "Does RDMA come back after it failed?";
    SENT_BYTES = counter "farcall.connections.sent", Bytes, &["side", "transport"],
        "Bytes that the network has taken.",
        "How much is sent, by path?";
    RECEIVED_BYTES = counter "farcall.connections.received", Bytes, &["side", "transport"],
        "Bytes that have come in.",
        "How much is received, by path?";
    COPIED_BYTES = counter "farcall.connections.copied", Bytes, &["side", "transport"],
        "Bytes of frames that were copied from one buffer to another, encoding not counted.",
        "Are payloads copied that need not be?";
    WRITTEN_BYTES = counter "farcall.connections.written", Bytes, &["side", "transport"],
        "Bytes of frames that were written into the transport's memory to be sent.",
        "Are payloads sent from where they lie?";
    KERNEL_CALLS = counter "farcall.connections.kernel_calls", Count, &["side", "transport"],
        "Reads and writes that the kernel was asked for.",
        "What does a call cost in system calls?";
    RELOADS = counter "farcall.settings.reloads", Count, &["result"],
        "Reloads of a settings file, `ok` or `error`.",
        "Was the last change of the settings taken?";
} }

/// Returns every metric.
pub(super) fn all() -> Vec<Metric> {
    let all = METRICS.iter().chain(OBSERVED).copied();
    #[cfg(all(target_os = "linux", any(feature = "rdma", feature = "sim")))]
    let all = all.chain(rdma::all());
    all.collect()
}

/// Counts a reload of settings.
#[cfg(feature = "settings")]
pub(crate) fn reloaded(is_applied: bool) {
    RELOADS.counter_with(&[if is_applied { "ok" } else { "error" }]).increment(1);
}
