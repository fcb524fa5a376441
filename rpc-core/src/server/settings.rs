//! The settings of a server, each of which is declared here and nowhere else, and those of them
//! that every call reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use super::call_stats::CallStats;
use crate::InvalidSetting;
use crate::call::log::CallLog;
use crate::policy::lifetime::LifetimeRules;

/// Hands the declaration of a server's settings to a macro: see
/// [`define_settings`](crate::define_settings).
#[macro_export]
macro_rules! server_settings {
    ($($macro:ident)::+ $([$($argument:tt)*])?) => { $($macro)::+! { $([$($argument)*])?
    /// Settings of a server. All of them but those that a listener reads when it starts may
    /// change while the server runs.
    ServerSettings, ServerOverlay, "server", [builder], derive(PartialEq) {
        /// Maximum time of calls in flight when the server shuts down.
        ///
        /// Zero ends them at once.
        drain_timeout: ::std::time::Duration as Plain
            = ::std::time::Duration::from_secs(30), Live,
            $crate::settings::PERIOD, $crate::settings::COMPUTED;
        /// Maximum time of unary calls on the server; streams have none by this.
        ///
        /// It counts from the moment that the request has arrived whole. By default the
        /// client's timeout alone counts. The server ends a longer call with
        /// `DEADLINE_EXCEEDED`, and drops the handler's future where it waits. Calls with a
        /// stream in either direction go on: `tower`'s timeout, as a layer, ends those too.
        ///
        /// The earlier of this and the client's deadline counts. The handler finds it in
        /// its request, calls that the handler makes inherit it, and it holds for layers.
        unary_timeout: Option<::std::time::Duration> as OrOff = None, Live,
            $crate::settings::TIMEOUT, $crate::settings::NO_TIME;
        /// Time without a call after which a connection ends.
        ///
        /// Never by default. The client makes a new connection for its next call. Over RDMA
        /// a connection holds receive slots, of which a device has some for 64 connections
        /// by default.
        idle_timeout: Option<::std::time::Duration> as OrOff = None, Live,
            $crate::settings::TIMEOUT, $crate::settings::NO_TIME;
        /// Maximum age of a connection, so that clients spread over new servers.
        ///
        /// None by default; otherwise give or take a tenth by chance. The client makes its
        /// next call on a new connection, and
        /// [`max_connection_age_grace`](Self::max_connection_age_grace) bounds calls in
        /// flight. With zero each connection is sent away as soon as it is made.
        max_connection_age: Option<::std::time::Duration> as OrOff = None, Live,
            $crate::settings::PERIOD, $crate::settings::COMPUTED;
        /// Maximum time of calls in flight after that.
        ///
        /// By default they may end on their own, as with gRPC, since a long stream is no
        /// fault. Zero ends them at once.
        max_connection_age_grace: Option<::std::time::Duration> as OrOff = None, Live,
            $crate::settings::PERIOD, $crate::settings::COMPUTED;
        /// Maximum number of calls that run at a time, over all connections.
        ///
        /// The server rejects one more at once with `RESOURCE_EXHAUSTED`, and does not
        /// execute it. The default is 65,536: the 64 connections that one RDMA device
        /// serves by default, with 1,024 calls each. A call counts until its handler has
        /// ended, and its response stream, too. Its answer may wait longer.
        max_calls: u32 as Plain = 65_536, Live, 1.., $crate::settings::SERVED;
        /// Maximum number of calls from one address; "off" is a share of those that are free.
        ///
        /// Peers with IPv6 addresses in the same /64 are one address. Peers on Unix sockets
        /// and inside the process have no address: only the limits of all calls and of
        /// their connections hold.
        ///
        /// By default an address may have as many calls as are free, and at least as many
        /// as `Limits::max_calls` allows one connection. So one address alone has at most
        /// half of all calls, and `n` of them have at most `1 / (n + 1)` each. A server
        /// behind a proxy sees one address unless it has `proxy_protocol`; it sets
        /// [`max_calls`](Self::max_calls) here.
        max_calls_per_peer: Option<u32> as CountOrOff = None, Live,
            1.., $crate::settings::SERVED;
        /// Maximum number of connections.
        ///
        /// Those in their handshake count. The default is 10,000, below a service manager's
        /// usual limit of open descriptors (16,384). More clients wait in the operating
        /// system's backlog.
        max_connections: u32 as Plain = 10_000, Live, 1.., $crate::settings::SERVED;
        /// Maximum number of connections from one address; "off" is a share of those that
        /// are free.
        ///
        /// An address is what it is for [`max_calls_per_peer`](Self::max_calls_per_peer).
        /// The server closes one more as soon as it has accepted it.
        ///
        /// By default an address may have as many connections as are free, and at least 64.
        /// A server behind a proxy sees one address unless it has `proxy_protocol`; it sets
        /// [`max_connections`](Self::max_connections) here.
        max_connections_per_peer: Option<u32> as CountOrOff = None, Live,
            1.., $crate::settings::SERVED;
        /// Memory that clients can make the server keep; a quarter of what the process may use
        /// unless it is set.
        ///
        /// What counts are requests of 4 KiB and more, the windows of their streams,
        /// answers that wait to be sent, and handshakes.
        ///
        /// An eighth is kept for peers that have little. Of the rest, an address may have
        /// as much as is free: one alone has at most half, and `n` of them at most
        /// `1 / (n + 1)` each. The server rejects more with `RESOURCE_EXHAUSTED` before it
        /// receives or executes it. That status also replaces an answer that does not fit
        /// where it would have to wait. When memory is short, the server closes connections
        /// that take next to nothing of their answers.
        ///
        /// The default is a quarter of the machine's memory, or of the least limit of the
        /// process's control groups. It is read when the first server is built.
        max_memory: Option<u64> as OptionalSize = None => "\"1 GiB\"", Live,
            $crate::settings::MIN_MEMORY..,
            $crate::settings::Whole($crate::settings::LEAST_MEMORY);
        /// Maximum time to open a connection, RDMA included, and to wait for the next part of
        /// the message of a gRPC call.
        handshake_timeout: ::std::time::Duration as Plain
            = ::std::time::Duration::from_secs(10), Live,
            $crate::settings::TIMEOUT, $crate::settings::NO_TIME;
        /// Maximum time in which a client takes nothing of what waits for it before the
        /// connection ends.
        ///
        /// It also bounds a large frame that the client has begun. `None` waits for the
        /// client. Any byte that the client takes or sends of them is progress. Pongs are
        /// not: a client that only answers pings could pin answers in the server's memory
        /// indefinitely. Over RDMA `rdma.release_timeout` bounds the same.
        progress_timeout: Option<::std::time::Duration> as OrOff
            = Some($crate::policy::progress::PROGRESS_TIMEOUT), Live,
            $crate::settings::TIMEOUT, $crate::settings::NO_TIME;
        /// Fails the server's start at rdma:// where RDMA is impossible. Otherwise the
        /// server says so in the log, and serves clients that stay on TCP.
        ///
        /// Once there is a device, clients can have RDMA.
        rdma_required: bool as Switch = true, Start, .., "";
        /// Writes a line into the log for each call that fails.
        ///
        /// The line has the target `farcall::call`. It names the method, the client's
        /// address, the status, and the time that the call took.
        ///
        /// It is WARN where something does not work (`UNKNOWN`, `DEADLINE_EXCEEDED`,
        /// `RESOURCE_EXHAUSTED`, `UNIMPLEMENTED`, `INTERNAL`, `UNAVAILABLE`, `DATA_LOSS`):
        /// of each of these statuses ten lines at once, then one every ten seconds with a
        /// count of those that were left out. Any other status is an answer of the
        /// application, and its line is DEBUG.
        log_failed_calls: bool as Switch = true, Live, .., "";
        /// Writes a line into the log for each call when it ends.
        ///
        /// The line is INFO and has the target `farcall::access`. It names the method, the
        /// client's address, the status, the time that the call took, the client's timeout,
        /// and the number of messages. Clients decide how many such lines there are: they
        /// have no limit.
        access_log: bool as Switch = false, Live, .., "";
        /// Requires encryption of connections from other hosts: they need `tls` then, and
        /// RDMA, which is not encrypted, is refused.
        ///
        /// The server does not start without `tls` then. Clients at `auto://` stay on TCP,
        /// and at `rdma://` the server does not start unless
        /// [`rdma_required`](Self::rdma_required) is off. Unix sockets and connections
        /// inside the process do not leave the host, and are left alone.
        require_encryption: bool as Switch = false, Start, .., "";
        /// Number of threads that serve connections, each with a runtime of its own; 0 for the
        /// runtime that serves, and "all" in a file for the processors of the host.
        ///
        /// By default connections are tasks of the runtime that serves, and a reply may be sent
        /// from another processor than the one that read its call. With cores a connection stays
        /// on one thread: the one that has the fewest when it is accepted. That saves wake-ups
        /// where there are many connections with small calls. One connection has one core at most.
        ///
        /// Handlers run on the core of their connection, and so does what they spawn. A handler
        /// that blocks holds up every connection of its core: add its service with
        /// `ServerBuilder::blocking`, or use `tokio::task::spawn_blocking`.
        /// `tokio::task::block_in_place` panics there.
        ///
        /// All listeners of a server share its cores. A core that has RDMA connections has an RDMA
        /// lane, beside those of `rdma.lanes`. Byte streams that are no sockets are woken by their
        /// own runtime.
        cores: u32 as CountOrAll = 0, Start, ..=1024, "each is a thread";
    } groups {
        /// Limits on each client.
        ///
        /// The client's own limits hold for responses.
        limits: $crate::Limits, $crate::overlays::LimitsOverlay, Live;
        /// Compression of messages over TCP; none by default.
        ///
        /// The server compresses responses that the client accepts compressed, and accepts
        /// compressed requests if this setting says so. A service's own `compress_from`
        /// comes first. Nothing is compressed over RDMA.
        compression: $crate::Compression, $crate::overlays::CompressionOverlay, Live;
        /// Shortest response that is compressed, by method or by service; none by default.
        ///
        /// It takes precedence over [`compression`](Self::compression), and a service's own
        /// `compress_from` over both. A name that the server does not have is an error when
        /// it starts to listen. A file may have other names beside those of the program's code.
        methods, method_compression: $crate::MethodCompression,
            $crate::overlays::MethodCompressionOverlay, Live,
            "methods.\"/shop.Catalog/Get\"";
        /// Pings that find clients that are gone; on by default.
        keepalive: $crate::Keepalive, $crate::overlays::KeepaliveOverlay, Live;
    }
    } };
}

