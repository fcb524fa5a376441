//! Where a server under test listens: at an address, or on byte streams of the suite's own.

use std::io;

use farcall::server::{Listen, ListenerSettings, StreamListener};
use farcall::{Address, Config, Endpoint};
use futures::future::BoxFuture;
use futures::stream::unfold;
use rpc_core::connect::Bootstrap;

use crate::{Failure, Path};

/// A listening address.
#[derive(Debug)]
pub(crate) struct Place {
    address: Address,
    listener: Listener,
}

#[derive(Debug)]
enum Listener {
    Endpoint(Box<Endpoint>),
    Streams(StreamListener),
}

impl Place {
    /// Listens on `address` for `path`.
    pub(crate) async fn bind(path: &Path, address: &str, config: &Config) -> Result<Self, Failure> {
        let endpoint = farcall::Endpoint::bind_with(address, config).await?;
        let address = endpoint.address().clone();
        let listener = match path {
            Path::Stream => Listener::Streams(streams(endpoint)),
            _ => Listener::Endpoint(Box::new(endpoint)),
        };
        Ok(Self { address, listener })
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }
}

/// What `endpoint` accepts, without its being known for sockets: boxed, they are byte streams.
fn streams(endpoint: Endpoint) -> StreamListener {
    let settings = endpoint.settings();
    let accepted = unfold(endpoint, |mut endpoint| async {
        let accepted: io::Result<Box<dyn Bootstrap>> = endpoint.accept().await.transpose()?;
        Some((accepted, endpoint))
    });
    StreamListener::new(accepted).with_settings(settings)
}

impl Listen for Place {
    fn accept(&mut self) -> BoxFuture<'_, io::Result<Option<Box<dyn Bootstrap>>>> {
        match &mut self.listener {
            Listener::Endpoint(endpoint) => endpoint.accept(),
            Listener::Streams(streams) => streams.accept(),
        }
    }

    fn settings(&self) -> ListenerSettings {
        match &self.listener {
            Listener::Endpoint(endpoint) => endpoint.settings(),
            Listener::Streams(streams) => streams.settings(),
        }
    }
}
