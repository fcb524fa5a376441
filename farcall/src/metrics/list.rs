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
        "Open connections of a server, by path and by the reason for not using RDMA.",
        "What share of clients uses RDMA, and why do the others not?";
    SERVER_CALLS = gauge "farcall.server.calls.running", Count, &["server"],
        "Calls whose handlers are running.",
        "Is the server near `max_calls`?";
    SERVER_MEMORY = gauge "farcall.server.memory.held", Bytes, &["server"],
        "Bytes that the server holds for clients.",
        "Is the server short of memory?";
    SERVER_MEMORY_LIMIT = gauge "farcall.server.memory.limit", Bytes, &["server"],
        "Limit on the bytes that the server holds for clients: `max_memory`.",
        "How much memory is left for clients?";
    CERTIFICATE_DAYS = gauge "farcall.tls.certificate.days_left", Days, &["certificate"],
        "Days until a TLS certificate expires; negative after that.",
        "Which certificate needs renewal?";
    CLIENT_CONNECTIONS = gauge "farcall.client.connections", Count,
        &[TARGET, "state", "transport", "fallback"],
        "Servers of a channel, by the state of their path.",
        "Which servers does the channel reach over RDMA, over TCP, or not at all?";
    CLIENT_BREAKERS = gauge "farcall.client.breakers.open", Count, &[TARGET],
        "Servers of a channel whose RDMA path is backing off.",
        "Do breakers keep calls off RDMA?";
    CLIENT_EJECTED = gauge "farcall.client.ejected", Count, &[TARGET],
        "Servers of a channel that outlier detection has ejected.",
        "Which target has servers that fail?";
    CLIENT_CALLS = gauge "farcall.client.calls.in_flight", Count, &[TARGET],
        "Calls in flight of a channel.",
        "Do calls pile up?";
    CLIENT_FAILOVERS = counter "farcall.client.failovers", Count, &[TARGET],
        "Failovers from RDMA to TCP.",
        "Does RDMA flap?";
    CLIENT_FAILBACKS = counter "farcall.client.failbacks", Count, &[TARGET],
        "Failbacks from TCP to RDMA.",
        "Does RDMA come back after a failure?";
    SENT_BYTES = counter "farcall.connections.sent", Bytes, &["side", "transport"],
        "Bytes sent to the network.",
        "How much does each path send?";
    RECEIVED_BYTES = counter "farcall.connections.received", Bytes, &["side", "transport"],
        "Bytes received from the network.",
        "How much does each path receive?";
    COPIED_BYTES = counter "farcall.connections.copied", Bytes, &["side", "transport"],
        "Bytes of frames copied between buffers, without encoding.",
        "Are payloads copied needlessly?";
    WRITTEN_BYTES = counter "farcall.connections.written", Bytes, &["side", "transport"],
        "Bytes of frames written into the transport's send memory.",
        "Are payloads sent without a copy?";
    KERNEL_CALLS = counter "farcall.connections.kernel_calls", Count, &["side", "transport"],
        "Read and write system calls.",
        "How many system calls does a call cost?";
    RELOADS = counter "farcall.settings.reloads", Count, &["result"],
        "Reloads of a settings file: `ok` or `error`.",
        "Did the last change of the settings apply?";
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
