//! Rendezvous: large frames are announced by SEND, and fetched by the receiver with READs.

pub(crate) mod get;
pub(crate) mod send;
