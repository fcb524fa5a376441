//! Rejects import cycles of a crate: of two files, and of two top-level folders, one is below the
//! other.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// Folders that still import each other, by crate. A list only gets shorter.
const FOLDERS_LEFT: &[(&str, &[&str])] = &[];

/// Prints of `measure --circles` for this workspace.
fn measured() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut command = Command::new(env!("CARGO_BIN_EXE_farcall-release"));
    command.args(["measure", "--circles", "--root"]).arg(root);
    let output = command.output().expect("the release tooling starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("it prints text")
}

/// A printed cycle: its crate, and the files or folders in it.
fn cycles(printed: &str) -> impl Iterator<Item = (&str, Vec<&str>)> {
    let lines = printed.lines().filter_map(|line| line.split_once(": "));
    lines.map(|(crate_folder, parts)| (crate_folder, parts.split(" <-> ").collect()))
}

fn is_folder_cycle(parts: &[&str]) -> bool {
    parts.iter().all(|part| part.ends_with('/'))
}

/// The cycles of files in a printed measure, each as a message.
fn file_cycles(printed: &str) -> Vec<String> {
    let file_cycles = cycles(printed).filter(|(_, parts)| !is_folder_cycle(parts));
    let message = |(crate_folder, files): (&str, Vec<&str>)| {
        format!("{crate_folder}/src: these files import each other: {}", files.join(", "))
    };
    file_cycles.map(message).collect()
}

/// Compares the cycles of folders in a printed measure with those on the list, and returns a
/// message for each difference.
fn folder_faults(printed: &str, left: &[(&str, &[&str])]) -> Vec<String> {
    let folder_cycles = cycles(printed).filter(|(_, parts)| is_folder_cycle(parts));
    let found: BTreeSet<(&str, &str)> = folder_cycles
        .flat_map(|(crate_folder, folders)| folders.into_iter().map(move |it| (crate_folder, it)))
        .collect();
    let known = left.iter().flat_map(|(crate_folder, folders)| {
        folders.iter().map(move |folder| (*crate_folder, *folder))
    });
    let known: BTreeSet<(&str, &str)> = known.collect();
    let new = found.difference(&known).map(|(crate_folder, folder)| {
        format!("{crate_folder}/src/{folder} is in a circle of folders that import each other")
    });
    let gone = known.difference(&found).map(|(crate_folder, folder)| {
        format!("{crate_folder}/src/{folder} is in no circle any more: take it off the list")
    });
    new.chain(gone).collect()
}

#[test]
fn files_of_a_crate_do_not_import_each_other() {
    let printed = measured();
    assert!(printed.lines().count() > 5, "too little was measured:\n{printed}");
    let cycles = file_cycles(&printed);
    assert!(cycles.is_empty(), "{}", cycles.join("\n"));
}

#[test]
fn folders_of_a_crate_do_not_import_each_other() {
    let faults = folder_faults(&measured(), FOLDERS_LEFT);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn every_cycle_is_reported() {
    let printed = "crate files\ncore 3\ncore: a.rs <-> b.rs <-> c.rs\nsuite: a.rs <-> c.rs\n\
                   core: a/ <-> b/\n";
    let expected = [
        "core/src: these files import each other: a.rs, b.rs, c.rs",
        "suite/src: these files import each other: a.rs, c.rs",
    ];
    assert_eq!(file_cycles(printed), expected);
    assert!(file_cycles("crate files\ncore 3\n").is_empty());
    assert!(folder_faults(printed, &[("core", &["a/", "b/"])]).is_empty());
    let faults = folder_faults(printed, &[("core", &["b/", "c/"])]);
    assert_eq!(
        faults,
        [
            "core/src/a/ is in a circle of folders that import each other",
            "core/src/c/ is in no circle any more: take it off the list",
        ]
    );
}
