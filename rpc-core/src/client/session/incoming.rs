//! The client session's handler of incoming frames.
//!
//! Everything here runs in the transport's task: an answer wakes its caller and nothing else.

use std::sync::Arc;

use bytes::Bytes;
use tonic::Status;

use crate::call::refusal;
use crate::calls::window::Counts;
use crate::client::Reply;
use crate::client::session::phase::Draining;
use crate::client::session::{Ended, Route, Session, State};
use crate::handoff::Handoff;
use crate::stream::{End, Inserted, Item};
use crate::transport::frames::{parse, received, take_apart};
use crate::transport::received::ReceivedMessage;
use crate::transport::{Admission, CloseReason, Delivery, Handler, Withheld};
use crate::wire::{FrameHeader, FrameKind, HEADER_LEN, ProtocolError};
use crate::{Explain, MayHaveExecuted};

impl Handler for Session {
    fn handle_announced(
        &self,
        prefix: &[u8; HEADER_LEN],
        len: u64,
    ) -> Result<Admission, ProtocolError> {
        let header = FrameHeader::parse(prefix)?;
        header.check_len(len)?;
        expect_answer(&header)?;
        self.core.settled.compression.check(&header)?;
        let mut state = self.state();
        // The call was given up, which the server could not know: no error, and no memory for the
        // rest.
        let Some(call) = state.calls.value(header.call) else { return Ok(Admission::Refuse) };
        if let Some(explain) = &call.explain {
            explain.announced();
        }
        let detacher = call.detacher().filter(|_| !header.is_deflated);
        let checked = self.core.check(&header);
        let counted =
            checked.and_then(|()| self.core.announce(&mut state.receive_budget, &header, len, ()));
        drop(state);
        match counted {
            Ok(()) => Ok(Admission::Accept { deadline: None, detacher }),
            Err(status) => {
                // Without the lock, which this takes.
                self.end(&header, status);
                Ok(Admission::Refuse)
            }
        }
    }

    fn handle_frame(
        &self,
        frame: Bytes,
        delivery: Delivery,
        handoff: &mut Handoff,
    ) -> Result<(), ProtocolError> {
        let header = parse(&frame, &delivery)?;
        if delivery.is_announced() {
            expect_answer(&header)?;
        }
        self.core.settled.compression.check(&header)?;
        // An answer wakes its caller. No user code runs here.
        handoff.woke();
        match header.kind {
            FrameKind::Response => self.handle_response(&header, frame, delivery),
            FrameKind::Headers | FrameKind::Messages => {
                self.handle_stream(&header, frame, &delivery)
            }
            FrameKind::Window => {
                self.handle_window(&header);
                Ok(())
            }
            FrameKind::Ping => self.core.handle_ping(&header),
            // Receiving it already counted as traffic.
            FrameKind::Pong => Ok(()),
            FrameKind::GoAway => {
                self.handle_go_away();
                Ok(())
            }
            kind @ (FrameKind::Request | FrameKind::Cancel | FrameKind::HalfClose) => {
                Err(unexpected(kind))
            }
        }
    }

    fn runs_user_code(&self) -> bool {
        false
    }

    fn handle_withheld(
        &self,
        prefix: &[u8; HEADER_LEN],
        reason: Withheld,
    ) -> Result<(), ProtocolError> {
        let header = FrameHeader::parse(prefix)?;
        // First, whatever the reason: its memory no longer counts.
        self.state().receive_budget.withheld(header.frame_key());
        self.end(&header, refusal::withheld(reason));
        Ok(())
    }

    fn handle_closed(&self, reason: CloseReason) {
        let addresses = &self.core.settled.addresses;
        tracing::debug!(
            target: "farcall::path",
            transport = self.core.transport.name(), %addresses, %reason, "closed",
        );
        let ended: Vec<_> = self.leave_open(|state| {
            // In one lock section with the table: a call that is started later finds the phase, and
            // no call is left behind.
            let was_sent_away = state.phase.close(reason.clone());
            let status = || match was_sent_away {
                true => refusal::cut_short(&self.server, &reason),
                false => refusal::lost(&self.server, &reason),
            };
            let ids = state.calls.ids().into_iter();
            ids.filter_map(|id| state.fail(id, MayHaveExecuted::mark(status()))).collect()
        });
        self.ended.cancel();
        // Last: a caller that wakes up may repeat its call at once, and must find this session
        // closed.
        ended.into_iter().for_each(Ended::tell);
    }
}

impl State {
    /// Counts the first frame of an answer. A refusal is none: no handler has seen the call.
    fn count_answer(&mut self, header: &FrameHeader) {
        // Its sequence number among the frames of the answer.
        if header.argument == 0 && !header.is_not_executed {
            self.answered_count += 1;
        }
    }
}

impl Session {
    /// Starts no more calls here, and closes when those in flight have ended.
    fn handle_go_away(&self) {
        self.leave_open(|state| state.phase.drain(Draining::SentAway));
    }

    fn handle_window(&self, header: &FrameHeader) {
        let state = self.state();
        // Cloned out of the lock: the grant wakes the task that sends.
        let send_stream = state.calls.value(header.call).and_then(|call| call.send_stream.clone());
        drop(state);
        if let Some(send_stream) = send_stream {
            send_stream.handle_grant(Counts::from_wire(header.argument));
        }
    }

