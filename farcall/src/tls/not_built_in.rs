//! TLS where farcall is built without its feature `tls`: there are no values of its types.

use std::sync::Arc;

use rpc_core::server::OtherProtocol;
use rpc_transport_tcp::{TcpConnector, TcpListener};

/// Never made.
#[derive(Debug, Clone)]
pub(crate) enum ServerTls {}

/// Never made.
#[derive(Debug, Clone)]
pub(crate) enum ClientTls {}

/// The listener as it is.
pub(crate) fn listener(
    listener: TcpListener,
    tls: Option<ServerTls>,
    _: &[Arc<dyn OtherProtocol>],
) -> TcpListener {
    match tls {
        Some(tls) => match tls {},
        None => listener,
    }
}

/// The connector as it is.
pub(crate) fn connector(
    connector: TcpConnector,
    tls: Option<&ClientTls>,
    _: Option<&str>,
) -> TcpConnector {
    match tls {
        Some(tls) => match *tls {},
        None => connector,
    }
}

/// The connector as it is.
#[cfg(feature = "grpc")]
pub(crate) fn for_grpc(connector: TcpConnector) -> TcpConnector {
    connector
}
