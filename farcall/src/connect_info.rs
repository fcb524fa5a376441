//! The connection as tonic's handlers look for it.

use std::sync::Arc;

use rpc_core::Extensions;
use rpc_core::server::PeerInfo;
use tonic::transport::server::{TcpConnectInfo, UdsConnectInfo};

/// Makes `request.remote_addr()` and `request.local_addr()` of tonic work in handlers, and puts
/// tonic's [`TcpConnectInfo`] or [`UdsConnectInfo`] among the extensions of requests; for
/// [`ServerBuilder::peer_extensions`](crate::ServerBuilder::peer_extensions).
///
/// It costs three allocations a call, which [`PeerInfo::current`] does not. Where a connection
/// has no addresses, inside a process and on Unix sockets, both stay `None`, as with tonic. The
/// peer's address in [`UdsConnectInfo`] is unnamed, as that of any client is which does not bind
/// its socket.
///
/// # Examples
///
/// ```
/// let builder = farcall::Server::builder().peer_extensions(farcall::tonic_connect_info);
/// # drop(builder);
/// ```
pub fn tonic_connect_info(peer: &PeerInfo, extensions: &mut Extensions) {
    if peer.addresses.unix.is_some() {
        let peer_addr = std::os::unix::net::SocketAddr::from_pathname("").ok();
        let peer_addr = peer_addr.map(|unnamed| Arc::new(unnamed.into()));
        extensions.insert(UdsConnectInfo { peer_addr, peer_cred: peer.addresses.credentials });
        return;
    }
    let (local_addr, remote_addr) = (peer.addresses.local, peer.addresses.peer);
    extensions.insert(TcpConnectInfo { local_addr, remote_addr });
}
