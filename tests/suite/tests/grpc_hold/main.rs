//! Clients of gRPC at a server's port that make it keep much, and honest ones that do a lot at
//! once: the former are bounded and counted, the latter are served.

#[path = "../log/mod.rs"]
mod log;

mod calls;
mod floods;
mod idle;
mod service;
mod unfinished;
mod windows;
