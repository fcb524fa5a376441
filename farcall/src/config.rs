//! How to connect and to serve, apart from the address.

use std::time::Duration;

use rpc_core::connect::{ClientConfig, UpgradePolicy};
use rpc_core::server::ServerOverlay;
use rpc_core::settings::{check_timeout, expect_valid};
use rpc_core::{Backoff, Compression, ConnectBackoff, Keepalive, Limits, ReplayLimits};

/// The rules for connections, on either side: a plain value, which channels and servers take from
/// their builder's `config`. How RDMA is used is the business of the handle to its devices:
/// [`Rdma`](crate::Rdma).
///
/// A value that a setting cannot have makes its setter panic, since a program's code is at fault.
/// The values that come from outside of the program can be checked before: see
/// [`Limits::check`] and its likes.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    limits: Limits,
    compression: Compression,
    handshake_timeout: Duration,
    keepalive: Option<Keepalive>,
    progress_timeout: Option<Duration>,
    path_backoff: Backoff,
    connect_backoff: ConnectBackoff,
    replays: ReplayLimits,
    log_failed_calls: bool,
    require_encryption: bool,
}

impl Default for Config {
    fn default() -> Self {
        let client = ClientConfig::default();
        Self {
            limits: client.limits,
            compression: client.compression,
            handshake_timeout: client.handshake_timeout,
            keepalive: client.keepalive,
            progress_timeout: client.progress_timeout,
            path_backoff: client.backoff,
            connect_backoff: client.connect_backoff,
            replays: client.replays,
            log_failed_calls: true,
            require_encryption: false,
        }
    }
}

