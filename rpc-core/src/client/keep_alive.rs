//! The client's one timer of a connection.

use std::sync::Weak;

use tokio::time::Instant;

use super::session::Session;
use crate::calls::keepalive::{Keepalive, Look, Prober};
use crate::liveness;
use crate::long_wait::wait_until;
use crate::transport::{CloseReason, Transport};

/// Looks after the session until it is gone, and ends it when the server is silent.
pub(super) async fn keep_alive<T: Transport>(session: Weak<Session<T>>, rules: Keepalive) {
    let mut prober = Prober::new(rules, Instant::now().into_std());
    loop {
        wait_until(prober.due()).await;
        let Some(session) = session.upgrade() else { return };
        let traffic = liveness::traffic(&session.transport);
        match prober.handle_tick(Instant::now().into_std(), traffic) {
            Look::Wait => {}
            Look::Ping => liveness::ping(&session.transport, prober.ping_count()),
            Look::Dead => {
                let timeout = prober.timeout();
                return session.transport.abort(CloseReason::Silent { timeout });
            }
        }
    }
}
