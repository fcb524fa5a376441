//! The table of programs that run on RDMA devices, and their builds.

use std::time::Duration;

use anyhow::{Result, bail};

use crate::batch::Job;
use crate::cargo::{self, Executable, WORKSPACE};
use crate::rdma_place::REQUIRED_VARIABLE;

/// A build of the whole RDMA crate and what stands above it, from nothing, on a slow machine.
pub(crate) const BUILD_LIMIT: Duration = Duration::from_secs(1800);

/// A build of a program that is not going to be changed: without what only a rebuild or a debugger
/// needs.
const BUILT_ONCE: &[&str] =
    &["build", "--config", "build.incremental=false", "--config", "profile.dev.debug=false"];

/// The tests of the verbs. The unit tests of the crate use no device: the step `unit` runs them.
pub(crate) const VERBS: &[RdmaProgram] = &[RdmaProgram {
    package: "rpc-transport-rdma",
    target: Target::Test("verbs"),
    arguments: &[],
    limit_seconds: 900,
}];

/// The suite of behaviours that every transport must show, over RDMA.
pub(crate) const SUITE: &[RdmaProgram] = &[
    RdmaProgram {
        package: "farcall-suite",
        target: Target::Test("rdma"),
        // One at a time: a behaviour's bound counts what its neighbours take on few processors.
        arguments: &["--test-threads=1"],
        limit_seconds: 600,
    },
    RdmaProgram {
        package: "farcall-suite",
        target: Target::Test("rdma_path"),
        arguments: &[],
        limit_seconds: 1200,
    },
    RdmaProgram {
        package: "farcall-suite",
        target: Target::Test("rdma_failover"),
        arguments: &["--nocapture"],
        limit_seconds: 300,
    },
    // Only the trace over real devices: the others need none.
    RdmaProgram {
        package: "farcall-suite",
        target: Target::Test("traces"),
        arguments: &["--nocapture", "python"],
        limit_seconds: 180,
    },
    RdmaProgram {
        package: "farcall-examples",
        target: Target::Test("config"),
        arguments: &["--nocapture"],
        limit_seconds: 120,
    },
    RdmaProgram {
        package: "farcall-cli",
        target: Target::Test("command"),
        arguments: &["--nocapture", "--test-threads=1", "device"],
        limit_seconds: 180,
    },
    RdmaProgram {
        package: "moved-after",
        target: Target::Test("moved"),
        arguments: &["--nocapture"],
        limit_seconds: 120,
    },
    // Behind the others: these pull the cable between the devices, and take devices away.
    RdmaProgram {
        package: "farcall-suite",
        target: Target::Test("rdma_devices"),
        arguments: &["--nocapture"],
        limit_seconds: 900,
    },
    RdmaProgram {
        package: "farcall-suite",
        target: Target::Test("rdma_liveness"),
        arguments: &["--nocapture"],
        limit_seconds: 300,
    },
];

/// The demo, as one of the checks: every transport, with values on either side of the length from
/// which they travel by READ. It checks bytes, for which a few rounds do.
pub(crate) const DEMO: &[RdmaProgram] = &[RdmaProgram {
    package: "farcall-demo",
    target: Target::Bin { name: "kv-demo", test: "demo" },
    arguments: &[
        "--emulated",
        "--calls",
        "20",
        "--sizes",
        "64,1024,65536,1048576,8388608,67108864",
        "inproc://kv",
        "tcp://127.0.0.1:0",
        "rdma://{server}:0",
        "auto://{server}:0",
    ],
    limit_seconds: 600,
}];

/// The causes that keep a host off RDMA, put into the virtual machine. It makes devices, namespaces
/// and rules, so it runs on no host.
pub(crate) const DOCTOR: &[RdmaProgram] = &[RdmaProgram {
    package: "farcall-cli",
    target: Target::Test("causes"),
    arguments: &["--nocapture"],
    limit_seconds: 600,
}];

/// The variable by which the suite knows where its servers listen.
pub(crate) const SERVER_VARIABLE: &str = "FARCALL_RDMA_SERVER";

/// One entry of the table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RdmaProgram {
    /// The package that holds it.
    pub(crate) package: &'static str,
    /// The target of the package to run.
    pub(crate) target: Target,
    /// Its arguments. `{server}` becomes the address of the device on which servers listen.
    pub(crate) arguments: &'static [&'static str],
    /// After how many seconds each of its executables is killed.
    pub(crate) limit_seconds: u64,
}

