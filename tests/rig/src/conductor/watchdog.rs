//! The last bound: whatever hangs in spite of all others is named, and the program ended.

use std::sync::Arc;
use std::time::{Duration, Instant};

use farcall_testkit::process::kill_all;
use parking_lot::Mutex;

/// The status of a program that hung.
const HUNG_EXIT_CODE: i32 = 3;

/// Longer than any wait within a step of a row.
const STEP_LIMIT: Duration = Duration::from_secs(120);

const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// Looks after the steps of the rows.
#[derive(Debug)]
pub(crate) struct Watchdog {
    step: Arc<Mutex<WatchedStep>>,
}

#[derive(Debug)]
struct WatchedStep {
    row: String,
    name: &'static str,
    since: Instant,
    limit: Duration,
}

impl Watchdog {
    /// Starts watching.
    pub(crate) fn start() -> Self {
        let step = WatchedStep {
            row: String::new(),
            name: "the beginning",
            since: Instant::now(),
            limit: STEP_LIMIT,
        };
        let step = Arc::new(Mutex::new(step));
        let watched = Arc::clone(&step);
        std::thread::spawn(move || {
            loop {
                std::thread::sleep(LOOK_INTERVAL);
                let step = watched.lock();
                if step.since.elapsed() > step.limit {
                    let WatchedStep { row, name, limit, .. } = &*step;
                    println!("HUNG: {row}: {name} has not ended within {limit:?}");
                    // No destructor runs: the processes would live on if one of them hangs, too.
                    kill_all();
                    std::process::exit(HUNG_EXIT_CODE);
                }
            }
        });
        Self { step }
    }

    /// A row begins.
    pub(crate) fn enter_row(&self, row: &str) {
        let mut step = self.step.lock();
        row.clone_into(&mut step.row);
        step.since = Instant::now();
    }

    /// A step of the row begins.
    pub(crate) fn enter(&self, name: &'static str) {
        self.enter_for(name, STEP_LIMIT);
    }

    /// A step of the row begins that may take longer than others.
    pub(crate) fn enter_for(&self, name: &'static str, limit: Duration) {
        let mut step = self.step.lock();
        (step.name, step.since, step.limit) = (name, Instant::now(), limit);
    }
}
