//! The settings of a channel, each declared once.

use crate::settings::InvalidSetting;

/// Hands the settings of a channel to the macro that is named. The type, the table of a settings
/// file and the setters of a builder derive from this list.
#[doc(hidden)]
#[macro_export]
macro_rules! channel_settings {
    ($($macro:ident)::+ $([$($argument:tt)*])?) => {
        $($macro)::+! {
            $([$($argument)*])?
            /// The settings of a channel.
            ///
            /// Calls that set a value themselves leave the channel's alone.
            ChannelSettings, ChannelSettingsOverlay, "", [builder], derive(PartialEq) {
                /// Timeout of calls that set none themselves. A stream ends then, too.
                ///
                /// None by default. Calls that a handler makes end with the handler's own call at
                /// the latest: see `Deadline::detached`.
                timeout: Option<::std::time::Duration> as OrOff = None, Live,
                    $crate::settings::TIMEOUT, $crate::settings::NO_TIME;
                /// Timeout of unary calls in its place. Streams have none by this.
                ///
                /// None by default.
                unary_timeout: Option<::std::time::Duration> as OrOff = None, Live,
                    $crate::settings::TIMEOUT, $crate::settings::NO_TIME;
                /// Lets calls wait while the server cannot be reached; else they fail at once.
                ///
                /// They fail at once by default, as with gRPC.
                wait_for_ready: bool as Switch = false, Live, .., "";
                /// Maximum time to open a connection, RDMA included.
                ///
                /// 10 s by default: gRPC's servers give a connection 20 s for less, and a lossy
                /// link may stall a queue pair's first message for half a second a retry. The proof
                /// of an RDMA path has 3 s of it at most: where nothing comes over that path,
                /// `auto://` falls back to TCP after 3 s.
                handshake_timeout: ::std::time::Duration as Plain
                    = ::std::time::Duration::from_secs(10), Start,
                    $crate::settings::TIMEOUT, $crate::settings::NO_TIME;
                /// Maximum time in which the server takes nothing of what waits for it before the
                /// connection ends.
                ///
                /// The same bounds a server that sends nothing more of a large frame that it has
                /// begun. 60 s by default; never with `None`.
                progress_timeout: Option<::std::time::Duration> as OrOff
                    = Some($crate::policy::progress::PROGRESS_TIMEOUT), Start,
                    $crate::settings::TIMEOUT, $crate::settings::NO_TIME;
                /// Writes a line into the log for each call that fails.
                ///
                /// On by default. The line has the target `farcall::call`, and names the method,
                /// the server's address as it was written, the status and how long the call took.
                ///
                /// It is WARN where something does not work (`UNKNOWN`, `DEADLINE_EXCEEDED`,
                /// `RESOURCE_EXHAUSTED`, `UNIMPLEMENTED`, `INTERNAL`, `UNAVAILABLE`, `DATA_LOSS`):
                /// of each of these statuses ten lines at once, then one every ten seconds with a
                /// count of those that were left out. Any other status is an answer of the
                /// application, and its line is DEBUG. A call that the program gives up has no
                /// line, and neither has one that a layer of its own answers.
                log_failed_calls: bool as Switch = true, Start, .., "";
                /// Requires encryption of connections that leave the host: they need `tls` then,
                /// and RDMA, which is not encrypted, is not used.
                ///
                /// Off by default. At `auto://` calls stay on TCP then, and at `rdma://` the
                /// channel does not connect. Unix sockets and connections inside the process are
                /// left alone.
                require_encryption: bool as Switch = false, Start, .., "";
                /// Makes idempotent calls once more after their connection ended under them.
                ///
                /// On by default, for methods whose `.proto` sets an `idempotency_level`. A channel
                /// makes up to 1,024 calls again at once, as many as one connection has in flight
                /// by default, and 100 a second after that: a call that kills its server is not
                /// doubled without end.
                replay_idempotent: bool as Switch = true, Start, .., "";
                /// Keeps a connection to each server for each tokio runtime that makes calls.
                ///
                /// Off by default. It is for programs that run a runtime of one thread on each
                /// core, as `farcall::per_core` does: a call then never leaves its thread. On a
                /// single runtime nothing changes.
                ///
                /// Each runtime connects at its first call, and its connection closes with it. A
                /// thread without a runtime uses the first connection, and so do runtimes after
                /// the 1,024th. The connections share the channel's budget of replays and its log;
                /// each has its own backoff. What a channel tells of its connection is what the
                /// runtime that asks has.
                per_runtime: bool as Switch = false, CodeOnly, .., "";
            } groups {
                /// Limits on what this side accepts from the server.
                limits: $crate::Limits, $crate::overlays::LimitsOverlay, Start;
                /// Compressed messages; none by default.
                ///
                /// Requests are compressed where the server accepts it, and its responses where
                /// this side says so and the server compresses. A stub's `compress_from` or a
                /// method's comes before what is said here of requests. It holds over TCP, and
                /// never over RDMA.
                compression: $crate::Compression, $crate::overlays::CompressionOverlay, Start;
                /// The detection of a server that is gone; on by default.
                ///
                /// At `grpc://` and `grpcs://` the default is an interval of 5 minutes, as gRPC's
                /// servers ask for, and there are no pings without calls. Each end of a connection
                /// for too many pings doubles the interval of its channel.
                keepalive: $crate::Keepalive, $crate::overlays::KeepaliveOverlay, Start;
                /// Delays before the channel connects again to a server that cannot be reached, or
                /// whose connections are of no use; gRPC's by default.
                connect_backoff: $crate::Backoff = $crate::Backoff::DEFAULTS,
                    $crate::overlays::BackoffOverlay, Start;
                /// Delays before an RDMA path that has failed is tried again.
                path_backoff: $crate::Backoff = $crate::Backoff::PATH,
                    $crate::overlays::BackoffOverlay, Start;
                /// The choice of the endpoint of each call, where the channel has many. A channel
                /// to one server has no use for it.
                balance: $crate::balance::BalanceConfig, $crate::overlays::BalanceOverlay, Start;
            } gone {
                replays: "`replay_idempotent = false` switches replays off";
            }
        }
    };
}

channel_settings! { crate::define_settings }

impl ChannelSettings {
    /// Checks the range of each value, and those that go together.
    ///
    /// # Errors
    ///
    /// Returns the first value that cannot be.
    pub(crate) fn check(&self) -> Result<(), InvalidSetting> {
        self.check_each()
    }
}
