//! The state of a running server, for operators, on the server's own port.
//!
//! [`Admin`] is the configuration. [`state`] has what a server of it keeps, [`snapshot`] reads the
//! server into the messages of [`api`], and [`history`] samples it. [`tap`] shows calls as they
//! end, and [`channelz`] shows a part of the state to tools of gRPC. With the feature `grpc`,
//! [`pages`] shows the same in a browser.

pub mod api;
pub mod channelz;
mod history;
#[cfg(feature = "grpc")]
mod pages;
mod snapshot;
mod state;
mod tap;

#[cfg(feature = "grpc")]
use std::sync::Arc;

pub(crate) use self::channelz::ChannelzService;
#[cfg(feature = "grpc")]
pub(crate) use self::pages::pages;
pub(crate) use self::snapshot::AdminService;
#[cfg(feature = "settings")]
pub(crate) use self::state::SettingsView;
pub(crate) use self::state::{AdminState, ServerView};
use crate::Channel;

/// Shows operators the state of a server: [`ServerBuilder::admin`](crate::ServerBuilder::admin).
///
/// The server gets the service `farcall.admin.v1`, and with the feature `grpc` pages for browsers
/// and `curl` on the same port. They have the connections and their paths, calls by method with
/// times and codes, the last calls that failed, RDMA devices, certificates, and the settings in
/// force with their origin. The service also shows calls as they end, to four clients at a time.
/// Nothing has a value of metadata, or a message. Tools of gRPC get connections and channels from
/// `grpc.channelz.v1.Channelz`.
///
/// They answer clients on the same host: at Unix sockets, inside the process, and at loopback
/// addresses. From elsewhere they answer clients with an identity that
/// [`authorize`](crate::ServerBuilder::authorize) allows to call all methods of
/// `/farcall.admin.v1.Admin/`. To everyone else they do not exist.
///
/// A proxy on the host, such as a sidecar, speaks for clients from everywhere. Do not use this
/// behind one, unless it connects over TCP and sends the PROXY protocol: with
/// [`proxy_protocol`](crate::ServerBuilder::proxy_protocol), loopback addresses are not answered.
/// Over a Unix socket nothing tells a proxy's clients apart.
///
/// # Examples
///
/// ```no_run
/// # async fn example(service: impl farcall::Service) -> Result<(), farcall::ServeError> {
/// use farcall::Server;
/// use farcall::server::Admin;
///
/// let server = Server::builder().admin(Admin::loopback()).add_service(service);
/// server.serve("auto://0.0.0.0:7000").await
/// # }
/// ```
#[derive(Clone)]
pub struct Admin {
    channels: Vec<(String, Channel)>,
    #[cfg(feature = "grpc")]
    metrics: Option<MetricsRenderer>,
}

/// Renders the page `/metrics`.
#[cfg(feature = "grpc")]
type MetricsRenderer = Arc<dyn Fn() -> String + Send + Sync>;

impl Admin {
    /// Shows the server itself, to clients on the host and to identities that `authorize` allows.
    #[must_use]
    pub fn loopback() -> Self {
        Self {
            channels: Vec::new(),
            #[cfg(feature = "grpc")]
            metrics: None,
        }
    }

    /// Shows the servers of a channel, too, under `name`.
    #[must_use]
    pub fn channel(mut self, name: impl Into<String>, channel: &Channel) -> Self {
        self.channels.push((name.into(), channel.clone()));
        self
    }

    /// Adds the page `/metrics` with the text that `render` returns. It is for exporters to
    /// Prometheus, whose handle renders it. `render` must not block.
    ///
    /// # Examples
    ///
    /// ```
    /// use farcall::server::Admin;
    ///
    /// # struct PrometheusHandle;
    /// # impl PrometheusHandle { fn render(&self) -> String { String::new() } }
    /// # fn example(handle: PrometheusHandle) -> Admin {
    /// // `handle` is that of the crate `metrics-exporter-prometheus`.
    /// Admin::loopback().metrics(move || handle.render())
    /// # }
    /// ```
    #[cfg(feature = "grpc")]
    #[must_use]
    pub fn metrics(mut self, render: impl Fn() -> String + Send + Sync + 'static) -> Self {
        self.metrics = Some(Arc::new(render));
        self
    }
}

impl std::fmt::Debug for Admin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let channels: Vec<_> = self.channels.iter().map(|(name, _)| name).collect();
        f.debug_struct("Admin").field("channels", &channels).finish_non_exhaustive()
    }
}
