//! TCP streams for tests of the connector.

use std::io;

use futures::future::BoxFuture;
use rpc_core::client::{ClientConfig, OpenStream};
use rpc_core::connect::Bootstrap;
use tokio::net::TcpStream;

use super::{GrpcConnector, Scheme};
use crate::test_stream::Stream;

/// Returns a connector over TCP.
pub(super) fn connector(authority: String, config: ClientConfig) -> GrpcConnector {
    GrpcConnector::new(Scheme::Plain, authority.clone(), Opener(authority), config)
}

#[derive(Debug)]
struct Opener(String);

impl OpenStream for Opener {
    fn open_stream(&self) -> BoxFuture<'_, io::Result<Box<dyn Bootstrap>>> {
        Box::pin(async {
            let stream = TcpStream::connect(&self.0).await?;
            Ok(Box::new(Stream(stream)) as Box<dyn Bootstrap>)
        })
    }
}
