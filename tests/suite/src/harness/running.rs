//! A server under test, and the channels to it.

use std::time::Duration;

use farcall::ServerBuilder;
use farcall::{Channel, ConnectionInfo, Keepalive, Limits, ServeError, Server};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::OneServer as _;
use crate::failure::Cause;
use crate::harness::Rules;
use crate::harness::place::{Place, connect};
use crate::interop::Interop;
use crate::interop_proto::test_service_rpc::TestServiceService;
use crate::interop_proto::test_service_server::TestServiceServer;
use crate::proto::probe_rpc::{ProbeService, ProbeStub};
use crate::proto::probe_server::ProbeServer;
use crate::{Failure, Harness, Path, Probe};
use farcall_probe::watch::{Watch, WatchEvent};

/// Between two looks at a condition that nothing announces.
const LOOK_INTERVAL: Duration = Duration::from_millis(2);

/// A server that serves [`Probe`], and the service of gRPC's interoperability tests.
#[derive(Debug)]
pub struct Running {
    path: Path,
    limit: Duration,
    address: String,
    server_rules: Rules,
    client_rules: Rules,
    server: Server,
    watch: Watch,
    shutdown: Option<oneshot::Sender<()>>,
    serving: JoinHandle<Result<(), ServeError>>,
}

impl Harness {
    /// Starts a server.
    ///
    /// # Errors
    ///
    /// Returns an error if the address cannot be listened on.
    ///
    /// # Cancel safety
    ///
    /// Cancelled, nothing is left behind.
    pub async fn serve(&self) -> Result<Running, Failure> {
        self.serve_under(Self::limits()).await
    }

    /// Starts a server that accepts what `limits` say.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Harness::serve`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe as [`Harness::serve`] is.
    pub async fn serve_under(&self, limits: Limits) -> Result<Running, Failure> {
        let Rules { settings, rdma } = self.rules();
        let rules = Rules { settings: settings.changed(|it| it.limits = limits), rdma };
        Running::start(&self.path.address(), rules, self).await
    }

    /// Starts a server that `build` makes around the suite's service.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Harness::serve`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe as [`Harness::serve`] is.
    pub async fn serve_with(
        &self,
        build: impl FnOnce(ProbeService<Probe>) -> ServerBuilder,
    ) -> Result<Running, Failure> {
        Running::start_with(&self.path.address(), self.rules(), self, build).await
    }

    /// Starts a server of the services that tonic generated, around the same implementations.
    pub(crate) async fn serve_generated(&self) -> Result<Running, Failure> {
        let drain_timeout = self.limit;
        let build = |probe, interop| {
            let builder = Server::builder().drain_timeout(drain_timeout);
            let (probe, interop) = (ProbeServer::new(probe), TestServiceServer::new(interop));
            let probe = probe.max_decoding_message_size(usize::MAX);
            let interop = interop.max_decoding_message_size(usize::MAX);
            let builder = builder.add_grpc_service(probe, farcall_probe::DESCRIPTOR_SET);
            builder.add_grpc_service(interop, crate::INTEROP_DESCRIPTOR_SET)
        };
        Running::start_by(&self.path.address(), self.rules(), self, build).await
    }

    /// Starts a server with other rules for its connections.
    pub(crate) async fn serve_by(
        &self,
        rules: impl FnOnce(ServerBuilder) -> ServerBuilder,
    ) -> Result<Running, Failure> {
        let limit = self.limit;
        self.serve_with(|probe| rules(Server::builder().drain_timeout(limit)).add_service(probe))
            .await
    }
}

impl Running {
    pub(crate) async fn start(
        address: &str,
        rules: Rules,
        harness: &Harness,
    ) -> Result<Self, Failure> {
        let drain_timeout = harness.limit();
        // What is still in flight when a behaviour ends must not hold it up.
        let plain = |probe| Server::builder().drain_timeout(drain_timeout).add_service(probe);
        Self::start_with(address, rules, harness, plain).await
    }

    /// Starts a server that `build` makes around the suite's service.
    pub(crate) async fn start_with(
        address: &str,
        rules: Rules,
        harness: &Harness,
        build: impl FnOnce(ProbeService<Probe>) -> ServerBuilder,
    ) -> Result<Self, Failure> {
        Self::start_by(address, rules, harness, |probe, interop| {
            build(ProbeService::new(probe)).add_service(TestServiceService::new(interop))
        })
        .await
    }

    /// Starts a server that `build` makes around the implementations.
    async fn start_by(
        address: &str,
        rules: Rules,
        harness: &Harness,
        build: impl FnOnce(Probe, Interop) -> ServerBuilder,
    ) -> Result<Self, Failure> {
        let place = Place::bind(harness.path(), address, &rules).await?;
        let address = place.address().to_string();
        let (probe, watch) = Probe::new();
        let interop = Interop::beside(&probe);
        let server = rules.settings.server(build(probe, interop)).cores(harness.cores()).build();
        let (shutdown, shut_down) = oneshot::channel();
        let serving = server.serve_incoming(place);
        let serving = serving.with_graceful_shutdown(async { drop(shut_down.await) });
        let serving = tokio::spawn(serving);
        Ok(Self {
            path: harness.path().clone(),
            limit: harness.limit(),
            address,
            server_rules: rules,
            client_rules: harness.rules(),
            server,
            watch,
            shutdown: Some(shutdown),
            serving,
        })
    }

