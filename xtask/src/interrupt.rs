//! Handles an interrupt (Ctrl-C, a terminated or closed session): kills every process group that
//! this program has started, and leaves the cleanup to the ordinary path of errors and drops.
//!
//! The children run in process groups of their own, so that a bound can end a whole tree. The price
//! is that a terminal's Ctrl-C reaches this program only; this module pays it.

use std::io;
use std::process::ExitCode;

use farcall_testkit::process;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

pub use process::interrupted as requested;

/// The exit status of an interrupted run, as shells report it.
const EXIT_CODE: u8 = 130;

/// Starts the watch over signals. A second signal ends the program at once.
///
/// # Errors
///
/// Returns an error if the handlers cannot be installed or the thread cannot be started.
pub fn watch() -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    std::thread::Builder::new().name("interrupt".into()).spawn(move || {
        for _ in signals.forever() {
            let again = process::interrupt();
            if again {
                std::process::exit(i32::from(EXIT_CODE));
            }
        }
    })?;
    Ok(())
}

/// Prints `error` and returns the exit status of a failed or an interrupted run.
pub fn report(error: &anyhow::Error) -> ExitCode {
    eprintln!("xtask: {error:#}");
    ExitCode::from(if requested() { EXIT_CODE } else { 1 })
}
