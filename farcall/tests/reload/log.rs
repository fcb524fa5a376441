//! The log lines of a reload, and the filter of the log.

use std::io::{self, Write};
use std::sync::{Arc, Once};

use farcall::Reloader;
use parking_lot::Mutex;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::file::{File, keys};

/// The lines that this thread writes.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Lines {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

impl Lines {
    /// Returns the lines that a reload writes, without their times.
    fn of(reloader: &Reloader) -> Vec<String> {
        // A line that a thread without a subscriber meets first would be off for all threads.
        static WANTED: Once = Once::new();
        WANTED.call_once(|| {
            let all = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE);
            let _ = all.with_writer(io::sink).try_init();
        });
        let lines = Self::default();
        let subscriber = tracing_subscriber::fmt().with_writer(lines.clone()).with_ansi(false);
        let guard = subscriber.without_time().set_default();
        let _ = reloader.reload();
        drop(guard);
        let text = String::from_utf8(lines.0.lock().clone()).unwrap();
        text.lines().map(|line| line.trim().to_owned()).collect()
    }
}

#[test]
fn each_change_has_a_line_that_says_when_it_takes_effect() {
    let text = "[targets.t]\naddress = \"tcp://h:1\"\n[servers.s]\naddress = \"tcp://h:1\"\n";
    let file = File::new("log", text);
    let reloader = file.load().watch().unwrap();
    assert_eq!(Lines::of(&reloader), [""; 0], "nothing has changed");
    let changed = text.replace("h:1", "h:2") + "[targets.t.limits]\nmax_calls = 3";
    file.replace(&changed);
    let said = "a setting has changed";
    let at_start = "a setting has changed: that takes effect at the next start";
    assert_eq!(
        Lines::of(&reloader),
        [
            format!(
                "INFO farcall::settings: {said} key=\"targets.t.address\" line=2 \
             old=\"\\\"tcp://h:1\\\"\" new=\"\\\"tcp://h:2\\\"\""
            ),
            format!(
                "WARN farcall::settings: {at_start} key=\"targets.t.limits.max_calls\" line=6 \
             old=\"not set\" new=\"3\""
            ),
            format!(
                "WARN farcall::settings: {at_start} key=\"servers.s.address\" line=4 \
             old=\"\\\"tcp://h:1\\\"\" new=\"\\\"tcp://h:2\\\"\""
            ),
        ]
    );
    file.replace("[targets.t]\naddress = 1");
    let lines = Lines::of(&reloader);
    let start = "WARN farcall::settings: cannot reload: all settings stay as they are error=";
    assert!(lines[0].starts_with(start), "{lines:?}");
}

#[test]
fn the_program_applies_the_filter_of_its_log_or_refuses_it() {
    let file = File::new("filter", "log.filter = \"info\"");
    let settings = file.load();
    assert_eq!(settings.log_filter().as_deref(), Some("info"));
    let applied = Arc::new(Mutex::new(Vec::new()));
    let reloader = settings.watch().unwrap().with_log_filter({
        let applied = Arc::clone(&applied);
        move |filter| match filter {
            Some("loud") => Err("`loud` is no level".into()),
            filter => {
                applied.lock().push(filter.map(str::to_owned));
                Ok(())
            }
        }
    });
    file.replace("log.filter = \"farcall=debug\"");
    assert_eq!(keys(&reloader.reload().unwrap()), ["log.filter"]);
    file.replace("log.filter = \"loud\"\n[targets.t]\naddress = \"tcp://h:1\"");
    let error = reloader.reload().unwrap_err().to_string();
    assert!(error.ends_with("farcall.toml:1:14: log.filter: `loud` is no level"), "{error}");
    assert_eq!(settings.targets().count(), 0, "nothing else is applied either");
    file.replace("");
    assert_eq!(keys(&reloader.reload().unwrap()), ["log.filter"]);
    assert_eq!(*applied.lock(), [Some("farcall=debug".to_owned()), None]);
}

#[test]
fn without_a_hook_the_filter_takes_effect_at_the_next_start() {
    let file = File::new("unhooked", "");
    let reloader = file.load().watch().unwrap();
    file.replace("log.filter = \"debug\"");
    assert_eq!(keys(&reloader.reload().unwrap()), ["log.filter (next start)"]);
}
