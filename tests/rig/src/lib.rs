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
mod calls;
mod conductor;
mod error;
mod failures;
pub mod faults;
mod matrix;
pub mod scenario;
pub mod soak;

use std::fmt;
use std::process::ExitCode;

pub use error::RigError;
pub use matrix::Selection;

/// Ends a program: successful if everything held. Prints why it could not be shown, if so.
pub fn exit_code(program: &str, held: Result<bool, impl fmt::Display>) -> ExitCode {
    match held {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{program}: {error}");
            ExitCode::FAILURE
        }
    }
}
