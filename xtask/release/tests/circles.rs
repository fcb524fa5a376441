//! No circle of imports between the files of a crate: of two files one stands below the other.
//!
//! `cargo xtask measure --circles` finds them; this rule reads what it prints.

use std::path::Path;
use std::process::Command;

use crate::fault::Fault;

/// What `cargo xtask measure --circles` prints of the workspace in `root`.
pub(crate) fn measured(root: &Path) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.args(["measure", "--circles", "--root"]).arg(root);
    let output = command.output().expect("xtask can be started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("xtask prints text")
}

/// The circles in what was printed.
pub(crate) fn check(printed: &str) -> Vec<Fault> {
    let circles = printed.lines().filter_map(|line| line.split_once(": "));
    circles
        .map(|(folder, files)| {
            let files: Vec<&str> = files.split(" <-> ").collect();
            let what = format!("these files import each other: {}", files.join(", "));
            Fault::new(&format!("{folder}/src/{}", files[0]), 1, what)
        })
        .collect()
}

mod tests {
    use super::*;

    #[test]
    fn every_circle_is_a_fault() {
        let printed = "crate files\ncore 3\ncore: a.rs <-> b.rs <-> c.rs\nsuite: a.rs <-> c.rs\n";
        let faults: Vec<_> = check(printed).iter().map(ToString::to_string).collect();
        let words = [
            "core/src/a.rs:1: these files import each other: a.rs, b.rs, c.rs",
            "suite/src/a.rs:1: these files import each other: a.rs, c.rs",
        ];
        assert_eq!(faults, words);
        assert!(check("crate files\ncore 3\n").is_empty());
    }
}