    /// The address that clients connect to.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// A new connection to the server, which is sure to run over the transport under test.
    ///
    /// # Errors
    ///
    /// Returns an error if it cannot be made, or runs over another transport.
    ///
    /// # Cancel safety
    ///
    /// Cancelled, nothing is left behind.
    pub async fn channel(&self) -> Result<Channel, Failure> {
        self.channel_under(Harness::limits()).await
    }

    /// Connects like [`Running::channel`], for a client with these limits.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Running::channel`].
    ///
    /// # Cancel safety
    ///
    /// Safe, like [`Running::channel`].
    pub async fn channel_under(&self, limits: Limits) -> Result<Channel, Failure> {
        let Rules { settings, rdma } = self.client_rules.clone();
        let rules = Rules { settings: settings.changed(|it| it.limits = limits), rdma };
        let channel = connect(&self.path, &self.address, &rules).await?;
        self.check_transport(&channel)?;
        Ok(channel)
    }

    /// Connects like [`Running::channel`], for a client with this keepalive.
    pub(crate) async fn channel_kept_alive(
        &self,
        keepalive: Keepalive,
    ) -> Result<Channel, Failure> {
        let Rules { settings, rdma } = self.client_rules.clone();
        let rules = Rules { settings: settings.changed(|it| it.keepalive = keepalive), rdma };
        let channel = connect(&self.path, &self.address, &rules).await?;
        self.check_transport(&channel)?;
        Ok(channel)
    }

    /// A stub over a new connection.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Running::channel`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe as [`Running::channel`] is.
    pub async fn stub(&self) -> Result<ProbeStub, Failure> {
        Ok(ProbeStub::new(self.channel().await?))
    }

    /// Checks that the channel's connection runs over the transport under test.
    ///
    /// # Errors
    ///
    /// Returns an error if it does not, or if there is no connection.
    #[track_caller]
    pub fn check_transport(&self, channel: &Channel) -> Result<(), Failure> {
        let expected = self.path.name();
        let (found, fallback) = match channel.info() {
            Some(info) if info.transport == expected && info.fallback.is_none() => {
                return self.check_rkey_scope();
            }
            Some(info) => (info.transport.to_owned(), info.fallback),
            None => ("nothing".to_owned(), None),
        };
        Err(Failure::new(Cause::Transport { expected, found, fallback }))
    }

    /// Checks that the keys of both sides reach as far as the path under test says.
    #[track_caller]
    fn check_rkey_scope(&self) -> Result<(), Failure> {
        let Some(expected) = self.path.rkey_scope() else { return Ok(()) };
        for side in [&self.client_rules, &self.server_rules] {
            let found: Vec<_> = side.rdma.lanes().iter().map(|lane| lane.rkey_scope).collect();
            if found.is_empty() || found.iter().any(|scope| *scope != expected) {
                return Err(Failure::new(Cause::RkeyScope { expected, found }));
            }
        }
        Ok(())
    }

    /// Returns the server's view of its connections.
    #[must_use]
    pub fn connections(&self) -> Vec<ConnectionInfo> {
        self.server.connections()
    }

    /// The next event of a handler.
    ///
    /// # Errors
    ///
    /// Returns an error if there is none in time.
    ///
    /// # Cancel safety
    ///
    /// Cancelled, no event is lost.
    pub async fn event(&mut self) -> Result<WatchEvent, Failure> {
        let event = tokio::time::timeout(self.limit, self.watch.next()).await;
        let timed_out = || self.timed_out("an event of a handler");
        event.ok().flatten().ok_or_else(timed_out)
    }

    /// The events of handlers, and the gate.
    pub fn watch(&mut self) -> &mut Watch {
        &mut self.watch
    }

    /// Waits for something that is announced.
    pub(crate) async fn within<T>(
        &self,
        what: &'static str,
        future: impl Future<Output = T>,
    ) -> Result<T, Failure> {
        let result = tokio::time::timeout(self.limit, future).await;
        result.map_err(|_| self.timed_out(what))
    }

    /// Waits for a condition that nothing announces.
    ///
    /// # Errors
    ///
    /// Returns an error if it does not hold in time.
    ///
    /// # Cancel safety
    ///
    /// Cancelling loses nothing.
    pub async fn until(
        &self,
        what: &'static str,
        holds: impl Fn(&Self) -> bool,
    ) -> Result<(), Failure> {
        let looking = async {
            while !holds(self) {
                tokio::time::sleep(LOOK_INTERVAL).await;
            }
        };
        self.within(what, looking).await
    }

    /// Tells the server to refuse new calls and to end once those in flight have.
    pub(crate) fn shut_down(&mut self) {
        if let Some(shutdown) = self.shutdown.take() {
            // A server that has ended already needs no telling.
            let _ = shutdown.send(());
        }
    }

    /// Stops polling the server.
    pub(crate) fn abort(&self) {
        self.serving.abort();
    }

    /// Waits until the server has ended after [`Running::shut_down`].
    pub(crate) async fn stopped(&mut self) -> Result<(), Failure> {
        match tokio::time::timeout(self.limit, &mut self.serving).await {
            Ok(ended) => Ok(ended??),
            Err(_) => Err(self.timed_out("the end of the server")),
        }
    }

    /// Starts another server on the address of one that has stopped.
    pub(crate) async fn start_again(&mut self, harness: &Harness) -> Result<(), Failure> {
        let again = Self::start(&self.address, self.server_rules.clone(), harness).await?;
        // The clients are those of before.
        *self = Self { client_rules: self.client_rules.clone(), ..again };
        Ok(())
    }

    fn timed_out(&self, what: &'static str) -> Failure {
        Failure::new(Cause::TimedOut { what, seconds: self.limit.as_secs() })
    }
}
