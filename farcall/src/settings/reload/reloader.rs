//! Reads the file again: when it has changed, on SIGHUP, or when the program asks for it.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rpc_core::settings::{check_timeout, expect_valid};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::MissedTickBehavior;

use super::changes::{LogFilter, Reload, SettingChange, TakesEffect};
use super::registry::{Shared, read};
use super::stamps::{Found, Stamps, Watched, look};
use crate::settings::error::SettingsError;

/// Default interval between two checks of the files. A check is a system call for each file.
const INTERVAL: Duration = Duration::from_secs(1);

/// Reads a settings file again while the program runs; made by
/// [`Settings::watch`](crate::Settings::watch).
///
/// A reload is all or nothing. The file, the environment and all files of TLS are read and checked
/// first. If something is wrong, the reload is the error that a load would be, and everything
/// stays as it is. What has changed is in the log (target `farcall::settings`), and so is what
/// takes effect at the next start only.
///
/// Files are looked at for the time of their last change, their length and their inode, and not
/// watched by events of the kernel: those name an inode, and a file that is renamed into place, or
/// is reached through a link that Kubernetes points elsewhere, is another inode. A look works on
/// every file system, and needs neither a thread nor another crate.
///
/// # Examples
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let settings = farcall::Settings::load("farcall.toml")?;
/// let reloader = settings.watch()?.with_report(|reload| match reload {
///     Ok(reload) => reload.changes.iter().for_each(|change| println!("{change}")),
///     Err(error) => eprintln!("{error}"),
/// });
/// tokio::spawn(reloader.run());
/// # Ok(())
/// # }
/// ```
pub struct Reloader {
    work: Work,
    interval: Duration,
    hangup: Option<Signal>,
}

type Hook = Box<dyn Fn(Option<&str>) -> Result<(), String> + Send + Sync>;
type Report = Box<dyn Fn(&Result<Reload, SettingsError>) + Send + Sync>;

/// The work of a reload.
struct Work {
    shared: Arc<Shared>,
    path: PathBuf,
    /// One reload at a time: what it has checked is what it applies.
    turn: Mutex<()>,
    log_filter: Option<Hook>,
    report: Option<Report>,
}

impl Reloader {
    pub(crate) fn new(shared: Arc<Shared>) -> Result<Self, SettingsError> {
        let path = shared.watch()?;
        let work = Work { shared, path, turn: Mutex::new(()), log_filter: None, report: None };
        Ok(Self { work, interval: INTERVAL, hangup: None })
    }

    /// Sets how often [`run`](Self::run) looks at the files; once a second by default. They are
    /// read after two looks that found the same.
    ///
    /// # Panics
    ///
    /// Unless the interval is from 1 ms to 365 days.
    #[must_use]
    #[track_caller]
    pub fn with_interval(mut self, interval: Duration) -> Self {
        expect_valid(check_timeout("interval", interval));
        self.interval = interval;
        self
    }

    /// Makes [`run`](Self::run) read the files on SIGHUP, too. From here on the signal does not end
    /// the process, and one that comes before `run` is not lost.
    ///
    /// # Errors
    ///
    /// Returns an error if the operating system refuses the handler.
    ///
    /// # Panics
    ///
    /// Panics outside of a runtime of tokio, or in one without I/O.
    pub fn with_hangup(mut self) -> io::Result<Self> {
        self.hangup = Some(signal(SignalKind::hangup())?);
        Ok(self)
    }

    /// Sets what applies the key `log.filter` when it changes; `None` where it is gone. An error
    /// is one of the file: nothing of the reload is applied then. Without this the key takes
    /// effect at the next start, by [`Settings::log_filter`](crate::Settings::log_filter).
    ///
    /// # Examples
    ///
    /// ```
    /// use farcall::{Settings, SettingsError};
    /// use tracing_subscriber::EnvFilter;
    /// use tracing_subscriber::util::SubscriberInitExt as _;
    ///
    /// fn start(settings: &Settings) -> Result<(), Box<dyn std::error::Error>> {
    ///     let first = settings.log_filter().unwrap_or_else(|| "info".to_owned());
    ///     let subscriber = tracing_subscriber::fmt().with_env_filter(EnvFilter::try_new(first)?);
    ///     let subscriber = subscriber.log_internal_errors(false).with_filter_reloading();
    ///     let handle = subscriber.reload_handle();
    ///     subscriber.finish().init();
    ///     let reloader = settings.watch()?.with_log_filter(move |filter| {
    ///         let filter = EnvFilter::try_new(filter.unwrap_or("info"))?;
    ///         Ok(handle.reload(filter)?)
    ///     });
    ///     tokio::spawn(reloader.run());
    ///     Ok(())
    /// }
    /// ```
    #[must_use]
    pub fn with_log_filter<F>(mut self, apply: F) -> Self
    where
        F: Fn(Option<&str>) -> Result<(), Box<dyn std::error::Error>> + Send + Sync + 'static,
    {
        let apply = move |filter: Option<&str>| apply(filter).map_err(|error| error.to_string());
        self.work.log_filter = Some(Box::new(apply));
        self
    }

