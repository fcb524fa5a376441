//! The programs that show what farcall does under faults, attacks, restarts and long load.
//!
//! Each program starts processes of itself in other roles: servers, honest clients, hostile peers.
//! `conductor` starts and ends them and bounds every step. [`faults`] breaks links, devices and
//! processes in the virtual machine; [`attack`] has hostile peers on loopback; [`scenario`]
//! restarts, kills and slows servers under load; [`soak`] makes calls for a long time. The fifth
//! program, `farcall-interop`, serves and calls clients of gRPC from elsewhere. The suite's service
//! and its harness are in `farcall-suite`.
#![forbid(unsafe_code)]

pub mod attack;
mod conductor;
pub mod faults;
mod payload;
pub mod scenario;
pub mod soak;
