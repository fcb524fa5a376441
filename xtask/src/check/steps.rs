//! Running the steps.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, bail};
use farcall_testkit::process::bounded::{self, command_line};

use super::beside::{self, Beside};
use super::cost::Meter;
use super::step::CheckStep;
use super::summary::{StepOutcome, Summary};
use super::{api_page, unit, user_docs};
use crate::attack;
use crate::batch::Job;
use crate::bench;
use crate::book;
use crate::budgets;
use crate::cargo::{self, WORKSPACE};
use crate::deploy::{self, Checked};
use crate::faults;
use crate::hardware;
use crate::interop;
use crate::interrupt;
use crate::kernel::Series;
use crate::rdma_place::RdmaPlace;
use crate::rdma_programs::{self, RdmaProgram};
use crate::release;
use crate::scenario;
use crate::setup::{self, rust};

/// Sets up what `steps` need and runs them, all of them also after one has failed.
///
/// # Errors
///
/// Returns an error if the set-up fails, or a step does; each failure has been shown by then.
pub(crate) fn run(steps: &[CheckStep], kernel: Series) -> Result<()> {
    let place = RdmaPlace::find(kernel);
    let mut purposes: Vec<_> = steps.iter().flat_map(|step| step.purposes()).copied().collect();
    if steps.iter().any(|step| step.needs_devices()) {
        place.announce();
        purposes.extend(place.purposes());
    }
    setup::ensure(&purposes)?;
    let machine = RdmaPlace::Vm(kernel);
    let mut runner = Runner { place, machine, built: HashMap::new() };
    let mut summary = Summary::default();
    let (in_order, mut compiling) = beside::split(steps);
    let mut beside = None;
    for step in in_order {
        if step.mostly_waits() && !compiling.is_empty() {
            beside = Some(Beside::start(&std::mem::take(&mut compiling), kernel)?);
        }
        if step.is_measured() {
            wait_for(beside.take(), &mut summary);
        }
        println!("=== {step}: {}", step.description());
        let meter = Meter::start();
        let outcome =
            runner.run(step).unwrap_or_else(|error| StepOutcome::Failed(format!("{error:#}")));
        if let StepOutcome::Failed(reason) = &outcome {
            println!("=== {step} FAILED: {reason}");
        }
        summary.add(step, meter.read(), outcome);
        if interrupt::requested() {
            break;
        }
    }
    wait_for(beside, &mut summary);
    println!("\n{summary}");
    match summary.failed_count() {
        0 => Ok(()),
        1 => bail!("a step failed"),
        count => bail!("{count} steps failed"),
    }
}

/// Waits for the steps that run beside the others, if there are any.
fn wait_for(beside: Option<Beside>, summary: &mut Summary) {
    let Some(beside) = beside else { return };
    let meter = Meter::start();
    let outcome = beside.finish().unwrap_or_else(|error| StepOutcome::Failed(format!("{error:#}")));
    summary.add_beside(meter.read(), outcome);
}

/// Prints the steps and what each is for.
pub(crate) fn list(steps: &[CheckStep]) {
    for step in steps {
        println!("{step:<14} {}", step.description());
    }
}

struct Runner {
    place: RdmaPlace,
    /// The virtual machine, for what must not run on this host whatever devices it has.
    machine: RdmaPlace,
    /// The jobs of a step, once its programs are built.
    built: HashMap<&'static str, Vec<Job>>,
}

