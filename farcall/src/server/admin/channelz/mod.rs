//! The service `grpc.channelz.v1.Channelz`, for grpcdebug and other tools of gRPC.
//!
//! There is one server: this one. Its sockets are its open connections. Channels are those of the
//! program that [`Admin`](super::Admin) has. Everything is read when it is asked for.

mod ids;
pub mod messages;
mod socket;

use std::sync::Arc;

use rpc_core::server::{HandlerFuture, OpenConnectionInfo, ServerCall};
use rpc_core::{Service, ServiceDescriptor, Status};
use tonic::{Request, Response};

pub use self::messages::CHANNELZ;

use self::ids::{Kind, id, subchannel_number};
use self::messages::{
    Channel, ChannelConnectivityState, ChannelData, ChannelRef, GetChannelRequest,
    GetChannelResponse, GetServerRequest, GetServerResponse, GetServerSocketsRequest,
    GetServerSocketsResponse, GetServersRequest, GetServersResponse, GetSocketRequest,
    GetSocketResponse, GetSubchannelRequest, GetSubchannelResponse, GetTopChannelsRequest,
    GetTopChannelsResponse, Server, ServerData, ServerRef, Socket, SocketRef, Subchannel,
    SubchannelRef,
};
use super::AdminState;
use crate::balance::{Connectivity, EndpointStatus};

/// Most sockets of an answer: 100 KB.
const SOCKETS_MAX: usize = 1000;

/// Most channels of an answer: with all their subchannels less than 1 MB.
const CHANNELS_MAX: usize = 10;

/// Most subchannels of a channel.
const SUBCHANNELS_MAX: usize = 1000;

/// Answers calls of channelz.
pub(crate) struct ChannelzService(pub(crate) Arc<AdminState>);

impl Service for ChannelzService {
    fn descriptor(&self) -> &'static ServiceDescriptor {
        &CHANNELZ
    }

    fn call(&self, method: usize, call: ServerCall) -> HandlerFuture {
        let state = Arc::clone(&self.0);
        match method {
            0 => answer(call, move |request| Ok(state.top_channels(request))),
            1 => answer(call, move |request| state.servers(request)),
            2 => answer(call, move |request| state.server(request)),
            3 => answer(call, move |request| state.server_sockets(request)),
            4 => answer(call, move |request| state.channel(request)),
            5 => answer(call, move |request| state.subchannel(request)),
            _ => answer(call, move |request| state.socket(request)),
        }
    }
}

/// Answers a call at once.
fn answer<M, R>(
    call: ServerCall,
    read: impl FnOnce(&M) -> Result<R, Status> + Send + 'static,
) -> HandlerFuture
where
    M: prost::Message + Default + 'static,
    R: prost::Message + Default + 'static,
{
    call.unary(|request: Request<M>| async move { read(request.get_ref()).map(Response::new) })
}

/// The part of a list that a request asks for.
struct Page<T> {
    items: Vec<T>,
    /// True if nothing is behind it.
    is_last: bool,
}

impl<T> Page<T> {
    /// Returns the items whose id is at least `start`, by id: `wanted` of them, and not more than
    /// `max`. Without a number that is wanted, these are `max`.
    fn new(all: Vec<T>, id: impl Fn(&T) -> i64, start: i64, wanted: i64, max: usize) -> Self {
        let mut items = all;
        items.retain(|item| id(item) >= start);
        items.sort_by_key(|item| id(item));
        let wanted = usize::try_from(wanted).unwrap_or_default();
        let count = if wanted == 0 { max } else { wanted.min(max) };
        let is_last = items.len() <= count;
        items.truncate(count);
        Self { items, is_last }
    }
}

/// Returns the status of a request for something that is not there, or no longer.
fn not_found(what: &str, id: i64) -> Status {
    Status::not_found(format!("there is no {what} with the id {id}; it may have ended"))
}

fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn socket_id(open: &OpenConnectionInfo) -> i64 {
    id(Kind::Socket, open.number)
}

impl AdminState {
    /// Returns the server, while it is there.
    fn core(&self) -> Option<rpc_core::Server> {
        self.view.get()?.core.upgrade()
    }

    /// Returns the core of the server that has the id.
    fn core_with(&self, server_id: i64) -> Result<rpc_core::Server, Status> {
        let is_it = server_id == id(Kind::Server, 0);
        self.core().filter(|_| is_it).ok_or_else(|| not_found("server", server_id))
    }

    fn servers(&self, request: &GetServersRequest) -> Result<GetServersResponse, Status> {
        let is_asked_for = request.start_server_id <= id(Kind::Server, 0);
        let core = self.core().filter(|_| is_asked_for);
        Ok(GetServersResponse { server: core.iter().map(server).collect(), end: true })
    }

    fn server(&self, request: &GetServerRequest) -> Result<GetServerResponse, Status> {
        let core = self.core_with(request.server_id)?;
        Ok(GetServerResponse { server: Some(server(&core)) })
    }

    fn server_sockets(
        &self,
        request: &GetServerSocketsRequest,
    ) -> Result<GetServerSocketsResponse, Status> {
        let open = self.core_with(request.server_id)?.open_connections();
        let (start, wanted) = (request.start_socket_id, request.max_results);
        let Page { items, is_last } = Page::new(open, socket_id, start, wanted, SOCKETS_MAX);
        let refs = items.iter().map(|open| socket_ref(socket_id(open), &open.info));
        Ok(GetServerSocketsResponse { socket_ref: refs.collect(), end: is_last })
    }

    fn socket(&self, request: &GetSocketRequest) -> Result<GetSocketResponse, Status> {
        let wanted = request.socket_id;
        let has_options = !request.summary;
        let open = self.core().map(|core| core.open_connections()).unwrap_or_default();
        let accepted = || {
            let open = open.iter().find(|open| socket_id(open) == wanted)?;
            Some(socket::server_socket(socket_ref(wanted, &open.info), open, has_options))
        };
        let opened = || {
            let (number, status) = self.endpoint(Kind::SubchannelSocket, wanted)?;
            let info = status.info.as_ref()?;
            let socket_id = id(Kind::SubchannelSocket, number);
            Some(socket::client_socket(socket_ref(socket_id, info), info, has_options))
        };
        let found: Option<Socket> = accepted().or_else(opened);
        let socket = found.ok_or_else(|| not_found("socket", wanted))?;
        Ok(GetSocketResponse { socket: Some(socket) })
    }

