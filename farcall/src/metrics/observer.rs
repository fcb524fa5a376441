//! The observer, which shows as metrics what farcall counts anyway.

use std::time::Duration;
#[cfg(feature = "tls")]
use std::time::SystemTime;

use rpc_core::metrics::{FallbackKind, ended_connections};
use rpc_core::settings::{check_timeout, expect_valid};
use rpc_core::transport::TransportStats;
use tokio::time::MissedTickBehavior;

use super::list;
use super::samples::{Samples, Shown};
use crate::balance::EndpointStatus;
#[cfg(all(target_os = "linux", any(feature = "rdma", feature = "sim")))]
use crate::rdma::Rdma;
use crate::{Channel, Path, Server};

/// Shows what servers, channels and devices say of themselves as metrics.
///
/// The facade has no callback for an exporter that is about to render. So the program calls
/// [`observe`](Self::observe) before it renders, or lets [`run`](Self::run) do it every few
/// seconds. Calls and connections pay nothing for it.
///
/// It keeps the servers and channels that it is given, until it is dropped.
#[derive(Debug, Default)]
#[must_use]
pub struct Observer {
    servers: Vec<(String, Server)>,
    channels: Vec<Channel>,
    #[cfg(all(target_os = "linux", any(feature = "rdma", feature = "sim")))]
    rdma: Vec<Rdma>,
    #[cfg(feature = "tls")]
    certificates: Vec<(String, crate::tls::ClientTls)>,
    shown: Shown,
}

impl Observer {
    /// Returns an observer of nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a server, its RDMA devices and its certificate. `name` is the label `server`, and the
    /// label `certificate`.
    pub fn server(mut self, name: impl Into<String>, server: &Server) -> Self {
        #[cfg(all(target_os = "linux", any(feature = "rdma", feature = "sim")))]
        {
            self = self.rdma(server.rdma());
        }
        self.servers.push((name.into(), server.clone()));
        self
    }

    /// Adds a channel. Its RDMA devices are those of [`rdma`](Self::rdma) or of a server.
    pub fn channel(mut self, channel: &Channel) -> Self {
        self.channels.push(channel.clone());
        self
    }

    /// Adds the RDMA devices of a handle. A handle that is added twice counts once.
    #[cfg(all(target_os = "linux", any(feature = "rdma", feature = "sim")))]
    pub fn rdma(mut self, rdma: &Rdma) -> Self {
        if !self.rdma.iter().any(|other| other.has_same_devices(rdma)) {
            self.rdma.push(rdma.clone());
        }
        self
    }

    /// Adds the certificate that a channel shows; `name` is the label `certificate`.
    #[cfg(feature = "tls")]
    pub fn client_tls(mut self, name: impl Into<String>, tls: &crate::tls::ClientTls) -> Self {
        self.certificates.push((name.into(), tls.clone()));
        self
    }

    /// Reads everything once, and sets the metrics to it.
    pub fn observe(&mut self) {
        let mut samples = Samples::default();
        for ((side, transport), stats) in ended_connections() {
            add_stats(&mut samples, side, transport, &stats);
        }
        for (name, server) in &self.servers {
            add_server(&mut samples, name, server);
        }
        for channel in &self.channels {
            add_channel(&mut samples, channel);
        }
        #[cfg(all(target_os = "linux", any(feature = "rdma", feature = "sim")))]
        for rdma in &self.rdma {
            super::devices::add_rdma(&mut samples, rdma);
        }
        #[cfg(feature = "tls")]
        for (name, tls) in &self.certificates {
            add_certificate(&mut samples, name, tls.valid_until());
        }
        samples.publish(&mut self.shown);
    }

    /// Observes once in every `interval`, for ever.
    ///
    /// # Panics
    ///
    /// Panics unless the interval is from 1 ms to 365 days.
    ///
    /// # Cancel safety
    ///
    /// Cancelled, nothing is observed any more, and the metrics stay as they are.
    pub async fn run(mut self, interval: Duration) {
        expect_valid(check_timeout("interval", interval));
        let mut ticks = tokio::time::interval(interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.observe();
        }
    }
}

fn add_stats(samples: &mut Samples, side: &str, transport: &str, stats: &TransportStats) {
    let labels = [side, transport];
    samples.add(list::SENT_BYTES, &labels, stats.sent_bytes);
    samples.add(list::RECEIVED_BYTES, &labels, stats.received_bytes);
    samples.add(list::COPIED_BYTES, &labels, stats.copied_bytes);
    samples.add(list::WRITTEN_BYTES, &labels, stats.written_bytes);
    samples.add(list::KERNEL_CALLS, &labels, stats.kernel_calls);
}

fn add_server(samples: &mut Samples, name: &str, server: &Server) {
    for info in server.connections() {
        let labels = [name, info.transport, FallbackKind::new(&info).label()];
        samples.add(list::SERVER_CONNECTIONS, &labels, 1);
        add_stats(samples, "server", info.transport, &info.stats);
    }
    samples.add(list::SERVER_CALLS, &[name], server.calls_running());
    samples.add(list::SERVER_MEMORY, &[name], server.memory_held());
    samples.add(list::SERVER_MEMORY_LIMIT, &[name], server.memory_limit());
    #[cfg(feature = "tls")]
    if let Some(tls) = server.tls() {
        add_certificate(samples, name, tls.valid_until());
    }
}

#[cfg(feature = "tls")]
fn add_certificate(samples: &mut Samples, name: &str, valid_until: Option<SystemTime>) {
    const DAY: f64 = 86_400.0;
    let Some(end) = valid_until else { return };
    let seconds = match end.duration_since(SystemTime::now()) {
        Ok(left) => left.as_secs_f64(),
        Err(over) => -over.duration().as_secs_f64(),
    };
    samples.add_number(list::CERTIFICATE_DAYS, &[name], seconds / DAY);
}

fn add_channel(samples: &mut Samples, channel: &Channel) {
    let target = channel.metrics_target();
    let (mut open_breakers, mut ejected) = (0, 0);
    for status in channel.endpoints() {
        let EndpointStatus { path, in_flight, info, .. } = &status;
        let fallback = info.as_ref().map_or(FallbackKind::None, FallbackKind::new);
        let transport = path.transport().unwrap_or("none");
        let labels = [target, state(path), transport, fallback.label()];
        samples.add(list::CLIENT_CONNECTIONS, &labels, 1);
        samples.add(list::CLIENT_CALLS, &[target], (*in_flight).into());
        samples.add(list::CLIENT_FAILOVERS, &[target], status.failovers);
        samples.add(list::CLIENT_FAILBACKS, &[target], status.failbacks);
        open_breakers += u64::from(is_tried_later(path));
        ejected += u64::from(status.ejected_until.is_some());
        if let Some(info) = info {
            add_stats(samples, "client", info.transport, &info.stats);
        }
    }
    samples.add(list::CLIENT_BREAKERS, &[target], open_breakers);
    samples.add(list::CLIENT_EJECTED, &[target], ejected);
}

/// Returns the label `state` of a path.
fn state(path: &Path) -> &'static str {
    match path {
        Path::Direct { .. } => "direct",
        Path::Upgraded { .. } => "upgraded",
        Path::Fallback { .. } => "fallback",
        Path::Broken { .. } => "broken",
        Path::Disconnected { .. } => "disconnected",
        _ => "other",
    }
}

/// Returns true if a breaker is open on the way to RDMA.
fn is_tried_later(path: &Path) -> bool {
    matches!(path, Path::Broken { .. } | Path::Fallback { retry_in: Some(_), .. })
}
