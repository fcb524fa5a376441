//! `examples/hello` is the program that the README shows, in a package of its own.

#![allow(clippy::unwrap_used, reason = "a failed test is how these tests report")]

use std::fs;
use std::path::Path;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

#[test]
fn hello_has_the_files_of_the_readme() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    for name in ["src/main.rs", "Cargo.toml", "build.rs", "proto/greeter.proto"] {
        let text = fs::read_to_string(root().join("examples/hello").join(name)).unwrap();
        let (_, shown) = readme.split_once(&format!("`{name}`:\n```")).unwrap();
        let (_, shown) = shown.split_once('\n').unwrap();
        assert_eq!(shown.split_once("```").unwrap().0, text, "{name}");
    }
}

/// A copy beside a clone finds the crates there, whatever is above it.
#[test]
fn copy_of_hello_inherits_nothing() {
    let manifest = fs::read_to_string(root().join("examples/hello/Cargo.toml")).unwrap();
    assert!(!manifest.contains("workspace"), "{manifest}");
    let paths = manifest.lines().filter_map(|line| line.split_once("path = \"../farcall/"));
    let mut count = 0;
    for (_, path) in paths {
        let (package, _) = path.split_once('"').unwrap();
        assert!(root().join(package).join("Cargo.toml").is_file(), "{package}");
        count += 1;
    }
    assert_eq!(count, 2, "{manifest}");
}
