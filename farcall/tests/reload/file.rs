//! A settings file of a test's own, and what is told of its reloads.

use std::path::{Path, PathBuf};
use std::time::Duration;

use farcall::{Reload, Reloader, Settings, SettingsError};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// A file in a folder that goes with the test.
pub(crate) struct File(PathBuf);

impl File {
    pub(crate) fn new(name: &str, text: &str) -> Self {
        let name = format!("farcall-reload-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let file = Self(folder.join("farcall.toml"));
        file.replace(text);
        file
    }

    /// Puts another file in its place, as an editor does.
    pub(crate) fn replace(&self, text: &str) {
        let new = self.0.with_extension("new");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(new, &self.0).unwrap();
    }

    /// Replaces the file: `put` makes something else of the same name.
    pub(crate) fn put(&self, put: impl Fn(&Path)) {
        let _ = std::fs::remove_file(&self.0);
        let _ = std::fs::remove_dir(&self.0);
        put(&self.0);
    }

    pub(crate) fn load(&self) -> Settings {
        Settings::load(&self.0).unwrap()
    }

    /// The error of loading it.
    pub(crate) fn error(&self) -> String {
        Settings::load(&self.0).unwrap_err().to_string()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.0.parent().unwrap());
    }
}

/// The reports of a running watch's reloads.
pub(crate) struct Reports(UnboundedReceiver<Result<Reload, String>>);

impl Reports {
    /// Runs a watch, which has looked at the files once then.
    pub(crate) async fn run(reloader: Reloader) -> Self {
        let (sender, reports) = unbounded_channel();
        let report = move |reload: &Result<Reload, SettingsError>| {
            let _ = sender.send(reload.as_ref().cloned().map_err(ToString::to_string));
        };
        let reloader = reloader.with_interval(Duration::from_millis(2)).with_report(report);
        tokio::spawn(reloader.run());
        let mut reports = Self(reports);
        assert!(reports.next().await.unwrap().changes.is_empty());
        reports
    }

    pub(crate) async fn next(&mut self) -> Result<Reload, String> {
        self.0.recv().await.unwrap()
    }
}

/// The keys of a reload, with a mark for those that take effect at the next start.
pub(crate) fn keys(reload: &Reload) -> Vec<String> {
    let changes = reload.changes.iter().map(|change| match change.effect {
        farcall::TakesEffect::Now => change.key.clone(),
        _ => format!("{} (next start)", change.key),
    });
    changes.collect()
}
