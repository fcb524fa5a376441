//! The build cost of hello world with farcall, next to the same program with tonic.
//!
//! Both are built from nothing, in turn, so that a machine which becomes busy is busy for both.

use std::collections::BTreeSet;
use std::fmt::{self, Write as _};
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use farcall_testkit::process::bounded;

use super::packed::{self, Packed};
use super::user::{self, BUILD_LIMIT, Change, UserCrate};
use xtask::check::{Cost, Meter};

/// The document that shows tonic's hello world.
const BESIDE: &str = "docs/book/src/dependencies.md";

/// Listing a tree of some hundred crates.
const TREE_LIMIT: Duration = Duration::from_secs(60);

/// The profiles, each with cargo's arguments and its folder.
const PROFILES: [(&[&str], &str); 2] =
    [(&["build", "--offline"], "debug"), (&["build", "--offline", "--release"], "release")];

/// The weight of one of the two programs.
#[derive(Debug)]
struct Weight {
    name: &'static str,
    /// Number of crates linked into the program.
    linked_count: usize,
    /// Number of crates compiled, including macros and build scripts.
    compiled_count: usize,
    /// The builds of each profile.
    builds: [Vec<Cost>; 2],
    /// Bytes of the program as it is released.
    program_len: u64,
}

/// All of them.
#[derive(Debug)]
pub(super) struct Weights(Vec<Weight>);

/// Builds both `runs` times, and starts what was built.
///
/// # Errors
///
/// Returns an error if one does not build, or does not do its call.
pub(super) fn compare(entrance: &Packed, packages: &[Packed], runs: u8) -> Result<Weights> {
    let root = packed::metadata()?.workspace_root;
    let readme = entrance.folder.join("README.md");
    let farcall = |change: Change| {
        UserCrate::changed(&readme, packages, &root, |files| change(user::manifest(files)?))
    };
    let tonic = UserCrate::shown_in(&root.join(BESIDE), &[], &root)?;
    let crates = [
        ("farcall", farcall(|_| Ok(()))?),
        ("farcall without RDMA", farcall(without_rdma)?),
        ("farcall without RDMA, with `protoc`", farcall(without_rdma_with_protoc)?),
        ("tonic", tonic),
    ];
    let mut weights = Vec::new();
    for (name, user) in &crates {
        let linked_count = count(user, "normal,no-proc-macro")?;
        let compiled_count = count(user, "normal,build")?;
        let builds = [Vec::new(), Vec::new()];
        weights.push(Weight { name, linked_count, compiled_count, builds, program_len: 0 });
    }
    for _ in 0..runs {
        for (profile, (arguments, folder)) in PROFILES.iter().enumerate() {
            for ((_, user), weight) in crates.iter().zip(&mut weights) {
                let target = tempfile::tempdir().context("a folder for a build")?;
                let meter = Meter::start();
                bounded::run(&mut user.cargo(arguments, target.path()), BUILD_LIMIT)?;
                let cost = meter.read();
                println!("{} {folder}: {cost:?}", weight.name);
                weight.builds[profile].push(cost);
                let program = target.path().join(folder).join(user::PROGRAM);
                user::call(&program)?;
                weight.program_len = len(&program)?;
            }
        }
    }
    Ok(Weights(weights))
}

/// Leaves out farcall's default features.
fn without_rdma(manifest: &mut String) -> Result<()> {
    replace(manifest, "# features = [\"grpc\"]", "default-features = false")
}

/// Leaves out farcall's default features, and has the machine's `protoc` read `.proto` files.
fn without_rdma_with_protoc(manifest: &mut String) -> Result<()> {
    without_rdma(manifest)?;
    let protoc = "{ version = \"0.1\", default-features = false, features = [\"protoc\"] }";
    replace(manifest, "rpc-codegen = \"0.1\"", &format!("rpc-codegen = {protoc}"))
}

fn replace(manifest: &mut String, shown: &str, wanted: &str) -> Result<()> {
    ensure!(manifest.contains(shown), "the README's manifest lacks {shown:?}");
    *manifest = manifest.replace(shown, wanted);
    Ok(())
}

