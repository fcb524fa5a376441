//! The rules for the connections of one listener: the builder's settings, then the listener's, then
//! the defaults.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::Keepalive;
use crate::connect::ServerHandshake;
use crate::policy::progress::PROGRESS_TIMEOUT;
use crate::server::ListenerSettings;
use crate::server::serve::life::LifeRules;
use crate::server::serve::shared::Shared;

/// The bound on a handshake that neither the builder nor the listener sets. The same as a client's.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// The rules for the connections of one listener.
#[derive(Debug)]
pub(in crate::server) struct Rules {
    pub(in crate::server) handshake: ServerHandshake,
    pub(in crate::server) handshake_timeout: Duration,
    pub(in crate::server) life: LifeRules,
    /// From which length on responses are compressed, by method id; empty where the handshake's
    /// compression says it for all.
    pub(in crate::server) compress_from: Arc<[u32]>,
    /// Set when the listener is shut down.
    pub(in crate::server) draining: CancellationToken,
}

impl Rules {
    pub(in crate::server) fn new(server: &Shared, listener: ListenerSettings) -> Self {
        let live = server.rules.borrow();
        let settings = live.settings.or(listener);
        let compression = settings.compression.unwrap_or_default();
        Self {
            handshake: ServerHandshake {
                limits: settings.limits.unwrap_or_default(),
                compression,
                methods: server.router.paths(),
                method_kinds: server.router.kinds(),
                upgrades: settings.upgrades,
                protocols: settings.protocols,
            },
            handshake_timeout: settings.handshake_timeout.unwrap_or(HANDSHAKE_TIMEOUT),
            life: LifeRules {
                keepalive: settings.keepalive.unwrap_or(Some(Keepalive::default())),
                progress_timeout: settings.progress_timeout.unwrap_or(Some(PROGRESS_TIMEOUT)),
                lifetime: live.lifetime,
                drain_timeout: live.drain_timeout,
            },
            compress_from: live.method_compression.lens(server.router.methods(), compression),
            draining: CancellationToken::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connect::{Candidate, Declined, PendingOffer, Upgrade};
    use crate::server::LiveSetting;
    use crate::transport::Addresses;
    use crate::{Compression, Limits, Server};

    /// An upgrade that is nothing but a name, and who added it.
    #[derive(Debug)]
    struct Named(&'static str, &'static str);

    impl Upgrade for Named {
        fn name(&self) -> &'static str {
            self.0
        }

        fn offer(&self, _: &Addresses) -> Result<Box<dyn PendingOffer>, Declined> {
            Err(Declined::new(self.1))
        }

        fn accept(
            &self,
            _: &Addresses,
            _: &[u8],
        ) -> Result<(Vec<u8>, Box<dyn Candidate>), Declined> {
            Err(Declined::new(self.1))
        }
    }

    fn of_listener() -> ListenerSettings {
        ListenerSettings {
            upgrades: vec![Arc::new(Named("rdma", "listener")), Arc::new(Named("other", ""))],
            protocols: Vec::new(),
            limits: Some(Limits { max_calls: 7, ..Limits::default() }),
            compression: Some(Compression::OFF.with_min_len(7)),
            handshake_timeout: Some(Duration::from_secs(7)),
            keepalive: Some(None),
            progress_timeout: Some(None),
        }
    }

    #[test]
    fn without_a_setting_the_defaults_hold() {
        let rules = Rules::new(&Server::builder().build().shared, ListenerSettings::default());
        assert_eq!(rules.handshake.limits, Limits::default());
        assert_eq!(rules.handshake.compression, Compression::OFF);
        assert!(rules.handshake.upgrades.is_empty());
        assert_eq!(rules.handshake_timeout, HANDSHAKE_TIMEOUT);
        assert_eq!(rules.life.keepalive, Some(Keepalive::default()));
        assert_eq!(rules.life.progress_timeout, Some(PROGRESS_TIMEOUT));
    }

    #[test]
    fn a_listeners_settings_hold_where_the_builder_has_none() {
        let rules = Rules::new(&Server::builder().build().shared, of_listener());
        assert_eq!(rules.handshake.limits.max_calls, 7);
        assert_eq!(rules.handshake.compression.min_len(), Some(7));
        assert_eq!(rules.handshake.upgrades.len(), 2);
        assert_eq!(rules.handshake_timeout, Duration::from_secs(7));
        assert_eq!((rules.life.keepalive, rules.life.progress_timeout), (None, None));
    }

    #[test]
    fn rules_that_are_set_later_hold_with_the_upgrades_that_were_there() {
        let server = Server::builder().upgrade(Arc::new(Named("rdma", "builder"))).build();
        let later = Server::builder()
            .handshake_timeout(Duration::from_secs(9))
            .max_calls(3)
            .unary_timeout(Duration::from_secs(5))
            .idle_timeout(Duration::from_secs(4));
        let mut set = later.live_rules();
        set.take(LiveSetting::MaxCalls, &server.rules());
        server.set_rules(set);
        let rules = Rules::new(&server.shared, ListenerSettings::default());
        assert_eq!(rules.handshake.upgrades.len(), 1);
        assert_eq!(rules.handshake_timeout, Duration::from_secs(9));
        assert_eq!(rules.life.lifetime.idle_timeout, Some(Duration::from_secs(4)));
        assert_eq!(server.shared.router.rules.unary_timeout(), Some(Duration::from_secs(5)));
        assert_eq!(server.shared.calls_limit.limit.max(), 65_536, "its own was taken back");
        assert!(server.downgrade().upgrade().is_some());
        let weak = server.downgrade();
        drop(server);
        assert!(weak.upgrade().is_none());
    }

    #[test]
    fn the_builders_settings_come_first() {
        let builder = Server::builder()
            .limits(Limits { max_calls: 9, ..Limits::default() })
            .handshake_timeout(Duration::from_secs(9))
            .keepalive(Keepalive::default())
            .progress_timeout(Duration::from_secs(9))
            .upgrade(Arc::new(Named("rdma", "builder")));
        let rules = Rules::new(&builder.build().shared, of_listener());
        assert_eq!(rules.handshake.limits.max_calls, 9);
        assert_eq!(rules.handshake_timeout, Duration::from_secs(9));
        assert_eq!(rules.life.keepalive, Some(Keepalive::default()));
        assert_eq!(rules.life.progress_timeout, Some(Duration::from_secs(9)));
        let upgrades = rules.handshake.upgrades.iter();
        let names: Vec<_> = upgrades.map(|upgrade| upgrade.name()).collect();
        assert_eq!(names, ["rdma", "other"]);
        let Err(of_builder) = rules.handshake.upgrades[0].offer(&Addresses::default()) else {
            panic!("it declines everything");
        };
        assert!(of_builder.to_string().contains("builder"), "{of_builder}");
    }
}
