//! What the settings of a builder are: `get_` and the name of the setter, as with tonic's
//! `Endpoint`.

use std::time::Duration;

use super::ChannelBuilder;
use crate::balance::BalanceConfig;
use crate::{
    Backoff, Compression, Config, ConnectBackoff, Keepalive, Limits, Readiness, ReplayLimits,
};

impl ChannelBuilder {
    /// The rules that [`config`](Self::config) and the other setters have made.
    #[must_use]
    pub fn get_config(&self) -> &Config {
        &self.config
    }

    /// The handle of [`rdma`](Self::rdma); `None` where the channel will make its own.
    #[cfg(all(target_os = "linux", any(feature = "rdma", feature = "sim")))]
    #[must_use]
    pub fn get_rdma(&self) -> Option<&crate::Rdma> {
        self.rdma.as_ref()
    }

    /// What is accepted from the server.
    #[must_use]
    pub fn get_limits(&self) -> Limits {
        self.config.limits()
    }

    /// What is done with compressed messages.
    #[must_use]
    pub fn get_compression(&self) -> Compression {
        self.config.compression()
    }

    /// The longest response message accepted, in bytes.
    #[must_use]
    pub fn get_max_message_len(&self) -> u64 {
        self.get_limits().max_message_len
    }

    /// How the endpoint of each call is chosen, where the channel has many.
    #[must_use]
    pub fn get_balance(&self) -> &BalanceConfig {
        &self.balance
    }

    /// How a server that is gone is found, if at all.
    #[must_use]
    pub fn get_keepalive(&self) -> Option<Keepalive> {
        self.config.keepalive()
    }

    /// The bound on opening a connection.
    #[must_use]
    pub fn get_handshake_timeout(&self) -> Duration {
        self.config.handshake_timeout()
    }

    /// How long the server may stand still before the connection is ended, if it is at all.
    #[must_use]
    pub fn get_progress_timeout(&self) -> Option<Duration> {
        self.config.progress_timeout()
    }

    /// The delays before the channel connects again.
    #[must_use]
    pub fn get_connect_backoff(&self) -> ConnectBackoff {
        self.config.connect_backoff()
    }

    /// The delays before an RDMA path that has failed is tried again.
    #[must_use]
    pub fn get_path_backoff(&self) -> Backoff {
        self.config.path_backoff()
    }

    /// The bound on the idempotent calls that the channel makes once more.
    #[must_use]
    pub fn get_replays(&self) -> ReplayLimits {
        self.config.replays()
    }

    /// The timeout for calls of every kind that set none themselves.
    #[must_use]
    pub fn get_timeout(&self) -> Option<Duration> {
        self.calls.timeout
    }

    /// The timeout for unary calls that set none themselves.
    #[must_use]
    pub fn get_unary_timeout(&self) -> Option<Duration> {
        self.calls.unary_timeout
    }

    /// What becomes of calls that are made while the channel backs off.
    #[must_use]
    pub fn get_readiness(&self) -> Readiness {
        self.calls.readiness
    }

    /// Whether each call that fails has a line in the log.
    #[must_use]
    pub fn get_log_failed_calls(&self) -> bool {
        self.config.log_failed_calls()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Channel;

    #[test]
    fn every_setting_can_be_read() {
        let second = Duration::from_secs(1);
        let builder = Channel::builder("tcp://127.0.0.1:1").unwrap();
        assert_eq!((builder.get_timeout(), builder.get_unary_timeout()), (None, None));
        let builder = builder
            .max_message_len(7)
            .keepalive(None)
            .handshake_timeout(second)
            .progress_timeout(second * 2)
            .timeout(second * 3)
            .unary_timeout(second * 4)
            .readiness(Readiness::WaitForReady)
            .log_failed_calls(false)
            .path_backoff(Backoff::new().with_max_delay(second * 90));
        let times = [
            Some(builder.get_handshake_timeout()),
            builder.get_progress_timeout(),
            builder.get_timeout(),
            builder.get_unary_timeout(),
            Some(builder.get_path_backoff().max_delay / 90 * 5),
        ];
        assert_eq!(times, [1, 2, 3, 4, 5].map(|count| Some(second * count)));
        assert_eq!((builder.get_max_message_len(), builder.get_limits().max_message_len), (7, 7));
        assert_eq!((builder.get_keepalive(), builder.get_log_failed_calls()), (None, false));
        assert_eq!(builder.get_readiness(), Readiness::WaitForReady);
        assert_eq!(builder.get_connect_backoff(), builder.get_config().connect_backoff());
        assert_eq!(builder.get_replays(), ReplayLimits::default());
        #[cfg(all(target_os = "linux", any(feature = "rdma", feature = "sim")))]
        assert!(builder.get_rdma().is_none());
    }
}
