//! `cargo xtask publish`: a dry run of publishing the crates, in the order of their dependencies.
//! Nothing is published.
//!
//! cargo checks each manifest and resolves the crates against each other, as if those before them
//! were on crates.io already. It does not build them again: `cargo xtask package` builds a reader's
//! crate from the same packages.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use farcall_testkit::process::bounded::{self, command_line};
use serde::Deserialize;

use xtask::cargo;

/// Ten packages and an update of the registry's index: 8 s here.
const LIMIT: Duration = Duration::from_secs(300);

/// The parts of `cargo metadata` that are read.
#[derive(Debug, Deserialize)]
struct Metadata {
    packages: Vec<Member>,
}

#[derive(Debug, Clone, Deserialize)]
struct Member {
    name: String,
    /// The registries it may go to: none named means any, an empty list means none.
    publish: Option<Vec<String>>,
    dependencies: Vec<Dependency>,
}

#[derive(Debug, Clone, Deserialize)]
struct Dependency {
    name: String,
    /// `dev`, `build`, or nothing for an ordinary one.
    kind: Option<String>,
}

/// Prints the order of publishing, and has cargo publish to nowhere.
///
/// # Errors
///
/// Returns an error if cargo is too old, or would refuse to publish a crate.
pub(crate) fn dry_run() -> Result<()> {
    if let Some(reason) = cargo::too_old_to_pack()? {
        bail!(reason);
    }
    let mut metadata = cargo::command(["metadata", "--no-deps", "--format-version", "1"]);
    let printed = bounded::output(&mut metadata, LIMIT)?;
    let Metadata { packages } =
        serde_json::from_str(&printed).context("the output of cargo metadata")?;
    let order = order(packages)?;
    println!("published in this order: {}", order.join(", "));
    let mut command = cargo::command(["publish", "--dry-run", "--no-verify", "--allow-dirty"]);
    for name in &order {
        command.args(["--package", name]);
    }
    println!("{}", command_line(&command));
    Ok(bounded::run(&mut command, LIMIT)?)
}

/// The names of the crates that may be published, each behind those it needs.
///
/// A published manifest keeps no development dependency that has a path alone, so these may form
/// circles and do not count.
fn order(members: Vec<Member>) -> Result<Vec<String>> {
    let is_public = |member: &Member| member.publish.as_ref().is_none_or(|to| !to.is_empty());
    let mut left: Vec<Member> = members.into_iter().filter(is_public).collect();
    left.sort_by(|a, b| a.name.cmp(&b.name));
    let mut order = Vec::new();
    while !left.is_empty() {
        let is_left = |name: &str| left.iter().any(|member| member.name == name);
        let is_ready = |member: &Member| {
            let needed =
                member.dependencies.iter().filter(|one| one.kind.as_deref() != Some("dev"));
            needed.into_iter().all(|one| !is_left(&one.name))
        };
        let Some(next) = left.iter().position(is_ready) else {
            let names: Vec<_> = left.iter().map(|member| &*member.name).collect();
            bail!("these crates depend on each other: {}", names.join(", "));
        };
        order.push(left.remove(next).name);
    }
    Ok(order)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(name: &str, needs: &[(&str, Option<&str>)]) -> Member {
        let dependency = |&(name, kind): &(&str, Option<&str>)| Dependency {
            name: name.into(),
            kind: kind.map(Into::into),
        };
        let dependencies = needs.iter().map(dependency).collect();
        Member { name: name.into(), publish: None, dependencies }
    }

    #[test]
    fn crates_follow_those_they_need() {
        let members = vec![
            member("all", &[("core", None), ("gen", Some("build")), ("serde", None)]),
            member("core", &[("all", Some("dev"))]),
            member("gen", &[]),
            Member { publish: Some(vec![]), ..member("private", &[]) },
        ];
        assert_eq!(order(members).unwrap(), ["core", "gen", "all"]);
    }

    #[test]
    fn circles_are_named() {
        let members = vec![member("a", &[("b", None)]), member("b", &[("a", None)])];
        assert!(order(members).unwrap_err().to_string().ends_with("a, b"));
    }
}
