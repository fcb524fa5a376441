//! The connection as tonic's handlers look for it.

use rpc_core::Extensions;
use rpc_core::server::{PeerExtensions, PeerInfo};
use tonic::transport::server::TcpConnectInfo;

/// Makes `request.remote_addr()` and `request.local_addr()` of tonic work in handlers; for
/// [`ServerBuilder::peer_extensions`](crate::ServerBuilder::peer_extensions).
///
/// It costs three allocations a call, which [`PeerInfo::current`] does not. Where a connection
/// has no addresses, inside a process and on Unix sockets, both stay `None`, as with tonic.
///
/// # Examples
///
/// ```
/// let builder = farcall::Server::builder().peer_extensions(farcall::tonic_connect_info());
/// # drop(builder);
/// ```
#[must_use]
pub fn tonic_connect_info() -> PeerExtensions {
    PeerExtensions::With(insert)
}

fn insert(peer: &PeerInfo, extensions: &mut Extensions) {
    let (local_addr, remote_addr) = (peer.local_addr(), peer.remote_addr());
    extensions.insert(TcpConnectInfo { local_addr, remote_addr });
}
