//! The sending end of a stream: it waits for the receiver's window.

use std::future::poll_fn;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use crate::calls::window::{Counts, SendWindow, Window};

/// The window of one stream to the peer.
#[derive(Debug)]
pub(crate) struct SendStream {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    window: SendWindow,
    waker: Option<Waker>,
}

impl SendStream {
    pub(crate) fn new(window: Window) -> Self {
        Self { state: Mutex::new(State { window: SendWindow::new(window), waker: None }) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change is complete before anything that could panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of messages sent so far, modulo 2^32.
    pub(crate) fn sent_count(&self) -> u32 {
        self.state().window.sent().messages
    }

    /// Bytes of the messages that were sent so far, modulo 2^32.
    pub(crate) fn sent_bytes(&self) -> u32 {
        self.state().window.sent().bytes
    }

    /// Handles a window update of the peer.
    pub(crate) fn handle_grant(&self, granted: Counts) {
        let waker = {
            let mut state = self.state();
            state.window.handle_grant(granted);
            if state.window.is_open() { state.waker.take() } else { None }
        };
        waker.into_iter().for_each(Waker::wake);
    }

    /// Counts a message if the window is open.
    #[must_use]
    pub(super) fn try_send(&self, len: usize) -> bool {
        let mut state = self.state();
        let is_open = state.window.is_open();
        if is_open {
            state.window.send(len);
        }
        is_open
    }

    /// Counts a message once the window is open.
    pub(super) async fn send(&self, len: usize) {
        poll_fn(|cx| {
            let mut state = self.state();
            if state.window.is_open() {
                state.window.send(len);
                return Poll::Ready(());
            }
            state.waker = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}
