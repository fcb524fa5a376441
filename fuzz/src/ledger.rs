//! Reads along what a session sends and is sent, and panics when the session breaks the protocol
//! that it holds its peer to.

use std::collections::HashMap;

use rpc_core::calls::window::{Counts, SendWindow, Window};
use rpc_core::wire::{FrameHeader, FrameKind, HEADER_LEN};

/// The calls of a connection, as its peer sees them.
#[derive(Debug)]
pub(crate) struct Ledger {
    /// Window of each side's streams.
    window: Window,
    calls: HashMap<u64, Call>,
}

/// A call, as far as it decides what its peer may send next.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View {
    /// The method's id.
    pub(crate) method: u16,
    /// The place of the peer's next frame.
    pub(crate) place: u64,
    /// Set when either side has ended the call.
    pub(crate) is_over: bool,
}

#[derive(Debug)]
struct Call {
    method: u16,
    is_over: bool,
    /// The place of the session's next frame.
    place: u64,
    /// The place of the peer's next frame.
    peer_place: u64,
    /// The session's send window.
    window: SendWindow,
    /// Messages that the peer has sent, whether they could be read or not.
    received: u32,
    responses: u32,
    cancels: u32,
}

impl Call {
    fn new(method: u16, window: Window) -> Self {
        Self {
            method,
            is_over: false,
            place: 0,
            peer_place: 0,
            window: SendWindow::new(window),
            received: 0,
            responses: 0,
            cancels: 0,
        }
    }
}

impl Ledger {
    pub(crate) fn new(window: Window) -> Self {
        Self { window, calls: HashMap::new() }
    }

    /// The calls that the session has started, in no order.
    pub(crate) fn ids(&self) -> Vec<u64> {
        let mut ids: Vec<_> = self.calls.keys().copied().collect();
        ids.sort_unstable();
        ids
    }

    /// The calls that neither side has ended; none but those may be in a session's table.
    pub(crate) fn open_count(&self) -> usize {
        self.calls.values().filter(|call| !call.is_over).count()
    }

    /// A call, if there ever was one of that id.
    pub(crate) fn view(&self, id: u64) -> Option<View> {
        let Call { method, peer_place, is_over, .. } = *self.calls.get(&id)?;
        Some(View { method, place: peer_place, is_over })
    }

    /// Records a frame that is about to be announced to the session, by its header.
    pub(crate) fn announce(&mut self, frame: &[u8]) {
        let Ok(header) = FrameHeader::parse(frame) else { return };
        if header.kind == FrameKind::Request {
            // A call that is still in flight is one that must not be started again.
            self.calls.insert(header.call, Call::new(header.selector, self.window));
        }
    }

    /// Records a frame that the session is about to be given.
    pub(crate) fn deliver(&mut self, frame: &[u8]) {
        let Ok(header) = FrameHeader::parse_whole(frame) else { return };
        if is_of_connection(header.kind) {
            return;
        }
        let Some(call) = self.calls.get_mut(&header.call) else { return };
        match header.kind {
            FrameKind::Window => call.window.handle_grant(Counts::from_wire(header.argument)),
            FrameKind::Response => call.is_over |= header.argument == call.peer_place,
            FrameKind::Cancel => call.is_over = true,
            FrameKind::Messages => {
                let messages = &frame[HEADER_LEN + header.metadata_len as usize..];
                call.received += u32::try_from(lens(messages).len()).unwrap_or(u32::MAX);
            }
            _ => {}
        }
        let has_place =
            !matches!(header.kind, FrameKind::Request | FrameKind::Window | FrameKind::Cancel);
        if has_place && header.argument == call.peer_place {
            call.peer_place += 1;
        }
    }

    /// Records a frame that the session has sent.
    pub(crate) fn sent(&mut self, frame: &[u8]) {
        let header = FrameHeader::parse_whole(frame).expect("a session sends whole frames");
        if header.kind == FrameKind::Request {
            let before = self.calls.insert(header.call, Call::new(header.selector, self.window));
            assert!(before.is_none(), "the call {} is started twice", header.call);
            return;
        }
        if is_of_connection(header.kind) {
            return;
        }
        let window = self.window;
        let call = self.calls.get_mut(&header.call).expect("a frame belongs to a call");
        match header.kind {
            FrameKind::Cancel => {
                (call.cancels, call.is_over) = (call.cancels + 1, true);
                assert_eq!(call.cancels, 1, "a call is cancelled once");
                return;
            }
            FrameKind::Window => {
                let granted = Counts::from_wire(header.argument).messages;
                let ahead = granted.wrapping_sub(call.received).cast_signed();
                let most = window.messages.cast_signed();
                assert!(ahead <= most, "{ahead} messages granted ahead, not {most}");
                return;
            }
            FrameKind::Response => {
                (call.responses, call.is_over) = (call.responses + 1, true);
                assert_eq!(call.responses, 1, "a call is answered once");
            }
            FrameKind::Messages => {
                for len in lens(&frame[HEADER_LEN + header.metadata_len as usize..]) {
                    assert!(call.window.is_open(), "a message beyond the window");
                    call.window.send(len);
                }
            }
            _ => {}
        }
        assert_eq!(header.argument, call.place, "the place of {header:?}");
        call.place += 1;
    }
}

/// Returns true if frames of this kind belong to the connection, not to a call.
fn is_of_connection(kind: FrameKind) -> bool {
    matches!(kind, FrameKind::Ping | FrameKind::Pong | FrameKind::GoAway)
}

/// The lengths of the messages of a frame, as far as they can be told.
fn lens(mut messages: &[u8]) -> Vec<usize> {
    let mut lens = Vec::new();
    while let Some((len, rest)) = messages.split_first_chunk::<4>() {
        let len = u32::from_le_bytes(*len) as usize;
        lens.push(len);
        messages = rest.get(len..).unwrap_or_default();
    }
    lens
}
