//! The part of a server that operators see, and its history.

use std::convert::Infallible;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use rpc_core::server::WeakServer;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use super::Admin;
use super::api::Sample;
use super::history::{History, INTERVAL, paths, unix_ms};
use crate::rdma::Rdma;
use crate::server::settings::{ServerOverlay, ServerSettings};
use crate::tls::ServerTls;

/// The state of an [`Admin`] whose server is built.
pub(crate) struct AdminState {
    pub(super) admin: Admin,
    pub(super) built: Instant,
    pub(super) view: OnceLock<ServerView>,
    history: Mutex<History>,
    /// True once the server drains.
    draining: watch::Sender<bool>,
}

/// The parts of a server. They do not keep it, since its services keep them.
pub(crate) struct ServerView {
    pub(crate) core: WeakServer,
    /// Those that it was built with.
    pub(crate) settings: Arc<ServerSettings>,
    /// Those of them that the program's code has set.
    pub(crate) code: ServerOverlay,
    #[cfg_attr(
        not(all(target_os = "linux", any(feature = "rdma", feature = "sim"))),
        expect(dead_code, reason = "it has no devices")
    )]
    pub(crate) rdma: Rdma,
    #[cfg_attr(not(feature = "tls"), expect(dead_code, reason = "there is none"))]
    pub(crate) tls: Option<ServerTls>,
    pub(crate) file: Option<Arc<dyn SettingsView>>,
}

/// The settings file that a server was made from.
pub(crate) trait SettingsView: Send + Sync {
    /// Returns the line or the variable that sets a key of the server.
    fn source(&self, key: &[String]) -> Option<String>;

    /// Returns the time of the last reload, and its result.
    fn last_reload(&self) -> Option<(SystemTime, Result<Vec<String>, String>)>;
}

impl AdminState {
    pub(crate) fn new(admin: Admin) -> Arc<Self> {
        let (view, history) = (OnceLock::new(), Mutex::default());
        let draining = watch::Sender::new(false);
        Arc::new(Self { admin, built: Instant::now(), view, history, draining })
    }

    /// Sets the server, once it is built.
    pub(crate) fn set_view(&self, view: ServerView) {
        let _: Result<(), ServerView> = self.view.set(view);
    }

    /// Ends the streams of the service, since the server drains.
    pub(crate) async fn drain(self: Arc<Self>) {
        self.draining.send_replace(true);
    }

    /// Waits until the server drains.
    pub(super) fn drained(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut draining = self.draining.subscribe();
        // An error says that the server is gone.
        async move { drop(draining.wait_for(|is_draining| *is_draining).await) }
    }

    pub(super) fn history(&self) -> Vec<Sample> {
        self.lock().samples()
    }

    fn lock(&self) -> parking_lot::MutexGuard<'_, History> {
        self.history.lock()
    }

    /// Samples the server for ever. Several listeners may do so at a time.
    pub(crate) async fn watch(&self) -> Infallible {
        let mut ticks = tokio::time::interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.sample(Instant::now());
        }
    }

    fn sample(&self, now: Instant) {
        let Some(server) = self.view.get().and_then(|view| view.core.upgrade()) else { return };
        let methods = server.method_calls().unwrap_or_default();
        let infos = server.connections();
        let by_path = paths(infos.iter());
        self.lock().add(now, unix_ms(SystemTime::now()), &methods, by_path);
    }

    /// Returns the time since the server was built.
    pub(super) fn uptime(&self) -> Duration {
        self.built.elapsed()
    }
}

impl fmt::Debug for AdminState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AdminState").field(&self.admin).finish()
    }
}
