//! Byte streams that the program makes itself: anything that tokio can read and write.
//!
//! The driver (`transport`) reads and writes a socket without waiting, also from senders' tasks,
//! and asks the socket when to try again. A stream only has polls, which keep a waker. `polled`
//! turns a stream into a [`Socket`](crate::connection::socket::Socket): it polls the stream with a
//! waker that belongs to no task, and `readiness` records the wake-ups for the connection's task.

mod accepted;
#[cfg(test)]
mod awkward;
mod connector;
mod listener;
mod polled;
#[cfg(test)]
mod polled_tests;
mod readiness;

pub use connector::StreamConnector;
pub use listener::StreamListener;