impl Runner {
    fn run(&mut self, step: CheckStep) -> Result<StepOutcome> {
        match step {
            CheckStep::Fmt => self.cargo(step, &["fmt", "--all", "--check"], &[]),
            CheckStep::Deny => self.deny(step),
            CheckStep::Clippy => {
                let lints = ["--", "-D", "warnings"];
                self.cargo(step, &[&["clippy", "--all-targets"], WORKSPACE, &lints].concat(), &[])
            }
            CheckStep::Doc => {
                let arguments = [&["doc", "--no-deps"], WORKSPACE].concat();
                user_docs::clear()?;
                self.cargo(step, &arguments, &[("RUSTDOCFLAGS", "-D warnings")])?;
                user_docs::check()?;
                api_page::check()?;
                book::build().map(|()| StepOutcome::Passed(None))
            }
            CheckStep::Linked => self.linked(step),
            CheckStep::Targets => self.targets(step),
            CheckStep::Unit => unit::run(step.limit()).map(|()| StepOutcome::Passed(None)),
            CheckStep::Package => self.package(step),
            CheckStep::Attack => attack::quick().map(|()| StepOutcome::Passed(None)),
            CheckStep::Scenario => scenario::short().map(|()| StepOutcome::Passed(None)),
            CheckStep::Interop => Ok(match interop::quick()? {
                Some(()) => StepOutcome::Passed(None),
                None => StepOutcome::Skipped("no Python, or no PyPI with grpcio".into()),
            }),
            CheckStep::Deploy => Ok(match deploy::check()? {
                Checked::Whole => StepOutcome::Passed(None),
                Checked::Partly(left_out) => StepOutcome::Passed(Some(left_out)),
                Checked::Nothing(left_out) => StepOutcome::Skipped(left_out),
            }),
            CheckStep::Budgets => budgets::run_on_host().map(|()| StepOutcome::Passed(None)),
            CheckStep::Sim => self.without_libibverbs(step),
            CheckStep::Miri => miri(step),
            CheckStep::Peers => {
                for workspace in [PEERS, BOOK] {
                    self.cargo(step, &[&["fmt", "--check"], workspace].concat(), &[])?;
                    let lints = ["--target-dir", "target", "--", "-D", "warnings"];
                    let clippy = [&["clippy", "--all-targets"], workspace, &lints].concat();
                    self.cargo(step, &clippy, &[])?;
                }
                let tests = [&["test", "--target-dir", "target"], BOOK].concat();
                self.cargo(step, &tests, &[])
            }
            CheckStep::BuildMeasured => {
                rdma_programs::build_measured([budgets::ON_HOST, budgets::PROGRAMS])?;
                Ok(StepOutcome::Passed(None))
            }
            CheckStep::BuildVm => self.build_all(),
            CheckStep::VmVerbs => self.on_devices("verbs", rdma_programs::VERBS),
            CheckStep::VmSuite => self.suite(),
            CheckStep::VmDemo => self.on_devices("demo", rdma_programs::DEMO),
            CheckStep::VmFaults => self.in_machine("faults", faults::QUICK),
            CheckStep::VmDoctor => self.in_machine("doctor", rdma_programs::DOCTOR),
            CheckStep::VmHardware => self.hardware(),
            CheckStep::VmBudgets => self.budgets(),
        }
    }

    fn cargo(
        &self,
        step: CheckStep,
        arguments: &[&str],
        variables: &[(&str, &str)],
    ) -> Result<StepOutcome> {
        let mut command = cargo::command(arguments);
        command.envs(variables.iter().copied());
        println!("{}", command_line(&command));
        bounded::run(&mut command, step.limit())?;
        Ok(StepOutcome::Passed(None))
    }

    /// Lints the RDMA crate without libibverbs, whose tests on the simulated device are part of
    /// `unit`. Lints and tests farcall without RDMA.
    fn without_libibverbs(&self, step: CheckStep) -> Result<StepOutcome> {
        let lints = ["--", "-D", "warnings"];
        let clippy = [&["clippy", "--all-targets"], UNOPTIMIZED].concat();
        let test = [TEST, UNOPTIMIZED].concat();
        self.cargo(step, &[&clippy, SIMULATED, &lints].concat(), &[])?;
        self.cargo(step, &[&clippy, WITHOUT_RDMA, &lints].concat(), &[])?;
        // The step `unit` runs the other tests, which do not depend on these features.
        let tests = ["--lib", "--test", "without_rdma"];
        self.cargo(step, &[&test, WITHOUT_RDMA, &tests].concat(), &[])?;
        let simulated_alone = ["--features", "sim"];
        self.cargo(step, &[&["check"], UNOPTIMIZED, WITHOUT_RDMA, &simulated_alone].concat(), &[])
    }

