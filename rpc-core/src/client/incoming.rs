//! What a client's session does with what arrives.
//!
//! Everything here runs in the transport's task: an answer wakes its caller and nothing else.

use bytes::Bytes;
use tonic::Status;

use super::Reply;
use super::session::{InFlight, Route, Session};
use crate::calls::window::Counts;
use crate::frames::take_apart;
use crate::refusal;
use crate::stream::{End, Inserted, Item};
use crate::transport::{Admission, CloseReason, Handler, Transport, Withheld};
use crate::wire::{FrameHeader, FrameKind, HEADER_LEN, ProtocolError};

impl<T: Transport> Handler for Session<T> {
    fn handle_announced(
        &self,
        prefix: &[u8; HEADER_LEN],
        len: u64,
    ) -> Result<Admission, ProtocolError> {
        let header = FrameHeader::parse(prefix)?;
        header.check_len(len)?;
        expect_answer(&header)?;
        let mut state = self.state();
        if !state.calls.contains(header.call) {
            return Ok(Admission::Refuse);
        }
        let refusal = match refusal::check_incoming("response", &header, "client's", &self.limits) {
            Err(status) => status,
            Ok(()) => match state.receiving.announce(header.frame_key(), len) {
                Ok(()) => return Ok(Admission::Accept { deadline: None }),
                Err(over) => refusal::over_budget("response", len, "client's", over),
            },
        };
        drop(state);
        self.end(&header, refusal);
        Ok(Admission::Refuse)
    }

    fn handle_frame(&self, frame: Bytes) -> Result<(), ProtocolError> {
        let header = FrameHeader::parse_whole(&frame)?;
        match header.kind {
            FrameKind::Response => self.handle_response(&header, frame),
            FrameKind::Headers | FrameKind::Messages => self.handle_stream(&header, frame),
            FrameKind::Window => {
                let state = self.state();
                let outbound =
                    state.calls.value(header.call).and_then(|call| call.outbound.clone());
                drop(state);
                if let Some(outbound) = outbound {
                    outbound.handle_grant(Counts::from_wire(header.argument));
                }
                Ok(())
            }
            _ => expect_answer(&header),
        }
    }

    fn handle_withheld(
        &self,
        prefix: &[u8; HEADER_LEN],
        reason: Withheld,
    ) -> Result<(), ProtocolError> {
        let header = FrameHeader::parse(prefix)?;
        self.state().receiving.withheld(header.frame_key());
        self.end(&header, refusal::withheld(reason));
        Ok(())
    }

    fn handle_closed(&self, reason: CloseReason) {
        tracing::debug!(
            transport = self.transport.name(), addresses = %self.addresses, %reason, "closed",
        );
        let calls = {
            let mut state = self.state();
            state.closed = Some(reason.clone());
            state.calls.close()
        };
        self.permits.close();
        for InFlight { route, .. } in calls {
            route.fail(refusal::closed(&reason));
        }
    }
}

impl<T: Transport> Session<T> {
    fn handle_response(&self, header: &FrameHeader, frame: Bytes) -> Result<(), ProtocolError> {
        let (call, inbound) = {
            let mut state = self.state();
            state.receiving.arrived(header.frame_key(), frame.len())?;
            match state.calls.value(header.call).map(|call| &call.route) {
                // The call may have been given up: then its response is dropped here.
                None => return Ok(()),
                Some(Route::Stream(inbound)) => (None, Some(inbound.clone())),
                Some(Route::Reply(_)) => (state.calls.finish(header.call), None),
            }
        };
        let refused = refusal::check_incoming("response", header, "client's", &self.limits);
        let (block, message) = take_apart(header, frame);
        if let Some(inbound) = inbound {
            if let Err(status) = refused {
                self.end(header, status);
                return Ok(());
            }
            let end = End::Outcome { code: header.selector, block };
            if inbound.insert(header.argument, Item::End(end))? == Inserted::Complete {
                self.state().calls.finish(header.call);
            }
            return Ok(());
        }
        if let Some(InFlight { route: Route::Reply(sender), .. }) = call {
            let reply = refused.map(|()| Reply { code: header.selector, block, message });
            // The caller may have gone at this very moment.
            let _ = sender.send(reply);
        }
        Ok(())
    }

    fn handle_stream(&self, header: &FrameHeader, frame: Bytes) -> Result<(), ProtocolError> {
        let inbound = {
            let mut state = self.state();
            state.receiving.arrived(header.frame_key(), frame.len())?;
            match state.calls.value(header.call).map(|call| &call.route) {
                None => return Ok(()),
                Some(Route::Stream(inbound)) => inbound.clone(),
                Some(Route::Reply(_)) => return Err(unexpected(header.kind)),
            }
        };
        if let Err(status) = refusal::check_incoming("response", header, "client's", &self.limits) {
            self.end(header, status);
            return Ok(());
        }
        let (block, messages) = take_apart(header, frame);
        let item = match header.kind {
            FrameKind::Headers => Item::Headers(block),
            _ => Item::Messages(messages),
        };
        if inbound.insert(header.argument, item)? == Inserted::Complete {
            self.state().calls.finish(header.call);
        }
        Ok(())
    }

    /// Ends a call because of what this side cannot receive, and tells the server.
    fn end(&self, header: &FrameHeader, status: Status) {
        use super::Connection;
        if header.kind == FrameKind::Response {
            // The server has ended the call already.
            let ended = self.state().calls.finish(header.call);
            if let Some(InFlight { route, .. }) = ended {
                route.fail(status);
            }
        } else {
            self.fail(header.call, status);
        }
    }
}

fn expect_answer(header: &FrameHeader) -> Result<(), ProtocolError> {
    match header.kind {
        FrameKind::Response | FrameKind::Headers | FrameKind::Messages => Ok(()),
        kind => Err(unexpected(kind)),
    }
}

fn unexpected(kind: FrameKind) -> ProtocolError {
    ProtocolError::UnexpectedFrame { kind, role: "server" }
}
