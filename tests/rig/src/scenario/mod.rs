//! Servers are restarted, killed and slowed while clients call them: `cargo xtask scenario`.
//!
//! Servers are processes of their own on loopback, and the client is this one. `cluster` starts and
//! stops servers, `load` calls them, and `ledger` is the service. It writes down everything that it
//! executes, so every answer to a client can be checked. Each scenario prints counts and violations
//! of its rules.

mod certificates;
mod cluster;
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

pub use serve::{ServePlan, serve};

use crate::matrix::{Matrix, Verdict};

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

/// Shows scenarios one after the other. Returns true if all hold; one that cannot be shown does
/// not.
pub fn run(runtime: &Handle, scenarios: &[Scenario]) -> bool {
    let mut matrix = Matrix::start();
    for scenario in scenarios {
        let name = scenario.to_possible_value().map_or_else(String::new, |it| it.get_name().into());
        println!("== {name}");
        matrix.add(&name, |watchdog| {
            watchdog.enter_for("the scenario", SCENARIO_LIMIT);
            let shown = match scenario {
                Scenario::Rolling => rolling::show(runtime),
                Scenario::Tls => tls::show(runtime),
                Scenario::Skew => skew::show(runtime),
            };
            match shown {
                Ok(shown) => {
                    shown.left_out.iter().for_each(|part| println!("  shown without {part}"));
                    Verdict::on(&shown.complaints)
                }
                Err(error) => {
                    println!("  FAILED: {error}");
                    Verdict::Broken(1)
                }
            }
        });
        println!();
    }
    print!("{matrix}");
    matrix.holds()
}
