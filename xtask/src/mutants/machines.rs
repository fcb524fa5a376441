//! The pure machines, and of each crate the smallest package that holds them.

/// A crate with pure machines, as it is built without all that stands above them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reduced {
    /// Its folder in the workspace, which is also the name of the reduced package.
    pub(super) folder: &'static str,
    /// Files and folders of its `src` that are built.
    pub(super) sources: &'static [&'static str],
    /// The `lib.rs` that declares them as the crate's own does.
    pub(super) root: &'static str,
    /// What of the workspace's dependencies they use, as lines of a manifest. Of the last section,
    /// more is added.
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
    /// What the names of its tests begin with.
    pub(super) tests: &'static str,
}

const CORE: Reduced = Reduced {
    folder: "rpc-core",
    sources: &[
        "calls",
        "limits/connection.rs",
        "limits/quota.rs",
        "limits/settings.rs",
        "policy",
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
zerocopy.workspace = true
",
};

const RDMA: Reduced = Reduced {
    folder: "rpc-transport-rdma",
    sources: &[
        "config",
        "fair/jain.rs",
        "proto/flow",
        "proto/rndv",
        "proto/wire.rs",
        "stats",
        "verbs/keys.rs",
    ],
    root: include_str!("roots/rpc-transport-rdma.txt"),
    dependencies: "\
bytes.workspace = true
prost.workspace = true
rpc-core.workspace = true
rustc-hash.workspace = true
slab.workspace = true
thiserror.workspace = true
tokio = { workspace = true, features = [\"macros\", \"rt\", \"test-util\", \"time\"] }
tracing.workspace = true
zerocopy.workspace = true
",
};

const fn machine(
    name: &'static str,
    of: Reduced,
    files: &'static str,
    tests: &'static str,
) -> Machine {
    Machine { name, of, files, tests }
}

/// All of them.
pub(super) const MACHINES: &[Machine] = &[
    machine("calls", CORE, "calls", "calls::"),
    machine("wire", CORE, "wire", "wire::"),
    machine("policy", CORE, "policy", "policy::"),
    machine("quota", CORE, "limits/quota.rs", "limits::quota::"),
    machine("flow", RDMA, "proto/flow", "proto::flow::"),
    machine("rndv", RDMA, "proto/rndv", "proto::rndv::"),
];

impl Machine {
    /// The files that mutants are made of, as a pattern of `cargo mutants`.
    pub(super) fn pattern(&self) -> String {
        let below = if self.files.ends_with(".rs") { "" } else { "/**" };
        format!("{}/src/{}{below}", self.of.folder, self.files)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn every_machine_is_there_and_among_what_is_built() {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        for Machine { name, of, files, .. } in MACHINES {
            let sources = workspace.join(of.folder).join("src");
            let is_built = |source: &&str| Path::new(files).starts_with(source);
            assert!(of.sources.iter().any(is_built), "{name}");
            of.sources.iter().for_each(|source| assert!(sources.join(source).exists(), "{source}"));
        }
    }

    #[test]
    fn a_pattern_is_a_file_or_all_below_a_folder() {
        assert_eq!(MACHINES[0].pattern(), "rpc-core/src/calls/**");
        assert_eq!(MACHINES[3].pattern(), "rpc-core/src/limits/quota.rs");
    }
}
