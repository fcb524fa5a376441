//! Byte streams that the program makes itself: anything that tokio can read and write.
//!
//! The driver (`transport`) reads and writes a socket without waiting, from senders' tasks too, and
//! asks the socket when to try again. A stream has only polls, which keep a waker.
//! `polled` makes a [`Socket`](crate::connection::socket::Socket) of one: every poll of the stream
//! gets the same waker, which belongs to no task, and `readiness` records what it says for the
//! connection's task.

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
