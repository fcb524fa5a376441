//! Listeners and connectors: TCP, Unix sockets, and byte streams that the program makes itself.

mod happy_eyeballs;
pub(crate) mod socket_access;
pub(crate) mod socket_file;
pub(crate) mod stream;
pub(crate) mod tcp;
pub(crate) mod unix;