    /// Returns a channel of the program as channelz has it.
    fn channel_at(&self, index: usize) -> Option<Channel> {
        let (name, channel) = self.admin.channels.get(index)?;
        let endpoints = channel.endpoints();
        let refs = endpoints.iter().take(SUBCHANNELS_MAX).map(|it| subchannel_ref(index, it));
        Some(Channel {
            r#ref: Some(ChannelRef {
                channel_id: id(Kind::Channel, index as u64),
                name: name.clone(),
            }),
            data: Some(channel_data(channel.connectivity(), name)),
            subchannel_ref: refs.collect(),
        })
    }

    fn top_channels(&self, request: &GetTopChannelsRequest) -> GetTopChannelsResponse {
        let indices = (0..self.admin.channels.len()).collect();
        let channel_id = |index: &usize| id(Kind::Channel, *index as u64);
        let (start, wanted) = (request.start_channel_id, request.max_results);
        let page = Page::new(indices, channel_id, start, wanted, CHANNELS_MAX);
        let channel = page.items.into_iter().filter_map(|index| self.channel_at(index));
        GetTopChannelsResponse { channel: channel.collect(), end: page.is_last }
    }

    fn channel(&self, request: &GetChannelRequest) -> Result<GetChannelResponse, Status> {
        let wanted = request.channel_id;
        let count = self.admin.channels.len();
        let index = (0..count).find(|index| id(Kind::Channel, *index as u64) == wanted);
        let channel = index.and_then(|index| self.channel_at(index));
        let channel = channel.ok_or_else(|| not_found("channel", wanted))?;
        Ok(GetChannelResponse { channel: Some(channel) })
    }

    fn subchannel(&self, request: &GetSubchannelRequest) -> Result<GetSubchannelResponse, Status> {
        let wanted = request.subchannel_id;
        let found = self.endpoint(Kind::Subchannel, wanted);
        let (number, status) = found.ok_or_else(|| not_found("subchannel", wanted))?;
        let name = status.endpoint.address.to_string();
        let data = channel_data(status.connectivity, &name);
        let socket_id = id(Kind::SubchannelSocket, number);
        let sockets = status.info.iter().map(|info| socket_ref(socket_id, info));
        let subchannel = Subchannel {
            r#ref: Some(SubchannelRef { subchannel_id: wanted, name }),
            data: Some(data),
            socket_ref: sockets.collect(),
        };
        Ok(GetSubchannelResponse { subchannel: Some(subchannel) })
    }

    /// Returns the number and the state of the endpoint that has the id of this kind.
    fn endpoint(&self, kind: Kind, wanted: i64) -> Option<(u64, EndpointStatus)> {
        self.admin.channels.iter().enumerate().find_map(|(index, (_, channel))| {
            let number = |status: &EndpointStatus| number(index, status);
            let mut all = channel.endpoints().into_iter().map(|status| (number(&status), status));
            all.find(|(number, _)| id(kind, *number) == wanted)
        })
    }
}

fn server(core: &rpc_core::Server) -> Server {
    let methods = core.method_calls().unwrap_or_default();
    let ended: u64 = methods.iter().map(rpc_core::server::MethodCalls::total).sum();
    let succeeded: u64 = methods.iter().map(|calls| calls.codes[0]).sum();
    Server {
        r#ref: Some(ServerRef { server_id: id(Kind::Server, 0), name: "farcall".to_owned() }),
        data: Some(ServerData {
            calls_started: signed(ended + core.calls_running()),
            calls_succeeded: signed(succeeded),
            calls_failed: signed(ended - succeeded),
        }),
    }
}

fn socket_ref(socket_id: i64, info: &crate::ConnectionInfo) -> SocketRef {
    SocketRef { socket_id, name: info.addresses.to_string() }
}

fn number(channel: usize, status: &EndpointStatus) -> u64 {
    subchannel_number(channel, &status.endpoint.address, status.connection)
}

fn subchannel_ref(channel: usize, status: &EndpointStatus) -> SubchannelRef {
    let subchannel_id = id(Kind::Subchannel, number(channel, status));
    SubchannelRef { subchannel_id, name: status.endpoint.address.to_string() }
}

fn channel_data(connectivity: Connectivity, target: &str) -> ChannelData {
    let state = match connectivity {
        Connectivity::Idle => 1,
        Connectivity::Connecting => 2,
        Connectivity::Ready { .. } => 3,
        Connectivity::TransientFailure => 4,
    };
    ChannelData { state: Some(ChannelConnectivityState { state }), target: target.to_owned() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn pages_have_each_item_once(count in 0_i64..50, wanted in -3_i64..9, max in 1_usize..9) {
            let all: Vec<i64> = (0..count).map(|index| index * 3 + 1).collect();
            let (mut seen, mut start) = (Vec::new(), i64::MIN);
            loop {
                let page = Page::new(all.clone(), |item| *item, start, wanted, max);
                prop_assert!(page.items.len() <= max);
                start = page.items.last().map_or(0, |last| last + 1);
                seen.extend(page.items);
                if page.is_last {
                    break;
                }
            }
            prop_assert_eq!(seen, all);
        }
    }
}
