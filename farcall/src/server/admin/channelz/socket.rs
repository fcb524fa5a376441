//! Connections as sockets of channelz.

use std::net::{IpAddr, SocketAddr};

use rpc_core::server::OpenConnectionInfo;
use rpc_core::transport::Addresses;

use super::messages::{
    Address, AddressKind, OtherName, Security, SecurityModel, Socket, SocketData, SocketOption,
    SocketRef, TcpAddress, Tls, UnixAddress,
};
use super::signed;
use crate::ConnectionInfo;

/// Returns a connection of the server.
pub(super) fn server_socket(
    name: SocketRef,
    open: &OpenConnectionInfo,
    has_options: bool,
) -> Socket {
    let mut socket = socket(name, &open.info, has_options);
    let data = socket.data.get_or_insert_default();
    data.streams_started = signed(open.started);
    if has_options {
        let outbound = open.outbound;
        let figures = [
            ("memory_held", Some(open.memory_held)),
            ("queued_bytes", outbound.queued_bytes),
            ("window_bytes", outbound.window_bytes),
            ("credits", outbound.credits.map(u64::from)),
        ];
        let known = figures.into_iter().filter_map(|(name, value)| Some((name, value?)));
        data.option.extend(known.map(|(name, value)| option(name, &value)));
    }
    socket
}

/// Returns a connection of a channel. Calls on it are counted nowhere.
pub(super) fn client_socket(name: SocketRef, info: &ConnectionInfo, has_options: bool) -> Socket {
    socket(name, info, has_options)
}

fn socket(name: SocketRef, info: &ConnectionInfo, has_options: bool) -> Socket {
    let addresses = &info.addresses;
    let identity = addresses.identity().map(ToString::to_string);
    let options = if has_options { options(info) } else { Vec::new() };
    Socket {
        r#ref: Some(name),
        data: Some(SocketData { streams_started: 0, option: options }),
        local: address(addresses, addresses.local),
        remote: address(addresses, addresses.peer),
        security: security(info),
        remote_name: identity.unwrap_or_default(),
    }
}

fn option(name: &str, value: &impl ToString) -> SocketOption {
    SocketOption { name: name.to_owned(), value: value.to_string() }
}

/// Returns the path and the counts, which channelz has no fields for.
fn options(info: &ConnectionInfo) -> Vec<SocketOption> {
    let mut options = vec![option("transport", &info.transport)];
    options.extend(info.fallback.iter().map(|reason| option("fallback", reason)));
    options.push(option("calls_in_flight", &info.calls_in_flight));
    options.push(option("sent_bytes", &info.stats.sent_bytes));
    options.push(option("received_bytes", &info.stats.received_bytes));
    options
}

/// Returns one end of a connection.
fn address(addresses: &Addresses, end: Option<SocketAddr>) -> Option<Address> {
    let other = |name: &str| AddressKind::Other(OtherName { name: name.to_owned() });
    let kind = match (&addresses.unix, &addresses.stream, end) {
        (Some(path), ..) => AddressKind::Unix(UnixAddress { filename: path.clone() }),
        (None, _, Some(end)) => AddressKind::Tcp(TcpAddress {
            ip_address: match end.ip().to_canonical() {
                IpAddr::V4(ip) => ip.octets().to_vec(),
                IpAddr::V6(ip) => ip.octets().to_vec(),
            },
            port: end.port().into(),
        }),
        (None, Some(name), None) => other(name),
        (None, None, None) if addresses.local.or(addresses.peer).is_none() => other("in process"),
        (None, None, None) => return None,
    };
    Some(Address { address: Some(kind) })
}

/// Returns the security of a connection; none without TLS.
fn security(info: &ConnectionInfo) -> Option<Security> {
    info.addresses.tls.as_ref()?;
    let identity = info.addresses.identity();
    let certificate = identity.map(|identity| identity.certificate().to_vec());
    let model = match info.is_upgraded {
        // TLS has proven who the peer is, and does not protect what moves by RDMA.
        true => SecurityModel::Other(OtherName {
            name: "TLS in the handshake, no encryption over RDMA".to_owned(),
        }),
        false => SecurityModel::Tls(Tls { remote_certificate: certificate.unwrap_or_default() }),
    };
    Some(Security { model: Some(model) })
}
