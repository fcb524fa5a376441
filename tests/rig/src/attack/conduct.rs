//! One row, from its beginning to its end: processes are started, periods are measured.

use std::time::{Duration, Instant};

use super::hostile::{Assault, Trap};
use super::judge::{Memory, Observed};
use super::log_text::LogFindings;
use super::measure::{self, Usage, usage};
use super::message::{CUT, Deeds, EXPOSE, Standing, Summary};
use super::row::{Row, Rules, Scene};
use super::scale::Scale;
use crate::RigError;
use crate::conductor::message::{REPORT, ask};
use crate::conductor::process::Process;
use crate::conductor::watchdog::Watchdog;
use farcall_testkit::process::ProcessLog;

/// Time that a client needs for its first calls.
const WARM_UP: Duration = Duration::from_millis(300);

/// Between two looks at an attack.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// The longest that a hostile peer may take to send everything; it gives up by itself before.
const SENDING_LIMIT: Duration = Duration::from_secs(60);

/// The resident memory at which an attack is cut short, so that it costs its row and not the
/// machine: more than any row asks for in its full form.
const CEILING_KIB: u64 = 6 << 20;

/// Time that the handler blocks, short and full form, in milliseconds. In the short form keepalive
/// finds the server gone within the block; with the defaults that takes 35 s.
const BLOCK_MS: (u64, u64) = (4000, 35_000);
const SHORT_KEEPALIVE_MS: &str = "500";
const BLOCKED_DEADLINE_MS: (&str, &str) = ("2000", "10000");

/// Returns the time in seconds for which an attack goes on after everything has been sent.
fn hold(scene: Scene, scale: Scale) -> Duration {
    let (quick, full) = match scene {
        // Longer than a newcomer waits.
        Scene::Server(Assault::ConnectFlood, _) => (4000, 20_000),
        // The time in which peers that make no progress have to be found.
        Scene::Server(Assault::UnreadAnswers | Assault::QueuedAnswers | Assault::HalfFrame, _) => {
            (4000, 90_000)
        }
        // Longer than a handshake may take.
        Scene::Server(Assault::HalfHello | Assault::SilentSockets, _) => (500, 15_000),
        Scene::Server(..)
        | Scene::Client(Trap::EmptyDownload | Trap::LogInjection | Trap::HtmlProxy) => (700, 5000),
        Scene::Client(_) => (6000, 30_000),
        Scene::BlockingHandler => (BLOCK_MS.0 + 500, BLOCK_MS.1 + 5000),
    };
    Duration::from_millis(scale.pick(quick, full))
}

/// The processes of a row.
struct RowProcesses {
    server: Process,
    client: Process,
    hostile: Option<Process>,
    victim: Victim,
    log: ProcessLog,
    /// Host and port of the server.
    authority: String,
}

/// The attacked process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Victim {
    Server,
    Client,
}

/// Shows a row.
///
/// # Errors
///
/// Returns an error if one of its processes cannot be started, ends, or says nothing.
pub(super) fn show(row: &Row, scale: Scale, watchdog: &Watchdog) -> Result<Observed, RigError> {
    watchdog.enter("starting the processes");
    let mut stage = RowProcesses::set(row.scene, scale)?;
    let period = Duration::from_millis(scale.pick(500, 3000));
    watchdog.enter("the time before the attack");
    std::thread::sleep(WARM_UP);
    let _: Summary = stage.cut()?;
    let begun = stage.usage()?;
    std::thread::sleep(period);
    let before = stage.cut()?;
    let rested = stage.usage()?;
    measure::reset_peak(stage.victim_id())?;
    let failed_before = measure::failed_connections()?;

    watchdog.enter_for("the attack", SENDING_LIMIT + hold(row.scene, scale) * 2);
    let attacked = Instant::now();
    stage.attack(row.scene, scale)?;
    let cut_short = stage.wait_for_attack(hold(row.scene, scale))?;
    let during = stage.cut()?;
    let worst = stage.usage()?;
    let standing: Standing = ask("server", &mut stage.server, REPORT)?;
    let deeds = stage.deeds()?;
    let lasted = attacked.elapsed();
    let failed = measure::failed_connections()?.saturating_sub(failed_before);

    watchdog.enter("the time after the attack");
    stage.hostile = None;
    std::thread::sleep(period);
    let after = stage.cut()?;
    let memory = Memory {
        before: rested.resident_kib,
        peak: worst.peak_kib,
        after: stage.usage()?.resident_kib,
    };
    let honest_rate = (rested.cpu - begun.cpu).div_f64(period.as_secs_f64());
    let attempts = match row.scene {
        Scene::Client(Trap::DeadPort | Trap::ManyAddresses) => Some(failed),
        Scene::Client(Trap::EmptyDownload | Trap::LogInjection) => None,
        Scene::Client(_) => Some(deeds.opened),
        _ => None,
    };
    Ok(Observed {
        before,
        during,
        after,
        memory,
        cpu: (worst.cpu - rested.cpu).saturating_sub(honest_rate.mul_f64(lasted.as_secs_f64())),
        deeds,
        attempts,
        standing,
        log: LogFindings::of(&stage.log.bytes()),
        cut_short,
    })
}

