//! An in-process service, and a channel to it.

use std::time::Duration;

use rpc_core::client::CallRules;
use rpc_core::client::ClientConfig;
use rpc_core::inproc::{InprocConnector, InprocListener};
use rpc_core::server::{ServerParts, ServerSettings};
use rpc_core::{Channel, Service};

/// Serves `service` in this process under `name` until the test ends.
pub(crate) fn serve(name: &str, service: impl Service) -> Channel {
    let listener = InprocListener::bind(name).expect("every test has its own name");
    let server = ServerParts::default().add_service(service).build(ServerSettings::default());
    tokio::spawn(async move { server.serve(listener).await });
    let channel = Channel::new(InprocConnector::new(name, ClientConfig::default()));
    let timeout = Some(Duration::from_secs(10));
    channel.with_rules(CallRules { timeout, ..CallRules::DEFAULT })
}
