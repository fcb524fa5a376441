//! Where a server under test listens, and how its clients get there: at an address, or by byte
//! streams of the suite's own.

use std::io;

use farcall::server::{Listen, ListenerSettings, StreamListener};
use farcall::{Address, Channel, Config, Endpoint};
use futures::future::BoxFuture;
use futures::stream::unfold;
use rpc_core::connect::Bootstrap;
use tokio::net::UnixStream;
use tower::ServiceExt as _;

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

/// A channel to `address`, connected over `path`.
pub(crate) async fn connect(
    path: &Path,
    address: &str,
    config: &Config,
) -> Result<Channel, Failure> {
    let builder = Channel::builder(address)?.config(config);
    let Path::Stream = path else { return Ok(builder.connect().await?) };
    let Address::Unix(name) = address.parse()? else { return Ok(builder.connect().await?) };
    // Boxed, the socket is a byte stream.
    let channel = builder.connect_with_connector(move || {
        let name = name.clone();
        async move { Ok(Box::new(UnixStream::connect(name).await?)) }
    });
    channel.clone().ready().await?;
    Ok(channel)
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
