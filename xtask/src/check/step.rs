//! The steps by name, in the order in which they run: what fails soonest comes first.

use std::fmt;
use std::time::Duration;

use clap::ValueEnum;

use crate::setup::Purpose;

/// One step of `cargo xtask test`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CheckStep {
    /// Formatting.
    Fmt,
    /// Licences, banned crates and sources.
    Deny,
    /// Lints, with warnings as errors.
    Clippy,
    /// Documentation, with warnings as errors, and that farcall's names nothing that it does not
    /// export. The book, and that its links lead somewhere.
    Doc,
    /// The RDMA crate linked with libibverbs through rdma-sys: lints, and our declarations of the
    /// ABI against its bindings.
    Linked,
    /// Builds for other targets and with the oldest Rust, where rustup has them.
    Targets,
    /// All tests that need no RDMA device, documentation's examples and `tidy` among them.
    Unit,
    /// The packages of the crates that users need, and a crate that uses them.
    Package,
    /// The short rows of the attacks: hostile peers beside honest ones, on loopback.
    Attack,
    /// Python's gRPC client against the port of a farcall server, where PyPI has its packages.
    Interop,
    /// The manifests of `deploy/` against Kubernetes' schemas, where PyPI has those, and the unit
    /// against systemd.
    Deploy,
    /// Servers that are restarted and killed under load, and TLS settings that are wrong, with real
    /// processes on loopback.
    Scenario,
    /// The RDMA crate without libibverbs: lints. farcall without RDMA: lints and tests.
    Sim,
    /// The verbs on the simulated device in Miri, where that is installed.
    Miri,
    /// The peers of the benchmark, as far as they need no compiler of their own, and the program
    /// that renders the book: lints.
    Peers,
    /// Builds the program that the budgets measure, with link-time optimization.
    BuildMeasured,
    /// Builds what the following steps run.
    BuildVm,
    /// Tests of the verbs, on RDMA devices.
    VmVerbs,
    /// The suite of behaviours over RDMA, on RDMA devices.
    VmSuite,
    /// The demo, on RDMA devices.
    VmDemo,
    /// The short rows of the fault matrix, in the virtual machine.
    VmFaults,
    /// The causes that keep a host off RDMA, put into the virtual machine: `farcall doctor` names
    /// each, with its fix.
    VmDoctor,
    /// The rows of `cargo xtask hardware` between two virtual machines.
    VmHardware,
    /// Counts a call's system calls and instructions in an optimised build.
    Budgets,
    /// The instructions that calls over RDMA take against their budgets, and what greedy clients
    /// get done, in the virtual machine.
    VmBudgets,
}

