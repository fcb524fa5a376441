//! Rendezvous: a large frame is announced by SEND (RTS, "ready to send"), fetched by the receiver
//! with READs (GET), and acknowledged (ATS, "ack to send"), as in UCX.

pub(crate) mod get;
pub(crate) mod memory_windows;
pub(crate) mod send;
pub(crate) mod throttle;
