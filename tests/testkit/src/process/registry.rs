//! The children that run, so that a signal handler or a watchdog can kill them without running
//! destructors.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use parking_lot::{Mutex, MutexGuard};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);
static CHILDREN: Mutex<BTreeSet<Target>> = Mutex::new(BTreeSet::new());

/// The target of a kill.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Target {
    /// One process of this program's own group.
    Process(i32),
    /// A process group, by its leader.
    Group(i32),
}

impl Target {
    fn kill(self) {
        // The only expected failure is that nothing is left to kill.
        let _ = match self {
            Self::Process(id) => kill(Pid::from_raw(id), Signal::SIGKILL),
            Self::Group(leader) => killpg(Pid::from_raw(leader), Signal::SIGKILL),
        };
    }
}

/// An entry of the registry. Dropping it kills the target and removes the entry.
#[derive(Debug)]
pub(super) struct Registered {
    target: Target,
}

impl Registered {
    pub(super) fn new(target: Target) -> Self {
        children().insert(target);
        let registered = Self { target };
        // An interrupt between the child's start and the line above has not seen the child.
        if interrupted() {
            registered.kill();
        }
        registered
    }

    pub(super) fn kill(&self) {
        self.target.kill();
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // A group may outlive its leader. A process that was waited for has given its id back to
        // the kernel, and its owner has killed it before that.
        if matches!(self.target, Target::Group(_)) {
            self.kill();
        }
        children().remove(&self.target);
    }
}

/// Kills every running child, for a program that is about to end without running destructors.
pub fn kill_all() {
    for child in children().iter() {
        child.kill();
    }
}

/// Kills every running child and makes every later wait fail with
/// [`ProcessError::Interrupted`](super::ProcessError::Interrupted), so that the ordinary path of
/// errors and drops ends the program. Returns whether that was asked for before.
pub fn interrupt() -> bool {
    let again = INTERRUPTED.swap(true, Ordering::SeqCst);
    kill_all();
    again
}

/// Returns true if [`interrupt`] was called.
#[must_use]
pub fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::SeqCst)
}

fn children() -> MutexGuard<'static, BTreeSet<Target>> {
    CHILDREN.lock()
}