    /// Sets what is told of each reload that [`run`](Self::run) makes. The first one is at its
    /// beginning, and tells what has changed since the file was loaded.
    #[must_use]
    pub fn with_report(
        mut self,
        report: impl Fn(&Result<Reload, SettingsError>) + Send + Sync + 'static,
    ) -> Self {
        self.work.report = Some(Box::new(report));
        self
    }

    /// Reads the files now. It blocks for as long as that takes.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Settings::load`](crate::Settings::load), and changes nothing then.
    pub fn reload(&self) -> Result<Reload, SettingsError> {
        self.work.reload()
    }

    /// Reads the files when they have changed, for ever. Changes that came before, since they were
    /// loaded, count.
    ///
    /// # Cancel safety
    ///
    /// Cancelled, the files are not read any more. A reload that has begun is made whole.
    pub async fn run(self) {
        let Self { work, interval, mut hangup } = self;
        let mut ticks = tokio::time::interval(interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut state = (work, None);
        loop {
            let due = tokio::select! {
                _ = ticks.tick() => Due::Look,
                () = received(hangup.as_mut()) => Due::Reload,
            };
            // Files may be slow: they are read on a thread that may block.
            let looked = tokio::task::spawn_blocking(move || {
                let (work, watched) = &mut state;
                work.handle(watched, due);
                state
            });
            state = match looked.await {
                Ok(state) => state,
                Err(error) => match error.try_into_panic() {
                    // The program's hook has panicked.
                    Ok(panic) => std::panic::resume_unwind(panic),
                    // The runtime ends.
                    Err(_) => return,
                },
            };
        }
    }
}

/// Waits for the signal, if it is asked for.
async fn received(hangup: Option<&mut Signal>) {
    if let Some(hangup) = hangup
        && hangup.recv().await.is_some()
    {
        return;
    }
    // No signal is asked for, or none can come any more.
    std::future::pending::<()>().await;
}

/// The work that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Due {
    /// To read the files if they have changed.
    Look,
    /// To read them in any case.
    Reload,
}

impl Work {
    fn stamps(&self) -> Stamps {
        let loaded = self.shared.loaded();
        look(loaded.root.tls_files().into_iter().chain([self.path.clone()]))
    }

    /// Looks at the files, and reads them if that is due. The first look is always followed by
    /// reading, since files may have changed after they were loaded.
    fn handle(&self, watched: &mut Option<Watched>, due: Due) {
        // Before they are read, so that a change that comes meanwhile is seen next time.
        let stamps = self.stamps();
        match watched {
            None => *watched = Some(Watched::new(stamps)),
            Some(watched) => {
                let found = watched.handle_look(stamps.clone());
                if due == Due::Look && found != Found::Changed {
                    return;
                }
                watched.handle_reading(stamps);
            }
        }
        let reload = self.reload();
        if let Some(report) = &self.report {
            report(&reload);
        }
    }

    fn reload(&self) -> Result<Reload, SettingsError> {
        let reload = {
            let _turn = self.turn.lock();
            self.check_and_apply()
        };
        self.shared.reloaded(&reload);
        #[cfg(feature = "metrics")]
        crate::metrics::reloaded(reload.is_ok());
        match &reload {
            Ok(reload) => reload.changes.iter().for_each(log),
            Err(error) => {
                // Several mistakes have a line each, and the log has one.
                let error = error.to_string().replace('\n', "; ");
                tracing::warn!(
                    target: "farcall::settings",
                    %error, "cannot reload: all settings stay as they are"
                );
            }
        }
        reload
    }

    fn check_and_apply(&self) -> Result<Reload, SettingsError> {
        let new = read(&self.path)?;
        let built = new.build()?;
        self.shared.check_methods(&new, &built)?;
        self.shared.check_addresses(&new, &built)?;
        let (old, filter) = (self.shared.loaded(), &new.root.log.filter);
        let log_filter = match &self.log_filter {
            None => LogFilter::ReadAtStart,
            Some(hook) => {
                // The last that can fail. It is the program's, so that no lock of ours is held
                // but the one for its turn.
                if old.root.log.filter != *filter {
                    let applied = hook(filter.as_deref());
                    applied.map_err(|error| new.misplaced(&[&["log"]], &["filter"], error))?;
                }
                LogFilter::Hooked
            }
        };
        Ok(self.shared.apply(new, &built, log_filter))
    }
}

fn log(change: &SettingChange) {
    let SettingChange { key, line, old, new, effect } = change;
    let line = line.as_ref();
    let [old, new] = [old, new].map(|value| value.as_deref().unwrap_or("not set"));
    match effect {
        TakesEffect::Now => tracing::info!(
            target: "farcall::settings", key, line, old, new, "a setting has changed"
        ),
        TakesEffect::NextStart => tracing::warn!(
            target: "farcall::settings",
            key, line, old, new, "a setting has changed: that takes effect at the next start"
        ),
    }
}

impl fmt::Debug for Reloader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reloader")
            .field("path", &self.work.path)
            .field("interval", &self.interval)
            .finish_non_exhaustive()
    }
}