    /// Lints the provider over rdma-sys, and compares our declarations of the ABI with it.
    fn linked(&self, step: CheckStep) -> Result<StepOutcome> {
        let variables = match setup::libclang() {
            Ok(variables) => variables,
            Err(error) => return Ok(StepOutcome::Skipped(format!("{error:#}"))),
        };
        let variables: Vec<_> =
            variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let lints = ["--", "-D", "warnings"];
        let clippy = [&["clippy", "--lib"], UNOPTIMIZED, LINKED, &lints].concat();
        self.cargo(step, &clippy, &variables)?;
        self.cargo(step, &[TEST, UNOPTIMIZED, LINKED, &["--lib", "sys::"]].concat(), &variables)
    }

    /// Checks what users build for other targets and with the oldest Rust.
    fn targets(&self, step: CheckStep) -> Result<StepOutcome> {
        let mut left_out = Vec::new();
        let mut arguments = vec!["check", "--package", "farcall"];
        for target in TARGETS {
            match rust::add_target(target) {
                Ok(()) => arguments.extend(["--target", target]),
                Err(error) => left_out.push(format!("{error:#}")),
            }
        }
        let has_targets = left_out.len() < TARGETS.len();
        if has_targets {
            self.cargo(step, &arguments, &[])?;
        }
        left_out.extend(self.other_systems(step)?);
        let oldest = rust::add_oldest();
        if oldest.is_ok() {
            for packages in [FOR_USERS, BESIDE_FARCALL, COMMAND] {
                let mut command = rust::with_oldest("cargo");
                command.arg("check").args(packages);
                println!("{}", command_line(&command));
                bounded::run(&mut command, step.limit())?;
            }
        }
        let has_oldest = oldest.is_ok();
        left_out.extend(oldest.err().map(|error| format!("{error:#}")));
        let remark = left_out.join("; ");
        Ok(match has_targets || has_oldest {
            false => StepOutcome::Skipped(remark),
            true => StepOutcome::Passed((!remark.is_empty()).then_some(remark)),
        })
    }

    /// Checks the release tooling, packs the crates that users need and uses the packages.
    fn package(&self, step: CheckStep) -> Result<StepOutcome> {
        let lints = ["--", "-D", "warnings"];
        self.cargo(step, &[&["clippy", "--all-targets"], release::PACKAGE, &lints].concat(), &[])?;
        self.cargo(step, &[TEST, release::PACKAGE].concat(), &[])?;
        if let Some(reason) = cargo::too_old_to_pack()? {
            return Ok(StepOutcome::Passed(Some(reason)));
        }
        let tooling = release::build()?;
        bounded::run(Command::new(&tooling).arg("package"), step.limit())?;
        bounded::run(Command::new(&tooling).arg("publish"), step.limit())?;
        Ok(StepOutcome::Passed(None))
    }

    /// Checks what users build for macOS and Windows. Returns the reasons for what is left out.
    fn other_systems(&self, step: CheckStep) -> Result<Vec<String>> {
        let mut left_out = Vec::new();
        match rust::add_target(MACOS) {
            Ok(()) => {
                for packages in [FOR_USERS, BESIDE_FARCALL, WITHOUT_RDMA] {
                    let arguments = [&["check", "--target", MACOS], packages].concat();
                    self.cargo(step, &arguments, &[])?;
                }
            }
            Err(error) => left_out.push(format!("{error:#}")),
        }
        match rust::add_target(WINDOWS) {
            Ok(()) => {
                let codegen = ["check", "--target", WINDOWS, "--package", "rpc-codegen"];
                self.cargo(step, &codegen, &[])?;
                windows_refusal(step)?;
            }
            Err(error) => left_out.push(format!("{error:#}")),
        }
        Ok(left_out)
    }

    fn deny(&self, step: CheckStep) -> Result<StepOutcome> {
        let checks = ["check", "licenses", "bans", "sources"];
        self.cargo(step, &[&["deny"], &checks[..]].concat(), &[])?;
        self.cargo(step, &[&["deny"], PEERS, &checks].concat(), &[])?;
        self.cargo(step, &[&["deny"], BOOK, &checks].concat(), &[])?;
        if !has_advisories() {
            // Fetching them would make the outcome depend on the day and on a host that may be out
            // of reach.
            let remark = "advisories skipped: no database fetched by cargo-deny on this machine";
            return Ok(StepOutcome::Passed(Some(remark.into())));
        }
        let advisories = ["check", "advisories"];
        self.cargo(step, &[&["deny", "--offline"], &advisories[..]].concat(), &[])?;
        self.cargo(step, &[&["deny", "--offline"], PEERS, &advisories].concat(), &[])?;
        self.cargo(step, &[&["deny", "--offline"], BOOK, &advisories].concat(), &[])
    }

