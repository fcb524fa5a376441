//! `ServerConnection`: a server session, its transport type erased.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;

use super::router::Router;
use crate::connect::{ConnectionInfo, Fallback};
use crate::limits::log::LogLimit;
use crate::limits::memory::MemoryShare;
use crate::limits::quota::PeerKey;
use crate::limits::shared::LimitShare;
use crate::policy::keepalive::Traffic;
use crate::policy::lifetime::CallCounts;
use crate::policy::progress::Flows;
use crate::transport::{Addresses, CloseReason, Outbound};
use crate::{Limits, Negotiated};

/// The parts that a server's session starts with.
#[derive(Debug)]
pub struct ServerSetup {
    /// Limits of this side.
    pub limits: Limits,
    /// Limits of the client.
    pub peer_limits: Limits,
    /// Agreement on compressed messages.
    pub compression: Negotiated,
    /// The connection's two ends.
    pub addresses: Addresses,
    /// Why the connection did not move to an upgraded path.
    pub fallback: Option<Fallback>,
    /// True if the connection moved to an upgraded path.
    pub is_upgraded: bool,
    pub(crate) router: Arc<Router>,
    pub(crate) calls: LimitShare<PeerKey>,
    pub(crate) memory: MemoryShare,
    pub(crate) log: LogLimit,
    /// From which length on responses are compressed, by method id, where the client accepts it;
    /// empty where `compression` says it for all.
    pub(crate) compress_from: Arc<[u32]>,
}

/// The server's end of one connection.
pub trait ServerConnection: fmt::Debug + Send + Sync {
    /// Starts receiving. Called once, inside a tokio runtime, after the connection is in the
    /// server's list, where its first call may look it up.
    fn start(&self);

    /// Waits until the connection has ended.
    ///
    /// # Cancel safety
    ///
    /// Cancelling loses nothing.
    fn closed(&self) -> BoxFuture<'_, ()>;

    /// Refuses new calls from now on, and waits until those in flight have ended.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe: new calls stay refused.
    fn drained(&self) -> BoxFuture<'_, ()>;

    /// Refuses new calls from now on, and tells the client to make them elsewhere.
    fn go_away(&self);

    /// Sends a ping.
    fn ping(&self, number: u64);

    /// Returns the sent and received counts so far.
    fn traffic(&self) -> Traffic;

    /// Returns true if something has arrived that this side has not read.
    fn has_unread(&self) -> bool;

    /// Returns the bytes that wait in either direction, and the bytes that have moved.
    fn flows(&self) -> Flows;

    /// Returns the bytes that wait on this side, and the room that the client has.
    fn outbound(&self) -> Outbound {
        Outbound::default()
    }

    /// Returns the bytes sent and received where the session's transport is not the network's, and
    /// counts none.
    fn network_bytes(&self) -> Option<(u64, u64)> {
        None
    }

    /// Returns the numbers of started calls and of calls in flight.
    fn calls(&self) -> CallCounts;

    /// Returns true if every answer has left this side.
    fn is_flushed(&self) -> bool;

    /// Ends the connection at once, for a client that is gone; handlers of calls in flight are
    /// dropped.
    fn abort(&self, reason: CloseReason);

    /// Ends the connection; handlers of calls in flight are dropped.
    fn close(&self);

    /// Returns the state of the connection.
    fn info(&self) -> ConnectionInfo;
}
