//! The server's role: a process that serves a ledger until it is told to shut down, or killed.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use farcall::tls::{ServerTls, ServerTlsConfig};
use farcall::{Channel, Server};
use farcall_etcd::EtcdRegistration;
use tokio::runtime::Handle;

use super::certificates::{CA, CERT, KEY};
use super::ledger::Ledger;
use super::registry::{PREFIX, TTL_SECONDS};
use crate::RigError;
use crate::conductor::role::{Farewell, Serving, answer_lines, misunderstood};
use farcall_suite::Failure;

/// By which a server is told to read its certificates again.
pub(super) const RELOAD: &str = "reload";

/// The server's answer after a reload.
pub(super) const RELOADED: &str = "reloaded";

/// Drain timeout of a server that is told to stop.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// The plan of a server.
#[derive(Debug, Clone, Args)]
pub struct ServePlan {
    /// Listening address.
    address: String,
    /// The file that it writes what it executes to.
    ledger: PathBuf,
    /// Duration of each call, in milliseconds.
    #[arg(long, default_value_t = 0)]
    delay_ms: u64,
    /// The etcd in which it registers.
    #[arg(long)]
    etcd: Option<String>,
    /// The folder of its certificate and key.
    #[arg(long)]
    tls: Option<PathBuf>,
    /// Requires certificates of the authority in that folder.
    #[arg(long, requires = "tls")]
    mutual: bool,
}

impl ServePlan {
    /// Registers the server that listens at `local`.
    async fn register(&self, local: String) -> Result<Option<EtcdRegistration>, RigError> {
        let Some(etcd) = &self.etcd else { return Ok(None) };
        let builder = Channel::builder(etcd.as_str()).map_err(Failure::from)?;
        // etcd may still be starting.
        let channel = builder.wait_for_ready(true).connect_lazy();
        let ttl = Duration::from_secs(TTL_SECONDS);
        let entry = EtcdRegistration::new(channel, PREFIX, local, ttl).await;
        Ok(Some(entry.map_err(Failure::from)?))
    }

    fn tls(&self) -> Result<Option<ServerTls>, RigError> {
        let Some(folder) = &self.tls else { return Ok(None) };
        let config = ServerTlsConfig::new(folder.join(CERT), folder.join(KEY));
        let config = if self.mutual { config.with_client_ca(folder.join(CA)) } else { config };
        Ok(Some(ServerTls::new(config)?))
    }
}

/// Serves, and prints where; reads its certificates again at `reload`, goes in order at
/// `shutdown`, and goes at once when the standard input ends.
///
/// # Errors
///
/// Returns an error if it cannot listen there.
pub fn serve(runtime: &Handle, plan: &ServePlan) -> Result<(), RigError> {
    let tls = plan.tls()?;
    let ledger = Ledger::open(&plan.ledger, Duration::from_millis(plan.delay_ms))?;
    let mut builder = Server::builder().add_service(ledger).drain_timeout(DRAIN_TIMEOUT);
    if let Some(tls) = &tls {
        builder = builder.tls(tls);
    }
    let listener = runtime.block_on(builder.bind(plan.address.as_str())).map_err(Failure::from)?;
    let local = listener.local_address().to_string();
    let entry = runtime.block_on(plan.register(local.clone()))?;
    println!("{local}");
    let serving = Serving::start(runtime, listener);
    let farewell = answer_lines(|text| match (text, &tls) {
        (RELOAD, Some(tls)) => {
            Ok(tls.reload().map_or_else(|error| error.to_string(), |()| RELOADED.to_owned()))
        }
        (other, _) => Err(misunderstood(other)),
    })?;
    // First, so that no new client comes.
    if farewell == Farewell::Shutdown
        && let Some(entry) = entry
    {
        // It goes by itself where etcd is away.
        let _ = runtime.block_on(entry.withdraw());
    }
    serving.end(runtime, farewell)
}
