//! The recorded messages, with their variable parts made equal, and the log of the process.

use std::fmt::{Display, Write as _};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tracing_subscriber::EnvFilter;

/// No wait of this test is longer.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// Messages, each under what caused it.
#[derive(Debug, Default)]
pub(crate) struct Transcript {
    text: String,
}

impl Transcript {
    /// Adds a message; a message that has causes which it does not name is shown with them.
    pub(crate) fn say(&mut self, cause: &str, message: impl Display) {
        let [cause, message] = [cause.to_owned(), message.to_string()];
        let [cause, message] = [cause, message].map(|text| without_variable_parts(&text));
        writeln!(self.text, "# {cause}\n{message}\n").unwrap();
    }

    /// Compares with a file of this folder, which `FARCALL_WRITE_GOLDEN=1` writes anew.
    pub(crate) fn assert_is_file(&self, name: &str) {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/messages");
        let file = folder.join(name);
        if std::env::var_os("FARCALL_WRITE_GOLDEN").is_some() {
            std::fs::write(&file, &self.text).unwrap();
        }
        let held = std::fs::read_to_string(&file).unwrap_or_default();
        assert_eq!(held, self.text, "{name} differs: FARCALL_WRITE_GOLDEN=1 writes it anew");
    }
}

/// Replaces ports of loopback, this process's number, and times that were measured.
fn without_variable_parts(message: &str) -> String {
    let mut text = message.replace(&format!("-{}", std::process::id()), "-<pid>");
    // Ports that the operating system chose have five digits.
    text = after_each(&text, "127.0.0.1:", 5, |c| c.is_ascii_digit(), "<port>");
    let is_time = |c: char| c.is_ascii_digit() || ".mµns".contains(c);
    text = after_each(&text, "took=", 1, is_time, "<time>");
    // What is left of a call's timeout when it arrives.
    text = after_each(&text, "took=<time> timeout=", 1, is_time, "<time>");
    for mark in ["tries again in ", "next attempt in ", "certificate expired ", "becomes valid in "]
    {
        text = after_each(&text, mark, 1, |c| c.is_ascii_digit(), "<n>");
    }
    text
}

/// Replaces the characters that `is_part` holds for behind each `mark`, where there are as many.
fn after_each(
    text: &str,
    mark: &str,
    count_min: usize,
    is_part: impl Fn(char) -> bool,
    by: &str,
) -> String {
    let mut parts = text.split(mark);
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.trim_start_matches(&is_part);
        match part.len() - rest.len() >= count_min {
            true => write!(out, "{mark}{by}{rest}").unwrap(),
            false => write!(out, "{mark}{part}").unwrap(),
        }
    }
    out
}

/// The lines that the process has logged.
#[derive(Debug, Clone, Default)]
pub(crate) struct Log {
    bytes: Arc<Mutex<Vec<u8>>>,
    written: Arc<Notify>,
}

impl Log {
    /// Captures INFO and above, and all lines about calls.
    pub(crate) fn start() -> Self {
        let log = Self::default();
        let writer = log.clone();
        tracing_subscriber::fmt()
            .with_env_filter(EnvFilter::new("info,farcall::call=debug"))
            .with_ansi(false)
            .without_time()
            .with_writer(move || writer.clone())
            .init();
        log
    }

    /// Forgets the lines so far.
    pub(crate) fn clear(&self) {
        self.bytes.lock().clear();
    }

    /// Returns the lines logged since.
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.bytes.lock().clone()).unwrap()
    }

    /// Waits for a line with all of `words`, and gives the first one.
    pub(crate) async fn line(&self, texts: &[&str]) -> String {
        let waiting = async {
            loop {
                let written = self.written.notified();
                let text = self.text();
                let found =
                    text.lines().find(|line| texts.iter().all(|texts| line.contains(texts)));
                if let Some(line) = found {
                    return line.trim().to_owned();
                }
                written.await;
            }
        };
        let line = tokio::time::timeout(LIMIT, waiting).await;
        line.unwrap_or_else(|_| panic!("no line with {texts:?}"))
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.lock().extend_from_slice(bytes);
        self.written.notify_waiters();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
