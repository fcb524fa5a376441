//! The rules for the connections of one listener: the server's settings, and what is offered there.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::connect::{ServerHandshake, Upgrade};
use crate::server::Offers;
use crate::server::serve::life::LifeRules;
use crate::server::serve::shared::Shared;

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
    pub(in crate::server) fn new(server: &Shared, offers: &Offers) -> Self {
        let settings = server.settings.borrow();
        Self {
            handshake: ServerHandshake {
                limits: settings.limits,
                compression: settings.compression,
                methods: server.router.paths(),
                method_kinds: server.router.kinds(),
                upgrades: upgrades(&server.upgrades, &offers.upgrades),
                protocols: offers.protocols.clone(),
            },
            handshake_timeout: settings.handshake_timeout,
            life: LifeRules {
                keepalive: settings.keepalive,
                progress_timeout: settings.progress_timeout,
                lifetime: settings.lifetime(),
                drain_timeout: settings.drain_timeout,
            },
            compress_from: settings.methods.lens(server.router.methods(), settings.compression),
            draining: CancellationToken::new(),
        }
    }
}

/// Returns the upgrades of the server, and those of the listener that have other names.
fn upgrades(server: &[Arc<dyn Upgrade>], listener: &[Arc<dyn Upgrade>]) -> Vec<Arc<dyn Upgrade>> {
    let is_other = |it: &&Arc<dyn Upgrade>| server.iter().all(|own| own.name() != it.name());
    server.iter().chain(listener.iter().filter(is_other)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connect::{Candidate, Declined, PendingOffer};
    use crate::transport::Addresses;

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

    fn named(name: &'static str, owner: &'static str) -> Arc<dyn Upgrade> {
        Arc::new(Named(name, owner))
    }

    #[test]
    fn upgrade_of_the_server_replaces_the_listeners() {
        let server = [named("rdma", "server")];
        let all = upgrades(&server, &[named("rdma", "listener"), named("other", "")]);
        let names: Vec<_> = all.iter().map(|upgrade| upgrade.name()).collect();
        assert_eq!(names, ["rdma", "other"]);
        let Err(declined) = all[0].offer(&Addresses::default()) else {
            panic!("it declines everything");
        };
        assert!(declined.to_string().contains("server"), "{declined}");
    }
}
