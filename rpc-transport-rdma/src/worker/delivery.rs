//! Handing out what a worker has received, and which task goes on when a receiver blocks.
//!
//! ```text
//!   turn:  commands, completions ──> arrivals ──> slots posted again ──> delivery ──> posts
//!                                                                       │
//!                                a handler blocks for 20 to 40 ms ──────┤
//!   the blocked task finds no driver and ends <──── another task goes on with the delivery
//! ```
//! A worker's completions are handled first, and what came with them waits in the order in which it
//! came. It is handed out at this one place, where nothing of the worker is half done: each arrival
//! goes out with the whole [`Driver`] in a [`Handoff`]. If user code that the arrival starts
//! blocks, another task takes the driver over and goes on with the next arrival, so that neither
//! the other connections of the worker nor the other calls of the same connection wait.
//!
//! The driver is one `Box` that moves, so that never two tasks serve a worker. A handler that
//! blocks keeps a thread of the runtime, so that as many tasks can be blocked at a time as the
//! runtime has threads. When all of them are, or on a runtime of one thread, the worker waits until
//! one returns.

use futures::FutureExt as _;
use futures::future::BoxFuture;
use rpc_core::handoff::{Handoff, Resume};
use tokio::runtime::Handle;

use super::driver::{Driver, Ended};

impl Driver {
    /// Hands out what has arrived, then posts what the connections have to send.
    pub(super) fn deliver(mut self: Box<Self>) -> Result<Box<Self>, Ended> {
        let mut has_woken = self.shared.has_woken();
        while let Some((connection, arrival)) = self.arrivals.pop_front() {
            let mut handoff = Handoff::new(self, has_woken);
            connection.deliver(arrival, &mut handoff);
            has_woken = handoff.has_woken();
            self = handoff.into_driver().ok_or(Ended::TakenOver)?;
        }
        self.end_batch();
        Ok(self)
    }
}

impl Resume for Driver {
    fn runtime(&self) -> &Handle {
        &self.shared.runtime
    }

    fn resume(self: Box<Self>) -> BoxFuture<'static, ()> {
        self.run().boxed()
    }
}