impl CheckStep {
    /// Returns what must be set up first. The places with RDMA devices have needs of their own.
    pub(super) fn purposes(self) -> &'static [Purpose] {
        match self {
            Self::Fmt | Self::Deny => &[Purpose::Checks],
            Self::Clippy => &[Purpose::Checks, Purpose::Build],
            Self::Doc
            | Self::Targets
            | Self::Package
            | Self::Attack
            | Self::Interop
            | Self::Deploy
            | Self::Scenario
            | Self::BuildMeasured
            | Self::BuildVm => &[Purpose::Build],
            Self::Budgets => &[Purpose::Build, Purpose::Budgets],
            // None has anything to do with a library of the system.
            Self::Sim | Self::Peers => &[Purpose::Checks],
            Self::Miri => &[],
            Self::Linked => &[Purpose::Checks, Purpose::Build, Purpose::Headers, Purpose::Linked],
            // The tests of xtask pack an initramfs; those of the RDMA crate compile C.
            Self::Unit => &[Purpose::Build, Purpose::Headers, Purpose::Vm],
            Self::VmVerbs
            | Self::VmSuite
            | Self::VmDemo
            | Self::VmFaults
            | Self::VmDoctor
            | Self::VmHardware
            | Self::VmBudgets => &[Purpose::Build, Purpose::Vm],
        }
    }

    /// Returns true if the step runs programs on RDMA devices.
    pub(super) fn needs_devices(self) -> bool {
        matches!(
            self,
            Self::BuildVm
                | Self::VmVerbs
                | Self::VmSuite
                | Self::VmDemo
                | Self::VmFaults
                | Self::VmDoctor
                | Self::VmHardware
                | Self::VmBudgets
        )
    }

    /// Returns true if the step leaves processors idle: it runs real processes, or the virtual
    /// machine.
    pub(super) fn mostly_waits(self) -> bool {
        matches!(
            self,
            Self::Attack
                | Self::Interop
                | Self::Scenario
                | Self::VmVerbs
                | Self::VmSuite
                | Self::VmDemo
                | Self::VmFaults
                | Self::VmDoctor
                | Self::VmHardware
        )
    }

    /// Returns true if the step does little but compile, and only the measured steps depend on it.
    pub(super) fn only_compiles(self) -> bool {
        matches!(
            self,
            Self::Linked
                | Self::Targets
                | Self::Package
                | Self::Sim
                | Self::Peers
                | Self::BuildMeasured
        )
    }

    /// Returns true if the step runs what `build-measured` builds.
    pub(super) fn is_measured(self) -> bool {
        matches!(self, Self::Budgets | Self::VmBudgets)
    }

    /// The bound on each cargo command of the step: several times what it takes from nothing on two
    /// cores.
    pub(super) fn limit(self) -> Duration {
        Duration::from_secs(match self {
            Self::Fmt => 60,
            Self::Deny => 300,
            Self::Clippy | Self::Doc | Self::Linked | Self::Targets | Self::Sim | Self::Peers => {
                1200
            }
            Self::Unit | Self::Miri => 2400,
            // They have bounds of their own for building and for running.
            Self::Package
            | Self::Attack
            | Self::Interop
            | Self::Deploy
            | Self::Scenario
            | Self::Budgets
            | Self::BuildMeasured
            | Self::BuildVm
            | Self::VmVerbs
            | Self::VmSuite
            | Self::VmDemo
            | Self::VmFaults
            | Self::VmDoctor
            | Self::VmHardware
            | Self::VmBudgets => crate::rdma_programs::BUILD_LIMIT.as_secs(),
        })
    }

    /// The processor time that it takes from nothing, as measured on a machine of two cores. Steps
    /// of a few seconds have none.
    pub(super) fn record(self) -> Option<Duration> {
        let seconds = match self {
            Self::Fmt | Self::Deny | Self::Miri | Self::Deploy => return None,
            Self::Clippy => 330,
            Self::Doc => 190,
            Self::Linked => 200,
            Self::Targets => 290,
            Self::Unit => 1150,
            Self::Package => 95,
            Self::Attack => 50,
            Self::Interop => 75,
            Self::Scenario => 60,
            Self::Budgets => 40,
            Self::Sim => 200,
            Self::Peers => 110,
            Self::BuildMeasured => 300,
            Self::BuildVm => 60,
            Self::VmVerbs => 110,
            Self::VmSuite => 390,
            Self::VmDemo => 110,
            Self::VmFaults => 150,
            Self::VmDoctor => 60,
            Self::VmHardware => 290,
            Self::VmBudgets => 115,
        };
        Some(Duration::from_secs(seconds))
    }

    /// Returns one line on the purpose of the step.
    pub(super) fn description(self) -> String {
        let value = self.to_possible_value();
        value.and_then(|value| value.get_help().map(ToString::to_string)).unwrap_or_default()
    }
}

impl fmt::Display for CheckStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        f.pad(value.as_ref().map_or("", |value| value.get_name()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_has_a_name_and_a_description() {
        for &step in CheckStep::value_variants() {
            assert!(!step.to_string().is_empty());
            assert!(!step.description().is_empty(), "{step}");
        }
        assert_eq!(CheckStep::BuildVm.to_string(), "build-vm");
    }
}
