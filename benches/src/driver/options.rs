//! The arguments of a run.

use std::path::PathBuf;

use clap::Args;

use super::effort::Effort;
use super::place::Place;
use crate::figures::{GOALS, Goal, Group, goal};

/// The arguments of a run.
#[derive(Debug, Args)]
pub struct Options {
    /// Group of figures: those of TCP or of many connections on the host, or those of either over
    /// RDMA where there are devices.
    #[arg(long, value_enum, default_value_t = Group::Tcp)]
    pub group: Group,
    /// Measure this figure only, for example T2. May be repeated.
    #[arg(long, value_parser = parse_goal)]
    pub only: Vec<&'static Goal>,
    /// Leave this figure out. May be repeated.
    #[arg(long, value_parser = parse_goal)]
    pub except: Vec<&'static Goal>,
    /// Under five minutes.
    #[arg(long, conflicts_with = "full")]
    pub quick: bool,
    /// Takes as long as a night allows, with every peer in every measurement.
    #[arg(long)]
    pub full: bool,
    /// Number of rounds, instead of the length's own.
    #[arg(long)]
    pub rounds: Option<usize>,
    /// Length of one measurement in milliseconds, instead of the length's own.
    #[arg(long)]
    pub millis: Option<u64>,
    /// Put the figures into this file, in place of older ones with the same numbers.
    #[arg(long)]
    pub json: Option<PathBuf>,
    /// The program with the peers; without it, the one beside this program.
    #[arg(long)]
    pub peers: Option<PathBuf>,
    /// Commit to name in the figures. Default: the commit that git reports.
    #[arg(long)]
    pub commit: Option<String>,
    /// Devices to use.
    #[command(flatten)]
    pub place: Place,
}

impl Options {
    /// The figures that are asked for.
    #[must_use]
    pub fn goals(&self) -> Vec<&'static Goal> {
        let mut goals: Vec<&'static Goal> = if self.only.is_empty() {
            GOALS.iter().filter(|goal| goal.group == self.group).collect()
        } else {
            self.only.clone()
        };
        goals.retain(|goal| self.except.iter().all(|except| except.number != goal.number));
        goals
    }

    /// Returns the effort that the options ask for.
    #[must_use]
    pub fn effort(&self) -> Effort {
        let effort = match (self.quick, self.full) {
            (true, _) if self.goals().iter().any(|goal| goal.group.is_on_devices()) => {
                Effort::QUICK_RDMA
            }
            (true, _) => Effort::QUICK,
            (_, true) => Effort::FULL,
            _ => Effort::USUAL,
        };
        Effort {
            round_count: self.rounds.unwrap_or(effort.round_count).max(1),
            millis: self.millis.unwrap_or(effort.millis).max(1),
            ..effort
        }
    }
}

fn parse_goal(number: &str) -> Result<&'static Goal, String> {
    goal(number).ok_or_else(|| {
        let known: Vec<&str> = GOALS.iter().map(|goal| goal.number).collect();
        format!("there is no such figure; there are {}", known.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn parse(arguments: &[&str]) -> Options {
        let line = std::iter::once("farcall-bench").chain(arguments.iter().copied());
        Line::try_parse_from(line).unwrap().options
    }

    fn numbers(arguments: &[&str]) -> Vec<&'static str> {
        parse(arguments).goals().iter().map(|goal| goal.number).collect()
    }

    #[test]
    fn a_group_is_all_its_figures() {
        assert_eq!(
            numbers(&[]),
            [
                "T1", "T2", "T3", "T4", "T5", "T6", "T7", "T8", "T10", "T11", "T12", "T13", "T14",
                "T15", "T16"
            ]
        );
        assert_eq!(numbers(&["--group", "rdma"]).len(), 11);
        assert_eq!(numbers(&["--group", "scale"]), ["C1", "C2", "C3", "C4"]);
        assert_eq!(numbers(&["--group", "scale-rdma"]), ["C5", "C6", "C7"]);
        assert_eq!(numbers(&["--only", "t5", "--only", "T2"]), ["T5", "T2"]);
        assert_eq!(numbers(&["--group", "rdma", "--except", "R8"]).len(), 10);
    }

    #[test]
    fn figures_that_do_not_exist_are_refused_with_those_that_do() {
        let error = Line::try_parse_from(["farcall-bench", "--only", "T99"]).unwrap_err();
        assert!(error.to_string().contains("T1, T2"), "{error}");
    }

    #[test]
    fn lengths_differ_and_single_values_go_first() {
        let quick = parse(&["--quick"]).effort();
        let full = parse(&["--full"]).effort();
        assert!(quick.millis < full.millis && quick.round_count < full.round_count);
        assert!(quick.round_count >= 7, "fewer rounds are no median to quote");
        assert_eq!(parse(&["--quick", "--group", "rdma"]).effort(), Effort::QUICK_RDMA);
        assert_eq!(parse(&["--quick", "--only", "R1"]).effort(), Effort::QUICK_RDMA);
        let own = parse(&["--quick", "--rounds", "2", "--millis", "5"]).effort();
        assert_eq!((own.round_count, own.millis), (2, 5));
    }
}
