//! Servers are restarted, killed and slowed while clients call them: `cargo xtask scenario`.
//!
//! Servers are processes of their own on loopback, and the client is this one. `cluster` starts and
//! stops servers, `load` calls them, and `ledger` is the service. It writes down everything that it
//! executes, so every answer to a client can be checked. Each scenario prints counts and violations
//! of its rules.

mod certificates;
mod cluster;
mod error;
mod ledger;
mod load;
mod names;
mod registry;
mod rolling;
mod serve;
mod skew;
mod tls;

use std::time::Duration;

use clap::ValueEnum;
use tokio::runtime::Handle;

pub use error::ScenarioError;
pub use serve::{ServePlan, serve};

use crate::conductor::watchdog::Watchdog;

/// Maximum time of any scenario. The longest takes a few seconds.
const SCENARIO_LIMIT: Duration = Duration::from_secs(240);

/// A scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Scenario {
    /// Four servers are restarted one by one under load, and then killed one by one.
    Rolling,
    /// TLS settings that are wrong, each with what a user reads, and certificates that are rotated
    /// under load.
    Tls,
    /// One of four servers is ten times slower than the others.
    Skew,
}

impl Scenario {
    /// Those whose verdict no load on the machine can change.
    pub const SHORT: [Self; 2] = [Self::Rolling, Self::Tls];

    /// All of them.
    pub const ALL: [Self; 3] = [Self::Rolling, Self::Tls, Self::Skew];
}

/// The result of a scenario.
#[derive(Debug, Default)]
struct Shown {
    /// Violations of its rules, as text.
    complaints: Vec<String>,
    /// Parts that this machine cannot show.
    left_out: Vec<&'static str>,
}

impl Shown {
    /// Complains unless something holds.
    fn expect(&mut self, holds: bool, complaint: impl FnOnce() -> String) {
        if !holds {
            let complaint = complaint();
            println!("  BROKEN: {complaint}");
            self.complaints.push(complaint);
        }
    }
}

/// Shows scenarios one after the other, and tells whether all hold.
///
/// # Errors
///
/// When one cannot be shown.
pub fn run(runtime: &Handle, scenarios: &[Scenario]) -> Result<bool, ScenarioError> {
    let watchdog = Watchdog::start();
    let mut broken = 0;
    for scenario in scenarios {
        let name = scenario.to_possible_value().map_or_else(String::new, |it| it.get_name().into());
        println!("== {name}");
        watchdog.enter_row(&name);
        watchdog.enter_for("the scenario", SCENARIO_LIMIT);
        let shown = match scenario {
            Scenario::Rolling => rolling::show(runtime),
            Scenario::Tls => tls::show(runtime),
            Scenario::Skew => skew::show(runtime),
        }?;
        let verdict = if shown.complaints.is_empty() { "holds" } else { "DOES NOT HOLD" };
        let without = match shown.left_out.join(", ") {
            none if none.is_empty() => none,
            some => format!(", without {some}"),
        };
        println!("{name}: {verdict}{without}\n");
        broken += usize::from(!shown.complaints.is_empty());
    }
    println!("{} scenarios, {broken} broken", scenarios.len());
    Ok(broken == 0)
}