    #[inline(always)]
    fn handle_response(
        &self,
        header: &FrameHeader,
        frame: Bytes,
        delivery: Delivery,
    ) -> Result<(), ProtocolError> {
        // A limit that the answer breaks ends its call alone.
        let refused = self.core.check(header);
        let is_large = delivery.is_announced();
        let (block, message) = take_apart(header, frame);
        let mut state = self.state();
        received(&mut state.receive_budget, header, &delivery)?;
        let message = ReceivedMessage::new(message, delivery.into_tail());
        // The call may have been given up: then its response is dropped here.
        let Some(call) = state.calls.value_mut(header.call) else { return Ok(()) };
        let recv_stream = match &call.route {
            Route::Stream(recv_stream) => Arc::clone(recv_stream),
            Route::Waiting(_) | Route::Answered(_) => {
                if let Some(explain) = call.explain.take() {
                    self.explain_delivered(&explain, header, is_large);
                }
                let (code, is_not_executed) = (header.selector, header.is_not_executed);
                let is_deflated = header.is_deflated;
                let reply = Reply { code, block, message, is_deflated, is_not_executed };
                // A caller that gives up from now on finds no call in flight, and cancels nothing.
                let ended = state.answer(header.call, refused.map(|()| reply));
                state.count_answer(header);
                self.unlock(state);
                if let Some(ended) = ended {
                    ended.tell();
                }
                return Ok(());
            }
        };
        state.count_answer(header);
        drop(state);
        let text = "the server sent one message, but the method returns a stream";
        let fits = if message.is_empty() { Ok(()) } else { Err(refusal::other_kind(text)) };
        if let Err(status) = refused.and(fits) {
            self.end(header, status);
            return Ok(());
        }
        let is_not_executed = header.is_not_executed;
        let end = End::Outcome { code: header.selector, block, is_not_executed };
        // The end may come before messages that it overtook: the call stays in the table until the
        // last of them.
        if recv_stream.insert(header.argument, Item::End(end))? == Inserted::Complete {
            self.finish(header.call);
        }
        Ok(())
    }

    /// Marks the arrival of a stream's headers.
    fn explain_headers(&self, state: &State, header: &FrameHeader, delivery: &Delivery) {
        let call = state.calls.value(header.call);
        if let Some(explain) = call.and_then(|call| call.explain.as_ref()) {
            self.explain_delivered(explain, header, delivery.is_announced());
        }
    }

    /// Marks the arrival of an answer.
    fn explain_delivered(&self, explain: &Explain, header: &FrameHeader, is_large: bool) {
        let reply = self.explained(header.frame_len(), is_large);
        explain.delivered(reply, || self.copied_bytes());
    }

    fn handle_stream(
        &self,
        header: &FrameHeader,
        frame: Bytes,
        delivery: &Delivery,
    ) -> Result<(), ProtocolError> {
        let recv_stream = {
            let mut state = self.state();
            received(&mut state.receive_budget, header, delivery)?;
            match state.calls.value(header.call).map(|call| &call.route) {
                None => return Ok(()),
                Some(Route::Stream(recv_stream)) => {
                    let recv_stream = recv_stream.clone();
                    if header.kind == FrameKind::Headers {
                        self.explain_headers(&state, header, delivery);
                    }
                    state.count_answer(header);
                    Some(recv_stream)
                }
                Some(Route::Waiting(_) | Route::Answered(_)) => None,
            }
        };
        let Some(recv_stream) = recv_stream else {
            let text = "the server sent a stream, but the method returns one message";
            self.end(header, refusal::other_kind(text));
            return Ok(());
        };
        let (block, messages) = match self.core.take_stream_apart(header, frame) {
            Ok(parts) => parts,
            Err(status) => {
                self.end(header, status);
                return Ok(());
            }
        };
        let item = if header.kind == FrameKind::Headers {
            Item::Headers(block)
        } else if header.is_deflated {
            Item::Deflated(messages)
        } else {
            Item::Messages(messages)
        };
        if recv_stream.insert(header.argument, item)? == Inserted::Complete {
            self.finish(header.call);
        }
        Ok(())
    }

    /// Ends a call because of what this side cannot receive, and tells the server.
    fn end(&self, header: &FrameHeader, status: Status) {
        if header.kind == FrameKind::Response {
            // The server has ended the call already.
            let mut state = self.state();
            let ended = state.fail(header.call, status);
            self.unlock(state);
            if let Some(ended) = ended {
                ended.tell();
            }
        } else {
            // The server still works on the call, so a cancel goes out.
            self.fail(header.call, status);
        }
    }
}

fn expect_answer(header: &FrameHeader) -> Result<(), ProtocolError> {
    match header.kind {
        FrameKind::Response | FrameKind::Headers | FrameKind::Messages => Ok(()),
        kind @ (FrameKind::Request
        | FrameKind::Cancel
        | FrameKind::HalfClose
        | FrameKind::Window
        | FrameKind::Ping
        | FrameKind::Pong
        | FrameKind::GoAway) => Err(unexpected(kind)),
    }
}

fn unexpected(kind: FrameKind) -> ProtocolError {
    ProtocolError::UnexpectedFrame { kind, role: "server" }
}