    fn build_all(&mut self) -> Result<StepOutcome> {
        let tables = [
            ("verbs", rdma_programs::VERBS),
            ("suite", rdma_programs::SUITE),
            ("demo", rdma_programs::DEMO),
            ("faults", faults::QUICK),
            ("doctor", rdma_programs::DOCTOR),
            ("hardware", hardware::DRY),
        ];
        let mut count = 0;
        for (name, programs) in tables {
            count += self.jobs(name, programs)?.len();
        }
        Ok(StepOutcome::Passed(Some(format!("{count} programs"))))
    }

    fn on_devices(&mut self, name: &'static str, programs: &[RdmaProgram]) -> Result<StepOutcome> {
        if programs.is_empty() {
            return Ok(StepOutcome::Skipped(
                "the table of RDMA programs has none for this step".into(),
            ));
        }
        let jobs = self.jobs(name, programs)?.to_vec();
        self.place.run(&jobs)?;
        Ok(StepOutcome::Passed(None))
    }

    /// Runs the suite on devices. A trace of it begins in Python where that can be had.
    fn suite(&mut self) -> Result<StepOutcome> {
        let mut jobs = self.jobs("suite", rdma_programs::SUITE)?.to_vec();
        let python = interop::environment();
        if let Ok(python) = &python {
            let variable = (PYTHON_VARIABLE.to_owned(), python.display().to_string());
            jobs.iter_mut().for_each(|job| job.variables.push(variable.clone()));
        }
        self.place.run(&jobs)?;
        let remark = python.err().map(|error| format!("no trace from Python: {error:#}"));
        Ok(StepOutcome::Passed(remark))
    }

    /// Runs programs in the virtual machine, whatever devices this host has.
    fn in_machine(&mut self, name: &'static str, programs: &[RdmaProgram]) -> Result<StepOutcome> {
        let jobs = self.jobs(name, programs)?.to_vec();
        self.machine.run(&jobs)?;
        Ok(StepOutcome::Passed(None))
    }

    fn hardware(&mut self) -> Result<StepOutcome> {
        let RdmaPlace::Vm(kernel) = self.machine else { bail!("the machine is a virtual one") };
        hardware::dry(self.jobs("hardware", hardware::DRY)?, kernel)?;
        Ok(StepOutcome::Passed(None))
    }

    fn budgets(&mut self) -> Result<StepOutcome> {
        if !matches!(self.machine, RdmaPlace::Vm(budgets::KERNEL)) {
            let reason = format!("the budgets are those of kernel {}", budgets::KERNEL);
            return Ok(StepOutcome::Skipped(reason));
        }
        budgets::run(self.jobs("budgets", budgets::PROGRAMS)?)?;
        Ok(StepOutcome::Passed(None))
    }

    /// The jobs of a step, built at the first call.
    fn jobs(&mut self, name: &'static str, programs: &[RdmaProgram]) -> Result<&[Job]> {
        if !self.built.contains_key(name) {
            let addresses = self.place.addresses();
            let mut jobs = Vec::new();
            for program in programs {
                jobs.extend(program.build(&addresses)?);
            }
            self.built.insert(name, jobs);
        }
        Ok(&self.built[name])
    }
}

/// The variable by which the suite knows a Python with gRPC's packages.
const PYTHON_VARIABLE: &str = "FARCALL_PYTHON";

/// The peers of the benchmark, which are a workspace of their own.
const PEERS: &[&str] = &["--manifest-path", bench::PEERS];

/// The program that renders the book, a workspace of its own, too.
const BOOK: &[&str] = &["--manifest-path", book::MANIFEST];

/// All of them, so that one failure does not hide the others.
const TEST: &[&str] = &["test", "--no-fail-fast"];

/// The crates that users need, as they have them by default.
const FOR_USERS: &[&str] = &["--package", "farcall", "--package", "rpc-codegen"];

/// The crates beside farcall. Checked with it, they would give it their features.
const BESIDE_FARCALL: &[&str] = &[
    "--package",
    "farcall-etcd",
    "--package",
    "farcall-service-config",
    "--package",
    "farcall-xds",
];