/// A target of a package.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Target {
    /// One integration test.
    Test(&'static str),
    /// One program as tests are built, and an integration test of its package, with which it is.
    Bin { name: &'static str, test: &'static str },
    /// One program with the features of its package alone.
    Alone(&'static str),
    /// One program as it is measured: with link-time optimisation and the features of its package
    /// alone.
    Measured(&'static str),
}

/// Builds the measured programs of `tables` in one run of cargo, which links as many at a time as
/// there are processors.
///
/// # Errors
///
/// Returns an error if the build fails.
pub(crate) fn build_measured(
    tables: impl IntoIterator<Item = &'static [RdmaProgram]>,
) -> Result<()> {
    let programs: Vec<_> = tables.into_iter().flatten().collect();
    let mut arguments = vec!["build", "--release"];
    for RdmaProgram { package, target, .. } in programs {
        if let Target::Measured(name) = target {
            arguments.extend(["--package", package, "--bin", name]);
        }
    }
    cargo::executables(&arguments, BUILD_LIMIT).map(drop)
}

impl RdmaProgram {
    /// Builds it and returns a job for each of its executables.
    ///
    /// # Errors
    ///
    /// Returns an error if the build fails, or gives nothing to run.
    pub(crate) fn build(&self, addresses: &[String; 2]) -> Result<Vec<Job>> {
        let arguments = self.cargo_arguments();
        let mut executables = cargo::executables(&arguments, BUILD_LIMIT)?;
        executables.retain(|executable| self.is_wanted(executable));
        if executables.is_empty() {
            bail!("`cargo {}` built nothing that can be run", arguments.join(" "));
        }
        Ok(executables.into_iter().map(|executable| self.job(executable, addresses)).collect())
    }

    fn cargo_arguments(&self) -> Vec<&'static str> {
        match self.target {
            // `cargo build` would give libraries other features than tests have.
            Target::Test(test) | Target::Bin { test, .. } => {
                [&["test", "--no-run"], WORKSPACE, &["--test", test]].concat()
            }
            Target::Alone(name) => {
                [BUILT_ONCE, &["--package", self.package, "--bin", name]].concat()
            }
            Target::Measured(name) => {
                vec!["build", "--release", "--package", self.package, "--bin", name]
            }
        }
    }

    /// Returns true if cargo built the executable for this program, not for another package or as a
    /// by-product.
    fn is_wanted(&self, executable: &Executable) -> bool {
        let is_wanted = match self.target {
            Target::Test(_) => executable.is_test,
            Target::Bin { name, .. } | Target::Alone(name) | Target::Measured(name) => {
                !executable.is_test && executable.name == name
            }
        };
        is_wanted && executable.package == self.package
    }

    fn job(&self, executable: Executable, addresses: &[String; 2]) -> Job {
        let [_, server] = addresses;
        let fill = |argument: &&str| argument.replace("{server}", server);
        Job {
            name: format!("{} {}", self.package, executable.name),
            program: executable.path,
            arguments: self.arguments.iter().map(fill).collect(),
            variables: vec![
                (REQUIRED_VARIABLE.to_owned(), "required".to_owned()),
                (SERVER_VARIABLE.to_owned(), server.clone()),
            ],
            directory: executable.directory,
            limit_seconds: self.limit_seconds,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROGRAM: RdmaProgram = RdmaProgram {
        package: "p",
        target: Target::Test("suite"),
        arguments: &["auto://{server}:0"],
        limit_seconds: 60,
    };

    #[test]
    fn the_target_becomes_cargos_arguments() {
        let line = |target| RdmaProgram { target, ..PROGRAM }.cargo_arguments().join(" ");
        let in_workspace = |filter| ["test --no-run", &WORKSPACE.join(" "), filter].join(" ");
        assert_eq!(line(Target::Test("suite")), in_workspace("--test suite"));
        let bin = Target::Bin { name: "demo", test: "other" };
        assert_eq!(line(bin), in_workspace("--test other"));
        let alone = [&BUILT_ONCE.join(" "), "--package p --bin demo"].join(" ");
        assert_eq!(line(Target::Alone("demo")), alone);
        assert_eq!(line(Target::Measured("demo")), "build --release --package p --bin demo");
    }

    #[test]
    fn what_cargo_builds_beside_it_is_left_out() {
        let wants = |target, package: &str, name: &str, is_test| {
            let (name, package) = (name.to_owned(), package.to_owned());
            let (path, directory) = ("/t/x".into(), "/w/p".into());
            let executable = Executable { name, path, package, directory, is_test };
            RdmaProgram { target, ..PROGRAM }.is_wanted(&executable)
        };
        assert!(wants(Target::Test("suite"), "p", "suite", true));
        assert!(!wants(Target::Test("suite"), "q", "suite", true));
        assert!(!wants(Target::Test("suite"), "p", "tool", false));
        let tool = Target::Bin { name: "tool", test: "suite" };
        assert!(wants(tool, "p", "tool", false));
        assert!(!wants(tool, "p", "tool", true));
        assert!(!wants(tool, "p", "other", false));
    }

    #[test]
    fn addresses_are_filled_in() {
        let executable = Executable {
            name: "suite".into(),
            path: "/t/suite".into(),
            package: "p".into(),
            directory: "/w/p".into(),
            is_test: true,
        };
        let job = PROGRAM.job(executable, &["10.0.0.1".into(), "10.0.1.1".into()]);
        assert_eq!(job.arguments, ["auto://10.0.1.1:0"]);
        let variables = [("FARCALL_RDMA", "required"), ("FARCALL_RDMA_SERVER", "10.0.1.1")];
        assert_eq!(job.variables, variables.map(|(name, value)| (name.into(), value.into())));
        assert_eq!(job.name, "p suite");
    }
}
