//! The pure machines, and of each crate the smallest package that holds them.

use std::path::Path;

/// A crate with pure machines, as it is built without all that stands above them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reduced {
    /// Its folder in the workspace, which is also the name of the reduced package.
    pub(super) folder: &'static str,
    /// Files and folders of its `src` that are built.
    pub(super) sources: &'static [&'static str],
    /// The `lib.rs` that declares them as the crate's own does.
    pub(super) root: &'static str,
    /// Their dependencies, as lines of a manifest. The caller appends to the last section.
    pub(super) dependencies: &'static str,
}

/// A pure machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Machine {
    /// Its name on the command line.
    pub(super) name: &'static str,
    pub(super) of: Reduced,
    /// Its folder or file in `src`.
    pub(super) files: &'static str,
    /// The modules of its tests: what their names begin with.
    pub(super) tests: &'static [&'static str],
}

const CORE: Reduced = Reduced {
    folder: "rpc-core",
    sources: &[
        "balance",
        "calls",
        "limits/connection.rs",
        "limits/quota.rs",
        "method.rs",
        "payload/encode.rs",
        "payload/tail_field.rs",
        "policy",
        "readable.rs",
        "settings",
        "wire",
    ],
    root: include_str!("roots/rpc-core.txt"),
    dependencies: "\
bytes.workspace = true
fastrand.workspace = true
http.workspace = true
prost.workspace = true
slab.workspace = true
thiserror.workspace = true
tokio = { workspace = true, features = [\"time\"] }
tonic.workspace = true
tracing.workspace = true
",
};

const TCP: Reduced = Reduced {
    folder: "rpc-transport-tcp",
    sources: &["codec", "pacing", "send"],
    root: include_str!("roots/rpc-transport-tcp.txt"),
    dependencies: "\
arrayvec.workspace = true
bytes.workspace = true
rpc-core.workspace = true
tokio = { workspace = true, features = [\"sync\"] }
",
};

const RDMA: Reduced = Reduced {
    folder: "rpc-transport-rdma",
    sources: &[
        "config",
        "proto/clock.rs",
        "proto/connection",
        "proto/flow",
        "proto/remote_memory.rs",
        "proto/rndv",
        "proto/wire.rs",
        "quota/half_open.rs",
        "quota/mod.rs",
        "quota/queue.rs",
        "quota/queue_tests.rs",
        "quota/semaphore.rs",
        "quota/slots.rs",
        "stats",
        "testing/jain.rs",
        "testing/script",
    ],
    root: include_str!("roots/rpc-transport-rdma.txt"),
    dependencies: "\
bytes.workspace = true
futures.workspace = true
prost.workspace = true
rpc-core.workspace = true
rustc-hash.workspace = true
slab.workspace = true
thiserror.workspace = true
tokio = { workspace = true, features = [\"macros\", \"rt\", \"test-util\", \"time\"] }
tracing.workspace = true
",
};

const fn machine(
    name: &'static str,
    of: Reduced,
    files: &'static str,
    tests: &'static [&'static str],
) -> Machine {
    Machine { name, of, files, tests }
}

/// All of them.
pub(super) const MACHINES: &[Machine] = &[
    machine("calls", CORE, "calls", &["calls::"]),
    machine("wire", CORE, "wire", &["wire::"]),
    machine("policy", CORE, "policy", &["policy::"]),
    machine("quota", CORE, "limits/quota.rs", &["limits::quota::"]),
    machine("balance", CORE, "balance", &["balance::"]),
    machine("codec", TCP, "codec", &["codec::"]),
    machine("pacing", TCP, "pacing", &["pacing::"]),
    machine("send", TCP, "send", &["send::"]),
    machine("flow", RDMA, "proto/flow", &["proto::flow::"]),
    machine("slots", RDMA, "quota/slots.rs", &["quota::slots::"]),
    // What happens to memory windows is what scripts and single events play.
    machine(
        "rndv",
        RDMA,
        "proto/rndv",
        &["proto::rndv::", "proto::connection::", "testing::script::"],
    ),
    machine("connection", RDMA, "proto/connection", &["proto::connection::", "testing::script::"]),
];

impl Machine {
    /// The files that mutants are made of, as a pattern of `cargo mutants`.
    pub(super) fn pattern(&self) -> String {
        let below = if self.files.ends_with(".rs") { "" } else { "/**" };
        format!("{}/src/{}{below}", self.of.folder, self.files)
    }

    /// Returns true if the machine's tests cover a file or folder of `src`.
    pub(super) fn is_tested_by(&self, source: &str) -> bool {
        let source = Path::new(source).with_extension("");
        let folders =
            self.tests.iter().map(|module| module.trim_end_matches("::").replace("::", "/"));
        folders.into_iter().any(|folder| Path::new(&folder).starts_with(&source))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_machine_is_there_and_among_what_is_built() {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for Machine { name, of, files, .. } in MACHINES {
            let sources = workspace.join(of.folder).join("src");
            let is_built = |source: &&str| Path::new(files).starts_with(source);
            assert!(of.sources.iter().any(is_built), "{name}");
            of.sources.iter().for_each(|source| assert!(sources.join(source).exists(), "{source}"));
        }
    }

    #[test]
    fn tests_of_a_machine_stand_with_it_or_in_a_module_of_their_own() {
        let of = |name| MACHINES.iter().find(|machine| machine.name == name).unwrap();
        assert!(of("quota").is_tested_by("limits/quota.rs"));
        assert!(!of("quota").is_tested_by("settings/range.rs"));
        assert!(of("rndv").is_tested_by("testing/script"));
        assert!(of("connection").is_tested_by("proto/connection"));
        assert!(of("connection").is_tested_by("testing/script"));
        assert!(!of("connection").is_tested_by("proto/wire.rs"));
    }

    #[test]
    fn a_pattern_is_a_file_or_all_below_a_folder() {
        assert_eq!(MACHINES[0].pattern(), "rpc-core/src/calls/**");
        assert_eq!(MACHINES[3].pattern(), "rpc-core/src/limits/quota.rs");
    }
}
