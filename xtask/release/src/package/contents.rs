//! The files that belong in a package.

use super::packed::Packed;

/// Files that every package has.
const REQUIRED: &[&str] = &["Cargo.toml", "LICENSE-APACHE", "LICENSE-MIT", "README.md"];

/// Roots of a crate, of which a package has one: a library's or a program's.
const ROOTS: &[&str] = &["src/lib.rs", "src/main.rs"];

/// Files that cargo adds.
const BY_CARGO: &[&str] = &[".cargo_vcs_info.json", "Cargo.lock", "Cargo.toml.orig"];

/// Folders whose files are sources, or what tests read.
const FOLDERS: &[&str] = &["src/", "tests/"];

/// The longest package, in bytes: twice the largest, so that a corpus or a recording which slips
/// in is noticed. crates.io takes 10 MiB.
const PACKED_LEN_MAX: u64 = 700 << 10;

/// Returns the files that `package` lacks, and those that it should not have.
pub(super) fn faults(package: &Packed) -> Vec<String> {
    let Packed { name, files, packed_len, .. } = package;
    let has = |file: &str| files.iter().any(|present| present == file);
    let missing = REQUIRED.iter().filter(|file| !has(file));
    let mut faults: Vec<_> = missing.map(|file| format!("{name} has no {file}")).collect();
    if !ROOTS.iter().any(|root| has(root)) {
        faults.push(format!("{name} has no {}", ROOTS.join(" or ")));
    }
    let surplus = files.iter().filter(|file| !belongs(file));
    faults.extend(surplus.map(|file| format!("{name} has {file}, which no user needs")));
    if *packed_len > PACKED_LEN_MAX {
        faults.push(format!("{name} has {packed_len} bytes; the limit is {PACKED_LEN_MAX}"));
    }
    faults
}

fn belongs(file: &str) -> bool {
    REQUIRED.contains(&file)
        || BY_CARGO.contains(&file)
        || file == "build.rs"
        || FOLDERS.iter().any(|folder| file.starts_with(folder))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn package(files: &[&str], packed_len: u64) -> Packed {
        let files = files.iter().map(|file| (*file).to_owned()).collect();
        Packed { name: "a".into(), folder: PathBuf::new(), files, len: 0, packed_len }
    }

    #[test]
    fn a_package_with_what_it_needs_is_right() {
        for root in ROOTS {
            let files = [REQUIRED, BY_CARGO, &[*root, "src/wire/mod.rs", "tests/golden.rs"]];
            assert!(faults(&package(&files.concat(), 1000)).is_empty());
        }
    }

    #[test]
    fn what_is_missing_or_too_much_is_named() {
        let files = [&REQUIRED[..3], &["corpus/1", "target"]].concat();
        let expected = [
            "a has no README.md",
            "a has no src/lib.rs or src/main.rs",
            "a has corpus/1, which no user needs",
            "a has target, which no user needs",
        ];
        assert_eq!(faults(&package(&files, 1000)), expected);
        let long = [REQUIRED, &ROOTS[..1]].concat();
        assert_eq!(faults(&package(&long, PACKED_LEN_MAX + 1)).len(), 1);
    }
}
