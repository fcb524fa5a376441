//! Handing the driver of a connection over to another task while user code blocks its thread.
//!
//! A handler is polled once in the task that reads its connection, because most handlers are done
//! then, and a task for each would cost more than they do. A handler that blocks in that poll (a
//! CPU loop, `std::thread::sleep`, blocking file I/O) would keep the connection from being read:
//! its other calls would wait, its pings would go unanswered, and the peer would take it for dead.
//!
//! So the driver is released before user code runs and reclaimed afterwards. Between the two it
//! lies in the slot of its thread (`worker_slot`). A monitor thread, one for the process, looks at
//! these slots every 20 ms while handlers run. A driver that it finds in the same delivery twice
//! goes on in a task of its own; the blocked task finds it gone and ends. Go's
//! scheduler retakes the processor of a thread that blocks in a system call in the same way.
//!
//! Tasks that yielded on the thread before are in a list that only this thread looks at; the
//! monitor wakes those of them that yielded by [`yield_now`].
//!
//! A driver that cannot be handed over, because its task is another library's, needs that task to
//! be runnable elsewhere while user code blocks: the task notes where it was woken (`lifo_slot`).
//!
//! A call pays two uncontended locks of its thread's own slot. Nothing is paid on a runtime of one
//! thread, where no other task could go on: there a handler that blocks holds up everything, and
//! has to use `tokio::task::spawn_blocking`. The same holds when all threads of a runtime block.

mod current_slot;
mod driver_handoff;
mod lifo_slot;
mod monitor;
mod pace;
mod resume;
mod worker_slot;
mod yielding;

pub use driver_handoff::Handoff;
pub use lifo_slot::{displace_lifo_slot, note_poll, note_wake};
pub use resume::Resume;
pub use yielding::yield_now;

#[cfg(test)]
mod tests;
