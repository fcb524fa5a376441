//! The place of a server under test, and its clients' way there: an address, or byte streams of the
//! suite's own.

use std::io;

use farcall::{Address, Channel, Server};
use futures::future::BoxFuture;
use futures::stream::unfold;
use rpc_core::connect::Bootstrap;
use rpc_core::server::{Listen, Offers};
use rpc_transport_tcp::StreamListener;
use tokio::net::UnixStream;
use tower::ServiceExt as _;

use crate::certificates::certificates;
use crate::harness::Rules;
use crate::{Failure, Harness, Path};

/// A listening address.
#[derive(Debug)]
pub(crate) struct Place {
    address: Address,
    listener: Listener,
}

#[derive(Debug)]
enum Listener {
    Address(Box<dyn Listen>),
    Streams(StreamListener),
}

impl Place {
    /// Listens on `address` for `path`.
    pub(crate) async fn bind(path: &Path, address: &str, rules: &Rules) -> Result<Self, Failure> {
        let Rules { settings, rdma } = rules;
        let mut builder = settings.server(Server::builder()).rdma(rdma);
        if *path == Path::Tls {
            builder = builder.tls(&certificates().server);
        }
        let listener = builder.bind(address).await?;
        let address = listener.local_address().clone();
        let accepting = listener.into_incoming();
        let listener = match path {
            Path::Stream => Listener::Streams(streams(accepting)),
            _ => Listener::Address(Box::new(accepting)),
        };
        Ok(Self { address, listener })
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }
}

impl Harness {
    /// A place to listen on, and its address.
    pub(crate) async fn place(&self) -> Result<(Place, String), Failure> {
        let place = Place::bind(&self.path, &self.path.address(), &self.rules()).await?;
        let address = place.address().to_string();
        Ok((place, address))
    }
}

/// A channel to `address`, connected over `path`.
pub(crate) async fn connect(path: &Path, address: &str, rules: &Rules) -> Result<Channel, Failure> {
    let address = match path {
        Path::GrpcToPort => &*address.replacen("tcp://", "grpc://", 1),
        _ => address,
    };
    let builder = rules.settings.channel(Channel::builder(address)?);
    let mut builder = builder.rdma(&rules.rdma);
    if *path == Path::Tls {
        builder = builder.tls(&certificates().client);
    }
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

/// Boxes the streams of `listener`, which hides that they are sockets.
fn streams(listener: impl Listen) -> StreamListener {
    let offers = listener.offers();
    let accepted = unfold(listener, |mut listener| async {
        let accepted: io::Result<Box<dyn Bootstrap>> = listener.accept().await.transpose()?;
        Some((accepted, listener))
    });
    StreamListener::new(accepted).with_offers(offers)
}

impl Listen for Place {
    fn accept(&mut self) -> BoxFuture<'_, io::Result<Option<Box<dyn Bootstrap>>>> {
        match &mut self.listener {
            Listener::Address(listener) => listener.accept(),
            Listener::Streams(streams) => streams.accept(),
        }
    }

    fn offers(&self) -> Offers {
        match &self.listener {
            Listener::Address(listener) => listener.offers(),
            Listener::Streams(streams) => streams.offers(),
        }
    }
}
