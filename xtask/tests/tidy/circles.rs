//! No circle of imports between the files of a crate: of two files one stands below the other.
//!
//! `cargo xtask measure --circles` finds them; this rule reads what it prints.

use std::path::Path;
use std::process::Command;

use crate::fault::Fault;

/// A circle that is still there.
struct Known {
    /// The folder of its crate.
    crate_folder: &'static str,
    /// Two of its files.
    among: [&'static str; 2],
    /// How many files it has, at most.
    files_max: usize,
}

/// Nothing is added to this list. An entry without a circle is a fault.
const KNOWN: &[Known] = &[Known {
    crate_folder: "rpc-transport-rdma",
    among: ["memory/large_buffer.rs", "memory/region_pool.rs"],
    files_max: 6,
}];

/// What `cargo xtask measure --circles` prints of the workspace in `root`.
pub(crate) fn measured(root: &Path) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.args(["measure", "--circles", "--root"]).arg(root);
    let output = command.output().expect("xtask can be started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("xtask prints text")
}

/// The circles in what was printed that are not known, and what is known and not there.
pub(crate) fn check(printed: &str) -> Vec<Fault> {
    check_against(KNOWN, printed)
}

fn check_against(known: &[Known], printed: &str) -> Vec<Fault> {
    let circles: Vec<(&str, Vec<&str>)> = printed
        .lines()
        .filter_map(|line| line.split_once(": "))
        .map(|(folder, files)| (folder, files.split(" <-> ").collect()))
        .collect();
    let is_of = |entry: &Known, (folder, files): &(&str, Vec<&str>)| {
        entry.crate_folder == *folder && entry.among.iter().all(|file| files.contains(file))
    };
    let mut faults = Vec::new();
    for circle in &circles {
        let (folder, files) = circle;
        let entry = known.iter().find(|entry| is_of(entry, circle));
        if entry.is_none_or(|entry| files.len() > entry.files_max) {
            let what = format!("these files import each other: {}", files.join(", "));
            faults.push(Fault::new(&format!("{folder}/src/{}", files[0]), 1, what));
        }
    }
    for entry in known.iter().filter(|entry| !circles.iter().any(|circle| is_of(entry, circle))) {
        let what = format!("no circle has {} any more", entry.among.join(" and "));
        faults.push(Fault::new("xtask/tests/tidy/circles.rs", 1, what));
    }
    faults
}

mod tests {
    use super::*;

    const ONE: &[Known] = &[Known { crate_folder: "core", among: ["a.rs", "c.rs"], files_max: 3 }];

    fn faults(printed: &str) -> Vec<String> {
        check_against(ONE, printed).into_iter().map(|fault| fault.to_string()).collect()
    }

    #[test]
    fn a_known_circle_may_shrink_and_not_grow() {
        assert!(faults("crate files\ncore 3\ncore: a.rs <-> b.rs <-> c.rs\n").is_empty());
        assert!(faults("core: a.rs <-> c.rs\n").is_empty());
        let grown = faults("core: a.rs <-> b.rs <-> c.rs <-> d.rs\n");
        assert_eq!(grown.len(), 1, "{grown:?}");
        assert!(grown[0].starts_with("core/src/a.rs:1: these files import each other"));
    }

    #[test]
    fn a_new_circle_is_a_fault_and_so_is_an_entry_without_one() {
        let new = faults("core: a.rs <-> c.rs\nsuite: a.rs <-> c.rs\n");
        assert_eq!(new, ["suite/src/a.rs:1: these files import each other: a.rs, c.rs"]);
        assert_eq!(faults("").len(), 1);
    }
}