/// Counts the crates that `edges` lead to, except for the reader's own.
fn count(user: &UserCrate, edges: &str) -> Result<usize> {
    let arguments = ["tree", "--offline", "--prefix", "none", "--format", "{p}", "--edges", edges];
    // Where the outputs would go does not matter: nothing is built.
    let printed = bounded::output(&mut user.cargo(&arguments, Path::new("target")), TREE_LIMIT)?;
    Ok(distinct(&printed).saturating_sub(1))
}

/// Counts the distinct packages in the output of `cargo tree`, one to a line.
fn distinct(printed: &str) -> usize {
    // A package that was shown before has a mark behind it, and a macro is called one.
    let name = |line: &'_ str| line.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
    let names = printed.lines().map(name).filter(|name| !name.is_empty());
    names.collect::<BTreeSet<_>>().len()
}

fn len(program: &Path) -> Result<u64> {
    Ok(fs::metadata(program).with_context(|| format!("{}", program.display()))?.len())
}

/// The middle one of `durations`, in seconds; of an even number, the upper of the two.
fn median_seconds(durations: impl Iterator<Item = Duration>) -> f64 {
    let mut sorted: Vec<_> = durations.collect();
    sorted.sort();
    sorted.get(sorted.len() / 2).copied().unwrap_or_default().as_secs_f64()
}

impl fmt::Display for Weights {
    /// Writes a table of Markdown for the document.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = [
            "hello world with",
            "crates in the program",
            "compiled",
            "dev: CPU s",
            "wall s",
            "release: CPU s",
            "wall s",
            "program, KiB",
        ];
        writeln!(f, "| {} |\n|{}", columns.join(" | "), "---|".repeat(columns.len()))?;
        for weight in &self.0 {
            let mut builds = String::new();
            for builds_of_profile in &weight.builds {
                let cpu = median_seconds(builds_of_profile.iter().map(|cost| cost.cpu));
                let wall = median_seconds(builds_of_profile.iter().map(|cost| cost.wall));
                write!(builds, " {cpu:.0} | {wall:.0} |")?;
            }
            let Weight { name, linked_count, compiled_count, program_len, .. } = weight;
            let program = program_len.div_ceil(1024);
            writeln!(f, "| {name} | {linked_count} | {compiled_count} |{builds} {program} |")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_counts_once_however_often_it_is_shown() {
        let printed = "hello v0.1.0 (/a/b)\nbytes v1.0.0\ntokio v1.0.0\nbytes v1.0.0 (*)\n\
                       quote v1.0.0 (proc-macro)\nquote v1.0.0 (proc-macro) (*)\n\
                       bytes v2.0.0\n\n";
        assert_eq!(distinct(printed), 5);
    }

    #[test]
    fn the_table_has_medians() {
        let cost = |cpu| Cost { wall: Duration::from_secs(2 * cpu), cpu: Duration::from_secs(cpu) };
        let builds = [vec![cost(90), cost(10), cost(11)], vec![cost(7)]];
        let weight =
            Weight { name: "a", linked_count: 3, compiled_count: 9, builds, program_len: 1025 };
        let table = Weights(vec![weight]).to_string();
        assert!(table.ends_with("\n| a | 3 | 9 | 11 | 22 | 7 | 14 | 2 |\n"), "{table}");
    }

    #[test]
    fn variants_differ_in_features_alone() {
        let shown = "[dependencies.farcall]\nversion = \"0.1\"\n# features = [\"grpc\"] # gRPC\n\n\
                     [build-dependencies]\n# Once it is on crates.io: rpc-codegen = \"0.1\"\n";
        let mut manifest = shown.to_owned();
        without_rdma_with_protoc(&mut manifest).unwrap();
        let expected = "[dependencies.farcall]\nversion = \"0.1\"\n\
                        default-features = false # gRPC\n\n[build-dependencies]\n\
                        # Once it is on crates.io: rpc-codegen = { version = \"0.1\", \
                        default-features = false, features = [\"protoc\"] }\n";
        assert_eq!(manifest, expected);
        assert!(without_rdma(&mut String::new()).is_err());
    }

    #[test]
    fn nothing_has_no_median_that_panics() {
        assert!(median_seconds(std::iter::empty()) == 0.0);
    }
}
