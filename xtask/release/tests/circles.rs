//! Rejects import cycles between the files of a crate: of two files, one is below the other.

use std::path::Path;
use std::process::Command;

/// Prints of `measure --circles` for this workspace.
fn measured() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut command = Command::new(env!("CARGO_BIN_EXE_farcall-release"));
    command.args(["measure", "--circles", "--root"]).arg(root);
    let output = command.output().expect("the release tooling starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("it prints text")
}

/// The cycles in a printed measure, each as a message.
fn cycles(printed: &str) -> Vec<String> {
    let lines = printed.lines().filter_map(|line| line.split_once(": "));
    let message = |(folder, files): (&str, &str)| {
        format!("{folder}/src: these files import each other: {}", files.replace(" <-> ", ", "))
    };
    lines.map(message).collect()
}

#[test]
fn files_of_a_crate_do_not_import_each_other() {
    let printed = measured();
    assert!(printed.lines().count() > 5, "too little was measured:\n{printed}");
    let cycles = cycles(&printed);
    assert!(cycles.is_empty(), "{}", cycles.join("\n"));
}

#[test]
fn every_cycle_is_reported() {
    let printed = "crate files\ncore 3\ncore: a.rs <-> b.rs <-> c.rs\nsuite: a.rs <-> c.rs\n";
    let expected = [
        "core/src: these files import each other: a.rs, b.rs, c.rs",
        "suite/src: these files import each other: a.rs, c.rs",
    ];
    assert_eq!(cycles(printed), expected);
    assert!(cycles("crate files\ncore 3\n").is_empty());
}