server_settings! { crate::define_settings }

impl ServerSettings {
    /// Checks that each value is in its range.
    ///
    /// # Errors
    ///
    /// Returns the first that is not.
    pub(crate) fn check(&self) -> Result<(), InvalidSetting> {
        self.check_each()
    }

    pub(super) fn lifetime(&self) -> LifetimeRules {
        LifetimeRules {
            idle_timeout: self.idle_timeout,
            age_max: self.max_connection_age,
            age_grace: self.max_connection_age_grace,
        }
    }
}

const FAILURES: u8 = 1;
const ACCESS: u8 = 2;

/// The rules that every call looks at. A look is one relaxed load: each rule stands alone, and
/// guards no other memory.
#[derive(Debug)]
pub(super) struct CallRules {
    /// In nanoseconds; 0 where unary calls have no timeout.
    unary_timeout: AtomicU64,
    log: AtomicU8,
    /// The counts for operators, if every call is counted.
    pub(super) stats: Option<Arc<CallStats>>,
}

impl Default for CallRules {
    fn default() -> Self {
        let (unary_timeout, log) = (AtomicU64::new(0), AtomicU8::new(0));
        let rules = Self { unary_timeout, log, stats: None };
        rules.set_log(CallLog::default());
        rules
    }
}

impl CallRules {
    /// Returns rules by which every call is counted.
    pub(super) fn counting(stats: CallStats) -> Self {
        Self { stats: Some(Arc::new(stats)), ..Self::default() }
    }