impl Config {
    /// Sets the limits on what this side accepts.
    ///
    /// # Panics
    ///
    /// When a limit is out of its range: see [`Limits::check`].
    #[must_use]
    #[track_caller]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        expect_valid(limits.check());
        self.limits = limits;
        self
    }

    /// The limits on what this side accepts.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Sets what this side does with compressed messages; nothing by default.
    ///
    /// # Panics
    ///
    /// When the setting needs farcall's feature `compression`: see [`Compression::check`].
    #[must_use]
    #[track_caller]
    pub fn with_compression(mut self, compression: Compression) -> Self {
        expect_valid(compression.check());
        self.compression = compression;
        self
    }

    /// What this side does with compressed messages.
    #[must_use]
    pub fn compression(&self) -> Compression {
        self.compression
    }

    /// Sets the bound on a handshake; 10 s by default. The proof of an RDMA path has 3 s of it at
    /// most: where nothing comes over that path, `auto://` falls back to TCP after 3 s.
    ///
    /// # Panics
    ///
    /// Unless the timeout is from 1 ms to 365 days.
    #[must_use]
    #[track_caller]
    pub fn with_handshake_timeout(mut self, timeout: Duration) -> Self {
        expect_valid(check_timeout("handshake_timeout", timeout));
        self.handshake_timeout = timeout;
        self
    }

    /// The bound on a handshake.
    #[must_use]
    pub fn handshake_timeout(&self) -> Duration {
        self.handshake_timeout
    }

    /// Sets how a peer that is gone is found, or `None`; on by default.
    ///
    /// # Panics
    ///
    /// When a time is out of its range: see [`Keepalive::check`].
    #[must_use]
    #[track_caller]
    pub fn with_keepalive(mut self, keepalive: impl Into<Option<Keepalive>>) -> Self {
        let keepalive = keepalive.into();
        if let Some(rules) = keepalive {
            expect_valid(rules.check());
        }
        self.keepalive = keepalive;
        self
    }

    /// How a peer that is gone is found, if at all.
    #[must_use]
    pub fn keepalive(&self) -> Option<Keepalive> {
        self.keepalive
    }

    /// Sets how long a peer may take nothing of what waits for it, or send nothing more of a large
    /// frame that it has begun, before its connection is ended; 60 s by default, never with `None`.
    ///
    /// # Panics
    ///
    /// Unless the timeout is from 1 ms to 365 days.
    #[must_use]
    #[track_caller]
    pub fn with_progress_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        let timeout = timeout.into();
        if let Some(timeout) = timeout {
            expect_valid(check_timeout("progress_timeout", timeout));
        }
        self.progress_timeout = timeout;
        self
    }

    /// How long a peer may stand still before its connection is ended, if it is at all.
    #[must_use]
    pub fn progress_timeout(&self) -> Option<Duration> {
        self.progress_timeout
    }

    /// Sets the delays before an RDMA path that has failed is tried again.
    ///
    /// # Panics
    ///
    /// When a delay is out of its range: see [`Backoff::check`].
    #[must_use]
    #[track_caller]
    pub fn with_path_backoff(mut self, backoff: Backoff) -> Self {
        expect_valid(backoff.check());
        self.path_backoff = backoff;
        self
    }

    /// The delays before an RDMA path that has failed is tried again.
    #[must_use]
    pub fn path_backoff(&self) -> Backoff {
        self.path_backoff
    }

    /// Sets the delays before a channel connects again to a server that cannot be reached, or whose
    /// connections are of no use; gRPC's by default.
    ///
    /// # Panics
    ///
    /// When a value is out of its range: see [`ConnectBackoff::check`].
    #[must_use]
    #[track_caller]
    pub fn with_connect_backoff(mut self, connect_backoff: ConnectBackoff) -> Self {
        expect_valid(connect_backoff.check());
        self.connect_backoff = connect_backoff;
        self
    }

    /// The delays before a channel connects again.
    #[must_use]
    pub fn connect_backoff(&self) -> ConnectBackoff {
        self.connect_backoff
    }

    /// Sets the bound on the idempotent calls that a channel makes once more after their connection
    /// ended under them.
    ///
    /// # Panics
    ///
    /// When a value is out of its range: see [`ReplayLimits::check`].
    #[must_use]
    #[track_caller]
    pub fn with_replays(mut self, replays: ReplayLimits) -> Self {
        expect_valid(replays.check());
        self.replays = replays;
        self
    }

    /// The bound on the idempotent calls that a channel makes once more.
    #[must_use]
    pub fn replays(&self) -> ReplayLimits {
        self.replays
    }

    /// Sets whether each call that fails has a line in the log, for channels and for servers whose
    /// builder is given these rules; on by default.
    /// [`ChannelBuilder::log_failed_calls`](crate::ChannelBuilder::log_failed_calls) tells what it
    /// says.
    #[must_use]
    pub fn with_log_failed_calls(mut self, is_logged: bool) -> Self {
        self.log_failed_calls = is_logged;
        self
    }

    /// Whether each call that fails has a line in the log.
    #[must_use]
    pub fn log_failed_calls(&self) -> bool {
        self.log_failed_calls
    }

    /// Sets whether only encrypted connections are made and accepted between hosts; off by default.
    /// See [`ChannelBuilder::require_encryption`](crate::ChannelBuilder::require_encryption) and
    /// [`ServerBuilder::require_encryption`](crate::ServerBuilder::require_encryption).
    #[must_use]
    pub fn with_require_encryption(mut self, is_required: bool) -> Self {
        self.require_encryption = is_required;
        self
    }

    /// Whether only encrypted connections are made and accepted between hosts.
    #[must_use]
    pub fn require_encryption(&self) -> bool {
        self.require_encryption
    }

    /// What a server's builder has: the settings that are not at their default.
    pub(crate) fn server(&self) -> ServerOverlay {
        let (mut server, default) = (ServerOverlay::default(), Self::default());
        macro_rules! set {
            ($($setting:ident),*) => {$(
                if self.$setting != default.$setting {
                    server.$setting = Some(self.$setting);
                }
            )*};
        }
        set! { handshake_timeout, progress_timeout, log_failed_calls, require_encryption }
        if self.limits != default.limits {
            server.limits = self.limits.into();
        }
        if self.compression != default.compression {
            server.compression = self.compression.into();
        }
        if self.keepalive != default.keepalive {
            server.keepalive = self.keepalive.into();
        }
        server
    }

    /// What a channel's connector has.
    pub(crate) fn client(&self, policy: UpgradePolicy) -> ClientConfig {
        ClientConfig {
            limits: self.limits,
            compression: self.compression,
            policy,
            handshake_timeout: self.handshake_timeout,
            keepalive: self.keepalive,
            progress_timeout: self.progress_timeout,
            backoff: self.path_backoff,
            connect_backoff: self.connect_backoff,
            replays: self.replays,
            names: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(
        expected = "limits.max_calls is 0: at least 1, since no call would ever be made"
    )]
    fn limits_under_which_no_call_could_be_made_panic_where_they_are_set() {
        let _ = Config::default().with_limits(Limits::new().with_max_calls(0));
    }

    #[test]
    #[should_panic(expected = "keepalive.interval is 1ms: from 100 ms to 365 days")]
    fn keepalive_that_a_peer_takes_for_a_flood_panics_where_it_is_set() {
        let keepalive = Keepalive::default().with_interval(Duration::from_millis(1));
        let _ = Config::default().with_keepalive(keepalive);
    }

    #[test]
    #[should_panic(expected = "handshake_timeout is 0ns: from 1 ms to 365 days")]
    fn a_timeout_of_zero_panics_where_it_is_set() {
        let _ = Config::default().with_handshake_timeout(Duration::ZERO);
    }

    #[test]
    fn the_default_rules_are_in_range_and_can_be_read() {
        let config = Config::default()
            .with_progress_timeout(Duration::from_secs(3))
            .with_keepalive(None)
            .with_limits(Limits::new().with_max_calls(3));
        assert_eq!(config.progress_timeout(), Some(Duration::from_secs(3)));
        assert_eq!((config.keepalive(), config.limits().max_calls), (None, 3));
        let config = Config::default();
        assert_eq!(config.limits().check(), Ok(()));
        assert_eq!(config.keepalive().map_or(Ok(()), |rules| rules.check()), Ok(()));
        assert_eq!(config.path_backoff().check(), Ok(()));
        assert_eq!(config.connect_backoff().check(), Ok(()));
        assert_eq!(config.replays().check(), Ok(()));
        assert_eq!(config.handshake_timeout(), Duration::from_secs(10));
    }
}
