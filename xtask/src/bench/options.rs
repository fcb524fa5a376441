//! The figures to measure, and the driver's arguments for them.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;

/// Arguments of `cargo xtask bench`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct BenchOptions {
    /// Measure this group only. May be repeated.
    #[arg(long, value_enum)]
    group: Vec<Group>,
    /// Measure this figure only, for example T2. May be repeated.
    #[arg(long, value_name = "NUMBER")]
    only: Vec<String>,
    /// Under five minutes for each group.
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// Takes as long as a night allows, with every peer in every measurement.
    #[arg(long)]
    full: bool,
    /// Put the figures into this file, in place of older ones with the same numbers.
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
}

/// Figures that are measured in one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Group {
    /// TCP over loopback, on this host.
    Tcp,
    /// RDMA devices: this host's, or those of the virtual machine.
    Rdma,
    /// Many connections, over TCP on this host and over RDMA devices.
    Scale,
}

impl Group {
    /// First letter of its figures' numbers.
    fn letter(self) -> char {
        match self {
            Self::Tcp => 'T',
            Self::Rdma => 'R',
            Self::Scale => 'C',
        }
    }
}

impl BenchOptions {
    /// The figures of a group that are asked for one by one.
    pub(super) fn only_of(&self, group: Group) -> Vec<String> {
        let is_of = |number: &&String| number.to_uppercase().starts_with(group.letter());
        self.only.iter().filter(is_of).cloned().collect()
    }

    /// Returns true if any figure of a group is to be measured.
    pub(super) fn wants(&self, group: Group) -> bool {
        let is_chosen = self.group.is_empty() || self.group.contains(&group);
        is_chosen && (self.only.is_empty() || !self.only_of(group).is_empty())
    }

    /// The arguments of the driver for a group.
    pub(super) fn arguments(&self, group: Group) -> Vec<String> {
        self.with_file(self.arguments_without_file(group, &self.only_of(group)))
    }

    /// `arguments` with the file that figures are put into.
    pub(super) fn with_file(&self, mut arguments: Vec<String>) -> Vec<String> {
        if let Some(file) = &self.json {
            arguments.extend(["--json".to_owned(), file.display().to_string()]);
        }
        arguments
    }

    /// The arguments for these figures, or for all when there are none, without the file that they
    /// are put into.
    pub(super) fn arguments_without_file(&self, group: Group, only: &[String]) -> Vec<String> {
        let name = group.to_possible_value();
        self.arguments_of(name.as_ref().map_or("", |value| value.get_name()), only)
    }

    /// The same for a group that the driver calls `name`.
    pub(super) fn arguments_of(&self, name: &str, only: &[String]) -> Vec<String> {
        let mut arguments = vec!["--group".to_owned(), name.to_owned()];
        for number in only {
            arguments.extend(["--only".to_owned(), number.clone()]);
        }
        arguments.extend(self.quick.then(|| "--quick".to_owned()));
        arguments.extend(self.full.then(|| "--full".to_owned()));
        arguments
    }

    /// Several times what the driver should take.
    pub(super) fn limit(&self) -> Duration {
        Duration::from_secs(match (self.quick, self.full) {
            (true, _) => 900,
            (_, true) => 6 * 3600,
            _ => 3600,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl BenchOptions {
        /// A short run of these figures.
        pub(crate) fn quick(only: &[&str]) -> Self {
            let only = only.iter().map(|&number| number.to_owned()).collect();
            Self { group: Vec::new(), only, quick: true, full: false, json: None }
        }
    }

    #[test]
    fn figures_decide_which_groups_there_are() {
        let groups = |only: &[&str]| {
            let options = BenchOptions::quick(only);
            [Group::Tcp, Group::Rdma].map(|group| options.wants(group))
        };
        assert_eq!(groups(&[]), [true, true]);
        assert_eq!(groups(&["r1"]), [false, true]);
        assert_eq!(groups(&["T1", "R1"]), [true, true]);
        assert!(BenchOptions::quick(&["c5"]).wants(Group::Scale));
        let tcp = BenchOptions { group: vec![Group::Tcp], ..BenchOptions::quick(&[]) };
        assert!(tcp.wants(Group::Tcp) && !tcp.wants(Group::Rdma));
    }

    #[test]
    fn the_driver_is_told_what_was_asked_for() {
        let options = BenchOptions {
            group: Vec::new(),
            only: vec!["T1".into(), "T2".into()],
            quick: true,
            full: false,
            json: Some("figures.json".into()),
        };
        let line = options.arguments(Group::Tcp).join(" ");
        assert_eq!(line, "--group tcp --only T1 --only T2 --quick --json figures.json");
        assert!(options.limit() < BenchOptions { quick: false, ..options.clone() }.limit());
    }
}