    /// Returns true if operators watch calls.
    pub(super) fn is_watched(&self) -> bool {
        self.stats.as_ref().is_some_and(|stats| stats.is_watched())
    }

    pub(super) fn unary_timeout(&self) -> Option<Duration> {
        let nanos = self.unary_timeout.load(Ordering::Relaxed);
        (nanos > 0).then(|| Duration::from_nanos(nanos))
    }

    /// Takes what calls look at of `settings`.
    pub(super) fn set(&self, settings: &ServerSettings) {
        self.set_unary_timeout(settings.unary_timeout);
        let (failures, access) = (settings.log_failed_calls, settings.access_log);
        self.set_log(CallLog { failures, access, is_counted: false });
    }

    fn set_unary_timeout(&self, timeout: Option<Duration>) {
        // The longest is 365 days, which are 2^55 ns.
        let nanos = timeout.map_or(0, |it| u64::try_from(it.as_nanos()).unwrap_or(u64::MAX));
        self.unary_timeout.store(nanos, Ordering::Relaxed);
    }

    pub(super) fn log(&self) -> CallLog {
        let bits = self.log.load(Ordering::Relaxed);
        let (failures, access) = (bits & FAILURES != 0, bits & ACCESS != 0);
        CallLog { failures, access, is_counted: self.stats.is_some() }
    }

    /// Returns true if calls that succeed have no line and no place among the counts for operators.
    #[inline]
    pub(super) fn only_counts_successes(&self) -> bool {
        self.stats.is_none() && self.log.load(Ordering::Relaxed) & ACCESS == 0
    }

    fn set_log(&self, CallLog { failures, access, .. }: CallLog) {
        let bits = if failures { FAILURES } else { 0 } | if access { ACCESS } else { 0 };
        self.log.store(bits, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_settings_are_in_range() {
        assert_eq!(ServerSettings::default().check(), Ok(()));
    }

    #[test]
    fn what_every_call_looks_at_comes_back_as_it_was_set() {
        let rules = CallRules::default();
        assert_eq!((rules.unary_timeout(), rules.log()), (None, CallLog::default()));
        let year = Duration::from_secs(365 * 24 * 3600);
        for timeout in [Some(Duration::from_millis(1)), Some(year), None] {
            rules.set_unary_timeout(timeout);
            assert_eq!(rules.unary_timeout(), timeout);
        }
        for (failures, access) in [(false, false), (false, true), (true, false), (true, true)] {
            let log = CallLog { failures, access, is_counted: false };
            rules.set_log(log);
            assert_eq!(rules.log(), log);
        }
    }
}
