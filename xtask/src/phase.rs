//! Phases of a command that a user waits for: each says what it does and how long that usually
//! takes. A terminal gets a progress bar.

use std::io::{self, IsTerminal as _};
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// Time between two looks at whether a phase is over.
const REDRAW_INTERVAL: Duration = Duration::from_millis(100);

/// A phase that is under way. It ends when this value is dropped.
#[derive(Debug)]
pub(crate) struct ProgressPhase {
    bar: Option<(Sender<()>, JoinHandle<()>)>,
}

impl ProgressPhase {
    /// Prints the line of a phase without a bar, for work that shows its own progress.
    pub(crate) fn announce(what: &str, usually: Duration) {
        eprintln!("{}", line(what, usually));
    }

    /// Prints the line of a phase, and draws a bar on a terminal until `is_over` or the drop.
    pub(crate) fn start(
        what: &str,
        usually: Duration,
        is_over: impl Fn() -> bool + Send + 'static,
    ) -> Self {
        Self::announce(what, usually);
        if !io::stderr().is_terminal() {
            return Self { bar: None };
        }
        let (end, ended) = mpsc::channel::<()>();
        let drawn = thread::spawn(move || {
            let (bar, started) = (bar(usually), Instant::now());
            // A disconnected channel is the drop of the phase.
            while ended.recv_timeout(REDRAW_INTERVAL) == Err(mpsc::RecvTimeoutError::Timeout) {
                if is_over() {
                    break;
                }
                bar.set_position(position(started.elapsed(), usually));
            }
            bar.finish_and_clear();
        });
        Self { bar: Some((end, drawn)) }
    }
}

impl Drop for ProgressPhase {
    fn drop(&mut self) {
        if let Some((end, drawn)) = self.bar.take() {
            drop(end);
            // A panic while drawing costs the bar alone.
            let _ = drawn.join();
        }
    }
}

fn line(what: &str, usually: Duration) -> String {
    format!("xtask: {what}, about {} s", usually.as_secs())
}

/// Elapsed milliseconds, short of the end: only the phase itself knows that it is over.
fn position(elapsed: Duration, usually: Duration) -> u64 {
    let last = usually.mul_f64(0.99);
    u64::try_from(elapsed.min(last).as_millis()).unwrap_or(u64::MAX)
}

fn bar(usually: Duration) -> ProgressBar {
    let len = u64::try_from(usually.as_millis()).unwrap_or(u64::MAX);
    let style = ProgressStyle::with_template("{wide_bar} {elapsed}");
    let bar = ProgressBar::new(len);
    style.map_or(bar.clone(), |style| bar.with_style(style))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_names_the_work_and_its_usual_time() {
        let printed = line("booting the virtual machine", Duration::from_secs(20));
        assert_eq!(printed, "xtask: booting the virtual machine, about 20 s");
    }

    #[test]
    fn bar_stops_short_of_its_end() {
        let usually = Duration::from_secs(20);
        assert_eq!(position(Duration::from_secs(5), usually), 5_000);
        assert_eq!(position(Duration::from_secs(90), usually), 19_800);
    }
}
