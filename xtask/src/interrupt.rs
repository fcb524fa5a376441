//! What an interrupt (Ctrl-C, a terminated or closed session) does: it kills every process group
//! that this program has started, and lets the ordinary path of errors and drops clean up.
//!
//! The children run in process groups of their own, so that a bound can end a whole tree. The price
//! is that a terminal's Ctrl-C reaches this program only; this module pays it.

use std::collections::BTreeSet;
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// The exit status of an interrupted run, as shells report it.
pub(crate) const EXIT_CODE: u8 = 130;

static REQUESTED: AtomicBool = AtomicBool::new(false);
static GROUPS: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

/// Starts the watch over signals. A second signal ends the program at once.
///
/// # Errors
///
/// When the handlers cannot be installed or the thread cannot be started.
pub(crate) fn watch() -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    std::thread::Builder::new().name("interrupt".into()).spawn(move || {
        for _ in signals.forever() {
            let again = REQUESTED.swap(true, Ordering::SeqCst);
            for &group in groups().iter() {
                kill(group);
            }
            if again {
                std::process::exit(i32::from(EXIT_CODE));
            }
        }
    })?;
    Ok(())
}

/// Whether a signal has asked this program to end.
pub(crate) fn requested() -> bool {
    REQUESTED.load(Ordering::SeqCst)
}

/// A process group that ends with this value: dropping it kills whatever still runs in it.
#[derive(Debug)]
pub(crate) struct Group {
    leader: i32,
}

impl Group {
    /// Takes charge of the group that `leader` leads.
    pub(crate) fn new(leader: i32) -> Self {
        groups().insert(leader);
        let group = Self { leader };
        // A signal that came between the start of the process and the line above has not seen the
        // group.
        if requested() {
            group.kill();
        }
        group
    }

    /// Kills every process of the group.
    pub(crate) fn kill(&self) {
        kill(self.leader);
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
        groups().remove(&self.leader);
    }
}

fn kill(group: i32) {
    // The only expected failure is that nobody is left in the group.
    let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
}

fn groups() -> std::sync::MutexGuard<'static, BTreeSet<i32>> {
    // A set of numbers is whole after any panic.
    GROUPS.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
