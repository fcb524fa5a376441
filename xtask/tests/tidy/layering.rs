//! The dependencies that each crate may have on others of the workspace.
//!
//! Dependencies of tests are free: a test may bring any two crates together.

use crate::fault::Fault;
use crate::workspace::Package;

/// The libraries, each with those that it may depend on.
const LAYERS: &[(&str, &[&str])] = &[
    ("farcall-core", &[]),
    ("rpc-codegen", &[]),
    ("rpc-transport-tcp", &["farcall-core"]),
    ("rpc-transport-grpc", &["farcall-core"]),
    ("rpc-transport-rdma", &["farcall-core"]),
    ("farcall", &["farcall-core", "rpc-transport-grpc", "rpc-transport-rdma", "rpc-transport-tcp"]),
    ("farcall-cli", &["farcall", "farcall-etcd", "farcall-xds"]),
    ("farcall-etcd", &["farcall", "farcall-core"]),
    ("farcall-service-config", &["farcall"]),
    ("farcall-xds", &["farcall", "farcall-core"]),
    ("farcall-testkit", &[]),
    ("farcall-probe", &["farcall", "farcall-testkit", "rpc-codegen"]),
    ("xtask", &["farcall-testkit"]),
    ("farcall-release", &["farcall-testkit", "xtask"]),
];

/// Crates on which no other one depends, and which may therefore depend on any library.
const APPLICATIONS: &[&str] = &[
    "farcall-benches",
    "farcall-demo",
    "farcall-examples",
    "farcall-fuzz",
    "farcall-rig",
    "farcall-suite",
    "moved-after",
    "moved-before",
    "rpc-codegen-real-input",
];

/// Applications that show another one, each with the one that it shows.
const SHOWN: &[(&str, &str)] =
    &[("farcall-demo", "farcall-examples"), ("farcall-rig", "farcall-suite")];

/// The faults of `packages`.
pub(crate) fn check(packages: &[Package]) -> Vec<Fault> {
    packages.iter().flat_map(check_package).collect()
}

fn check_package(package: &Package) -> Vec<Fault> {
    let manifest = package.manifest_path.display().to_string();
    let layer = LAYERS.iter().find(|(name, _)| *name == package.name);
    let is_application = APPLICATIONS.contains(&package.name.as_str());
    if layer.is_none() && !is_application {
        let what = format!("{} has no place in the layers (see xtask/tests/tidy)", package.name);
        return vec![Fault::new(&manifest, 1, what)];
    }
    let is_ours =
        |name: &str| LAYERS.iter().any(|(layer, _)| *layer == name) || APPLICATIONS.contains(&name);
    let may_use = |name: &str| match layer {
        Some((_, allowed)) => allowed.contains(&name),
        None => !APPLICATIONS.contains(&name) || SHOWN.contains(&(package.name.as_str(), name)),
    };
    package
        .dependencies
        .iter()
        .filter(|dependency| dependency.kind.as_deref() != Some("dev"))
        .filter(|dependency| is_ours(&dependency.name) && !may_use(&dependency.name))
        .map(|dependency| {
            let what = format!("{} may not depend on {}", package.name, dependency.name);
            Fault::new(&manifest, 1, what)
        })
        .collect()
}

mod tests {
    use super::*;
    use crate::workspace::Dependency;

    fn faults(name: &str, dependency: &str, kind: Option<&str>) -> Vec<String> {
        let package = Package {
            name: name.into(),
            manifest_path: "Cargo.toml".into(),
            dependencies: vec![Dependency {
                name: dependency.into(),
                kind: kind.map(str::to_owned),
            }],
            ..Package::default()
        };
        check(&[package]).into_iter().map(|fault| fault.what).collect()
    }

    #[test]
    fn dependencies_point_one_way() {
        assert!(faults("farcall", "rpc-transport-tcp", None).is_empty());
        assert!(faults("farcall-core", "bytes", None).is_empty());
        for (upper, lower) in [
            ("farcall-core", "rpc-transport-tcp"),
            ("rpc-transport-tcp", "rpc-transport-rdma"),
            ("rpc-transport-rdma", "farcall"),
            ("rpc-codegen", "farcall-core"),
            ("farcall", "farcall-examples"),
        ] {
            let expected = format!("{upper} may not depend on {lower}");
            assert_eq!(faults(upper, lower, None), [expected.as_str()]);
            assert_eq!(faults(upper, lower, Some("build")), [expected]);
            assert!(faults(upper, lower, Some("dev")).is_empty());
        }
    }

    #[test]
    fn xtask_has_the_test_kit_and_none_of_what_it_sets_up() {
        assert!(faults("xtask", "farcall-testkit", None).is_empty());
        for (upper, lower) in [
            ("xtask", "farcall"),
            ("farcall-testkit", "farcall-core"),
            ("farcall", "farcall-testkit"),
        ] {
            assert_eq!(faults(upper, lower, None).len(), 1, "{upper} on {lower}");
        }
    }

    #[test]
    fn applications_use_libraries_but_not_each_other() {
        assert!(faults("farcall-examples", "farcall", None).is_empty());
        assert_eq!(faults("farcall-benches", "farcall-examples", None).len(), 1);
        assert_eq!(faults("farcall-examples", "farcall-demo", None).len(), 1);
        assert!(faults("farcall-demo", "farcall-examples", None).is_empty());
        assert!(faults("farcall-rig", "farcall-suite", None).is_empty());
        assert_eq!(faults("farcall-suite", "farcall-rig", None).len(), 1);
    }

    #[test]
    fn a_crate_without_a_place_is_noticed() {
        assert_eq!(faults("rpc-new", "bytes", None).len(), 1);
    }
}
