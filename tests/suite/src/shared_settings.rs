//! Settings that the channels and the server of a test share.

use farcall::{ChannelBuilder, ChannelSettings, Server, ServerBuilder};

/// Settings of both sides. A channel's alone have no effect on the server.
#[derive(Debug, Clone, Default)]
pub struct SharedSettings(ChannelSettings);

impl SharedSettings {
    /// The defaults after `change`.
    #[must_use]
    pub fn new(change: impl FnOnce(&mut ChannelSettings)) -> Self {
        Self::default().changed(change)
    }

    /// The same settings after `change`.
    #[must_use]
    pub fn changed(mut self, change: impl FnOnce(&mut ChannelSettings)) -> Self {
        change(&mut self.0);
        self
    }

    /// Sets them on the builder of a channel.
    pub fn channel(&self, builder: ChannelBuilder) -> ChannelBuilder {
        let settings = &self.0;
        builder
            .limits(settings.limits)
            .compression(settings.compression)
            .keepalive(settings.keepalive)
            .handshake_timeout(settings.handshake_timeout)
            .progress_timeout(settings.progress_timeout)
            .connect_backoff(settings.connect_backoff)
    }

    /// Sets those of both sides on the builder of a server, where it has the defaults.
    #[must_use]
    pub fn server(&self, mut builder: ServerBuilder) -> ServerBuilder {
        let (set, default) = (builder.settings().base, Server::builder().settings().base);
        macro_rules! set {
            ($($setting:ident),*) => {$(
                if set.$setting == default.$setting {
                    builder = builder.$setting(self.0.$setting);
                }
            )*};
        }
        set! { limits, compression, keepalive, handshake_timeout, progress_timeout }
        builder
    }
}