/// The command. It has TLS, which needs a C compiler for its target.
const COMMAND: &[&str] = &["--package", "farcall-cli"];

/// Linux targets that farcall supports, beside x86-64 with glibc. `rpc-codegen` has no code for an
/// architecture or a C library, so its checks for macOS and Windows cover these too.
const TARGETS: &[&str] =
    &["aarch64-unknown-linux-gnu", "aarch64-unknown-linux-musl", "x86_64-unknown-linux-musl"];

/// The system that has everything but RDMA.
const MACOS: &str = "aarch64-apple-darwin";

/// The system that farcall refuses, and `rpc-codegen` supports.
const WINDOWS: &str = "x86_64-pc-windows-msvc";

/// The one error of a build for Windows.
const REFUSAL: &str = "error: farcall does not support Windows: build it for Linux or macOS";

/// Turns off the optimization of our crates. A step with a selection of its own compiles them for
/// itself, and compiling costs more than its tests gain.
const UNOPTIMIZED: &[&str] = &[
    "--config",
    "profile.dev.package.farcall-core.opt-level=0",
    "--config",
    "profile.dev.package.rpc-transport-rdma.opt-level=0",
    "--config",
    "profile.dev.package.rpc-transport-tcp.opt-level=0",
    "--config",
    "profile.dev.package.farcall.opt-level=0",
];

/// The RDMA crate over rdma-sys, whose bindings its own declarations are compared with.
const LINKED: &[&str] = &["--package", "rpc-transport-rdma", "--features", "rdma-sys"];

/// The RDMA crate without what needs libibverbs.
const SIMULATED: &[&str] =
    &["--package", "rpc-transport-rdma", "--no-default-features", "--features", "sim"];

/// Arguments of a build without the default features.
const WITHOUT_RDMA: &[&str] = &["--package", "farcall", "--no-default-features"];

/// The tests that Miri runs: those of objects that own what a device uses.
const IN_MIRI: &[&str] = &[
    "--lib",
    "--",
    "sim::",
    "verbs::simulated",
    "verbs::queue_pair",
    "verbs::shared_receive_queue",
];

/// Checks that farcall for Windows fails with one sentence, beside cargo's own.
///
/// # Errors
///
/// Returns an error if it compiles, or if the compiler reports anything else.
fn windows_refusal(step: CheckStep) -> Result<()> {
    let mut command = cargo::command(["check", "--target", WINDOWS, "--package", "farcall"]);
    command.args(["--quiet", "--message-format", "short"]);
    println!("{} (has to fail)", command_line(&command));
    let Err(error) = bounded::tool_output(&mut command, step.limit()) else {
        bail!("farcall compiles for Windows, but must refuse to");
    };
    let error = error.to_string();
    let count = error.matches("error: ").count() + error.matches("error[").count();
    if count != 2 || !error.contains(REFUSAL) || !error.contains("error: could not compile") {
        bail!("farcall for Windows must fail with {REFUSAL:?} alone: {error}");
    }
    Ok(())
}

/// Runs tests of the simulated device in Miri, if a nightly toolchain has it.
fn miri(step: CheckStep) -> Result<StepOutcome> {
    let miri = ["run", "nightly", "cargo", "miri"];
    let version = Command::new("rustup").args(miri).arg("--version").output();
    if !version.is_ok_and(|output| output.status.success()) {
        return Ok(StepOutcome::Skipped("no nightly toolchain with Miri".into()));
    }
    let mut command = Command::new("rustup");
    command.args(miri).arg("test").args(SIMULATED).args(IN_MIRI);
    println!("{}", command_line(&command));
    bounded::run(&mut command, step.limit())?;
    Ok(StepOutcome::Passed(None))
}

/// Returns true if cargo-deny has a database of vulnerable crates on this machine.
fn has_advisories() -> bool {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let cargo = std::env::var_os("CARGO_HOME").map_or_else(|| home.join(".cargo"), PathBuf::from);
    // A failed attempt leaves a lock file alone.
    std::fs::read_dir(cargo.join("advisory-dbs"))
        .is_ok_and(|entries| entries.flatten().any(|entry| entry.path().is_dir()))
}
