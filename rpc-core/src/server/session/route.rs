//! The way of a request to its method, as far as its header tells: the limits of its connection,
//! the method that it names, and whether its client may call that.

use std::sync::Arc;

use tonic::Status;

use crate::CallKind;
use crate::server::Service;
use crate::server::session::ServerSession;
use crate::wire::FrameHeader;

/// The method that serves a request.
pub(super) struct Route<'a> {
    pub(super) service: &'a Arc<dyn Service>,
    /// The method's index in its service.
    pub(super) method: usize,
    pub(super) kind: CallKind,
}

impl ServerSession {
    /// Checks a request that is announced. The session must not be locked, because a limit that is
    /// reached is logged.
    pub(super) fn check_request(&self, header: &FrameHeader) -> Result<(), Status> {
        self.check_limits(header)?;
        self.calls.check(1)?;
        self.allowed_route(header).map(drop)
    }

    /// Checks a request against the limits of its connection.
    pub(super) fn check_limits(&self, header: &FrameHeader) -> Result<(), Status> {
        self.core.check(header)?;
        // A client that keeps too much already gets nothing new.
        self.core.memory.check(0)
    }

    /// Returns the method that a request names, if its client may call it.
    pub(super) fn allowed_route(&self, header: &FrameHeader) -> Result<Route<'_>, Status> {
        let route = self.route(header)?;
        self.authorize(&route.service.descriptor().methods[route.method])?;
        Ok(route)
    }

    /// Returns the method that a request names, if it takes requests of that shape.
    fn route(&self, header: &FrameHeader) -> Result<Route<'_>, Status> {
        let Some((service, method)) = self.router.route(header.selector) else {
            return Err(Status::unimplemented("no such method"));
        };
        let kind = service.descriptor().methods[method].kind;
        // The two sides have different editions of the `.proto`, which is this call's affair.
        match (header.is_streaming, kind.has_request_stream()) {
            (true, false) => {
                Err(Status::internal("the client sent a stream where one message is needed"))
            }
            (false, true) => {
                Err(Status::internal("the client sent one message where a stream is needed"))
            }
            (true, true) | (false, false) => Ok(Route { service, method, kind }),
        }
    }
}