impl RowProcesses {
    /// Starts the processes, the hostile client excepted.
    fn set(scene: Scene, scale: Scale) -> Result<Self, RigError> {
        let block = scale.pick(BLOCK_MS.0, BLOCK_MS.1).to_string();
        let mut serve = vec!["serve", "--block-ms", &block];
        let mut call = vec!["call"];
        let (connections, memory);
        let (exposure, hostile);
        let mut trap = None;
        match scene {
            Scene::Server(_, Rules::FewConnections(count)) => {
                if scale == Scale::Quick {
                    connections = count.to_string();
                    serve.extend(["--connections", &connections]);
                }
            }
            Scene::Server(_, Rules::Memory(mib)) => {
                memory = mib.to_string();
                serve.extend(["--memory-mib", &memory]);
            }
            Scene::Server(_, Rules::Default) => {}
            Scene::Client(kind) => {
                let name = kind.name();
                let started = Process::start("hostile server", &["trap", &name, scale.name()])?;
                exposure = kind.exposure().name();
                hostile = started.1;
                call.extend(["--exposure", &exposure, "--hostile", &hostile]);
                trap = Some(started.0);
            }
            Scene::BlockingHandler => {
                let deadline = scale.pick(BLOCKED_DEADLINE_MS.0, BLOCKED_DEADLINE_MS.1);
                call.extend(["--exposure", "block", "--deadline-ms", deadline]);
                if scale == Scale::Quick {
                    serve.extend(["--keepalive-ms", SHORT_KEEPALIVE_MS]);
                    call.extend(["--keepalive-ms", SHORT_KEEPALIVE_MS]);
                }
            }
        }
        let (server, authority, server_log) = Process::start_logged("server", &serve)?;
        call.push(&authority);
        let (client, _calling, client_log) = Process::start_logged("honest client", &call)?;
        let (victim, log) = match scene {
            Scene::Client(_) => (Victim::Client, client_log),
            Scene::Server(..) | Scene::BlockingHandler => (Victim::Server, server_log),
        };
        Ok(Self { server, client, hostile: trap, victim, log, authority })
    }

    /// Begins the attack.
    fn attack(&mut self, scene: Scene, scale: Scale) -> Result<(), RigError> {
        match scene {
            Scene::Server(assault, _) => {
                let arguments = ["assault", &assault.name(), &self.authority, scale.name()];
                let (hostile, _attacking) = Process::start("hostile client", &arguments)?;
                self.hostile = Some(hostile);
            }
            Scene::Client(_) | Scene::BlockingHandler => drop(self.client.ask(EXPOSE)?),
        }
        Ok(())
    }

    /// Waits until everything has been sent, and as long as the attack is to go on then; says why
    /// if it is cut short.
    fn wait_for_attack(&mut self, hold: Duration) -> Result<Option<String>, RigError> {
        let began = Instant::now();
        let mut sent = None;
        loop {
            std::thread::sleep(LOOK_INTERVAL);
            let resident = self.usage()?.resident_kib;
            if resident > CEILING_KIB {
                return Ok(Some(format!("cut short: the victim has {} MiB", resident >> 10)));
            }
            if sent.is_none() && (self.deeds()?.is_done || began.elapsed() > SENDING_LIMIT) {
                sent = Some(Instant::now());
            }
            if sent.is_some_and(|sent| sent.elapsed() >= hold) {
                return Ok(None);
            }
        }
    }

    /// Returns the deeds of the hostile peer. Without one there are none, and they are done.
    fn deeds(&mut self) -> Result<Deeds, RigError> {
        match &mut self.hostile {
            Some(hostile) => ask("hostile peer", hostile, REPORT),
            None => Ok(Deeds { is_done: true, ..Deeds::default() }),
        }
    }

    fn cut(&mut self) -> Result<Summary, RigError> {
        ask("honest client", &mut self.client, CUT)
    }

    fn victim_id(&self) -> u32 {
        match self.victim {
            Victim::Server => self.server.id(),
            Victim::Client => self.client.id(),
        }
    }

    fn usage(&self) -> Result<Usage, RigError> {
        usage(self.victim_id())
    }
}
