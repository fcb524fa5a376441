//! Yielding on a thread that user code may block.

use std::future::poll_fn;
use std::pin::pin;

use super::current_slot;

/// Lets other tasks run first, as [`tokio::task::yield_now`] does.
///
/// Tokio keeps a task that yields in a list of its worker, and looks at the list when the worker
/// has nothing else to run. If a task that runs before it blocks the worker, no other worker finds
/// the one that yielded. Here the monitor wakes it then, and another worker runs it.
///
/// # Cancel safety
///
/// This function is cancel safe: dropped, it leaves the list.
pub async fn yield_now() {
    let mut entry = None;
    let mut yielding = pin!(tokio::task::yield_now());
    poll_fn(|context| {
        let yielded = yielding.as_mut().poll(context);
        if yielded.is_pending() {
            entry = current_slot::enter_yielding(context.waker());
        }
        yielded
    })
    .await;
    drop(entry);
}
