//! Checks the manifests of published crates, and which crates are published.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::fault::Fault;
use crate::workspace::Package;

/// The folders of the crates that users need.
const PUBLISHED: &[&str] = &[
    "farcall",
    "farcall-cli",
    "farcall-etcd",
    "farcall-service-config",
    "farcall-xds",
    "rpc-codegen",
    "rpc-core",
    "rpc-transport-grpc",
    "rpc-transport-rdma",
    "rpc-transport-tcp",
];

/// Features that docs.rs leaves out, each with its reason.
const UNDOCUMENTED: &[(&str, &str)] = &[
    ("default", "it is on anyway"),
    ("fuzzing", "for our own fuzz targets"),
    ("rdma-sys", "docs.rs has no libibverbs to link with, and it adds no public item"),
    ("tls-aws-lc-rs", "it adds nothing to read, and a library in C to build"),
];

/// Maximum number of keywords that crates.io accepts.
const KEYWORDS_MAX: usize = 5;
const KEYWORD_LEN_MAX: usize = 20;

/// The parts of a manifest that describe a crate to those who search for one.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Manifest {
    description: Option<String>,
    license: Option<String>,
    readme: Option<String>,
    documentation: Option<String>,
    keywords: Vec<String>,
    categories: Vec<String>,
    features: BTreeMap<String, Vec<String>>,
    /// The registries it may go to: none named means any, an empty list means none.
    publish: Option<Vec<String>>,
    metadata: Option<Metadata>,
}

#[derive(Debug, Default, Deserialize)]
struct Metadata {
    #[serde(default)]
    docs: BTreeMap<String, DocsRs>,
}

#[derive(Debug, Default, Deserialize)]
struct DocsRs {
    #[serde(default)]
    features: Vec<String>,
}

/// The faults of `packages`.
pub(crate) fn check(packages: &[Package]) -> Vec<Fault> {
    packages.iter().flat_map(check_package).collect()
}

fn check_package(package: &Package) -> Vec<Fault> {
    let path = package.manifest_path.display().to_string();
    let folder = package.manifest_path.parent().and_then(|folder| folder.file_name());
    let wanted = folder.is_some_and(|folder| PUBLISHED.iter().any(|name| folder == *name));
    let manifest = &package.manifest;
    let is_public = manifest.publish.as_ref().is_none_or(|to| !to.is_empty());
    let what = match (is_public, wanted) {
        (true, true) => faults(manifest),
        (true, false) => vec!["no user needs it: it has `publish = false`".into()],
        (false, true) => vec!["users need it: it has no `publish = false`".into()],
        (false, false) => Vec::new(),
    };
    what.into_iter().map(|what| Fault::new(&path, 1, what)).collect()
}

fn faults(manifest: &Manifest) -> Vec<String> {
    let texts = [
        ("description", &manifest.description),
        ("license", &manifest.license),
        ("readme", &manifest.readme),
        ("documentation", &manifest.documentation),
    ];
    let missing = texts.iter().filter(|(_, text)| text.as_ref().is_none_or(String::is_empty));
    let mut faults: Vec<String> = missing.map(|(name, _)| format!("it has no {name}")).collect();
    let keywords = &manifest.keywords;
    if keywords.is_empty() || keywords.len() > KEYWORDS_MAX {
        faults.push(format!("it has {} keywords, of 1 to {KEYWORDS_MAX}", keywords.len()));
    }
    let long = keywords.iter().filter(|keyword| keyword.len() > KEYWORD_LEN_MAX);
    faults.extend(long.map(|keyword| format!("the keyword {keyword} is too long")));
    if manifest.categories.is_empty() {
        faults.push("it has no category".into());
    }
    faults.extend(undocumented(manifest));
    faults
}

/// A feature that docs.rs does not turn on hides what it adds from readers.
fn undocumented(manifest: &Manifest) -> Vec<String> {
    let no_features = Vec::new();
    let on = manifest.features.get("default").unwrap_or(&no_features);
    let docs_rs = manifest.metadata.as_ref().and_then(|metadata| metadata.docs.get("rs"));
    let Some(docs_rs) = docs_rs else { return vec!["it says nothing to docs.rs".into()] };
    let is_documented = |name: &String| {
        on.contains(name)
            || docs_rs.features.contains(name)
            || UNDOCUMENTED.iter().any(|(left_out, _)| left_out == name)
    };
    let hidden = manifest.features.keys().filter(|name| !is_documented(name));
    let mut faults: Vec<String> =
        hidden.map(|name| format!("docs.rs does not show the feature {name}")).collect();
    let unknown = docs_rs.features.iter().filter(|name| !manifest.features.contains_key(*name));
    faults.extend(unknown.map(|name| format!("docs.rs is told of {name}, which is no feature")));
    faults
}

mod tests {
    use super::*;

    fn package(folder: &str, manifest: Manifest) -> Package {
        let manifest_path = format!("{folder}/Cargo.toml").into();
        Package { manifest_path, manifest, ..Package::default() }
    }

    fn whats(folder: &str, manifest: Manifest) -> Vec<String> {
        check(&[package(folder, manifest)]).into_iter().map(|fault| fault.what).collect()
    }

    fn complete(features: &[&str], shown: &[&str]) -> Manifest {
        let shown = shown.iter().map(|name| (*name).to_owned()).collect();
        let docs = BTreeMap::from([("rs".to_owned(), DocsRs { features: shown })]);
        let text = || Some("text".to_owned());
        Manifest {
            description: text(),
            license: text(),
            readme: text(),
            documentation: text(),
            keywords: vec!["rpc".into()],
            categories: vec!["network-programming".into()],
            features: features.iter().map(|name| ((*name).to_owned(), Vec::new())).collect(),
            publish: None,
            metadata: Some(Metadata { docs }),
        }
    }

    #[test]
    fn a_complete_manifest_is_right() {
        let features = ["default", "sim", "rdma-sys", "fuzzing"];
        assert!(whats("farcall", complete(&features, &["sim"])).is_empty());
    }

    #[test]
    fn only_crates_that_users_need_are_published() {
        assert_eq!(whats("xtask", complete(&[], &[])).len(), 1);
        let private = || Manifest { publish: Some(Vec::new()), ..Manifest::default() };
        assert_eq!(whats("farcall", private()).len(), 1);
        assert!(whats("xtask", private()).is_empty());
    }

    #[test]
    fn what_is_missing_or_too_much_is_named() {
        let empty = whats("farcall", Manifest::default());
        for word in
            ["description", "license", "readme", "documentation", "keywords", "category", "docs.rs"]
        {
            assert_eq!(empty.iter().filter(|what| what.contains(word)).count(), 1, "{word}");
        }
        let long = "a".repeat(KEYWORD_LEN_MAX + 1);
        let keywords = vec![long; KEYWORDS_MAX + 1];
        let faults = whats("farcall", Manifest { keywords, ..complete(&[], &[]) });
        assert_eq!(faults.len(), 1 + KEYWORDS_MAX + 1);
    }

    #[test]
    fn a_feature_that_docs_rs_does_not_show_is_noticed() {
        let hidden = whats("farcall", complete(&["sim"], &[]));
        assert_eq!(hidden, ["docs.rs does not show the feature sim"]);
        let unknown = whats("farcall", complete(&[], &["smi"]));
        assert_eq!(unknown, ["docs.rs is told of smi, which is no feature"]);
    }
}
