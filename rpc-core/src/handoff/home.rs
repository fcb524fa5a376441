//! Cores: threads with a runtime of one thread each, and the runtime that they belong to.
//!
//! The cores of a server have a *home*, the runtime that serves. What may block runs there, and
//! what connections of all cores share. The threads of `per_core` are cores without a home.

use std::cell::{OnceCell, RefCell};

use tokio::runtime::{Handle, Id};
use tokio::task::JoinHandle;

/// A core, as what belongs to it sees it.
#[derive(Debug, Clone)]
pub struct Core {
    /// Its runtime, of one thread.
    pub runtime: Handle,
    /// Number of cores that were started together.
    pub count: usize,
}

impl Core {
    /// Returns the id of its runtime, which no other core has.
    #[must_use]
    pub fn id(&self) -> Id {
        self.runtime.id()
    }
}

/// A thread that is a core.
struct CoreThread {
    home: Option<Handle>,
    count: usize,
}

thread_local! {
    /// Set on a core.
    static CORE: OnceCell<CoreThread> = const { OnceCell::new() };
    /// The core that this thread works for, where that is another thread.
    static WORKS_FOR: RefCell<Option<Core>> = const { RefCell::new(None) };
}

/// Makes this thread one of `count` cores, and `home` its home.
pub fn set_core(count: usize, home: Option<Handle>) {
    // A thread is a core for as long as it lives, so that the first home stays.
    CORE.with(|core| drop(core.set(CoreThread { home, count })));
}

/// Returns the home of this thread if it is a core that has one.
pub(crate) fn home() -> Option<Handle> {
    CORE.with(|core| core.get()?.home.clone())
}

/// Returns the core that this code runs on, or that a thread which may block runs it for; none
/// elsewhere.
#[must_use]
pub fn current_core() -> Option<Core> {
    match CORE.with(|core| Some(core.get()?.count)) {
        Some(count) => Some(Core { runtime: Handle::try_current().ok()?, count }),
        None => WORKS_FOR.with_borrow(Clone::clone),
    }
}

/// Runs `step` where it may block: on a thread of the home, or of the current runtime where there
/// is none. Meanwhile [`current_core`] is there what it is here.
pub(crate) fn blocking_at_home<T: Send + 'static>(
    step: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    let core = current_core();
    home().unwrap_or_else(Handle::current).spawn_blocking(move || {
        let _working = Working::begin(core);
        step()
    })
}

/// Work for a core on this thread, until it is dropped: the thread works for others later.
struct Working;

impl Working {
    fn begin(core: Option<Core>) -> Self {
        WORKS_FOR.set(core);
        Self
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        WORKS_FOR.set(None);
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use tokio::runtime::{Builder, Runtime};

    use super::*;

    fn core_id() -> Option<Id> {
        current_core().map(|core| core.id())
    }

    /// Runs `test` on a core with that home, given its runtime.
    fn on_core<T: Send>(home: Option<&Runtime>, test: impl FnOnce(&Runtime) -> T + Send) -> T {
        let home = home.map(|home| home.handle().clone());
        let run = || {
            set_core(3, home);
            test(&Builder::new_current_thread().build().unwrap())
        };
        thread::scope(|scope| scope.spawn(run).join().unwrap())
    }

    #[test]
    fn a_step_that_may_block_works_for_its_core_and_no_longer() {
        // Of one thread: the next step is on the same.
        let home = Builder::new_multi_thread().max_blocking_threads(1).build().unwrap();
        let [expected, in_step, afterwards] = on_core(Some(&home), |core| {
            core.block_on(async {
                let step = blocking_at_home(|| (core_id(), Handle::current().id()));
                let (in_step, runtime) = step.await.unwrap();
                assert_eq!(runtime, home.handle().id(), "what it spawns is the home's");
                let panicking = blocking_at_home(|| -> () { panic!("{:?}", core_id()) });
                let payload = panicking.await.unwrap_err().into_panic();
                let expected = Some(core.handle().id());
                assert_eq!(*payload.downcast::<String>().unwrap(), format!("{expected:?}"));
                [expected, in_step, core_id()]
            })
        });
        assert_eq!((in_step, afterwards), (expected, expected));
        let later = home.block_on(async { blocking_at_home(core_id).await.unwrap() });
        assert_eq!(later, None);
    }

    #[test]
    fn a_core_without_a_home_blocks_threads_of_its_own() {
        let [in_step, own] = on_core(None, |core| {
            assert!(home().is_none());
            assert_eq!(core.block_on(async { current_core().unwrap().count }), 3);
            core.block_on(async { [blocking_at_home(core_id).await.unwrap(), core_id()] })
        });
        assert!(own.is_some());
        assert_eq!(in_step, own);
        assert_eq!(core_id(), None, "of a thread that is none");
    }
}
