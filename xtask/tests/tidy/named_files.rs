//! A file that ARCHITECTURE.md names is there, so that a reader who follows a call finds each step.

use crate::fault::Fault;

/// The Rust files in backticks of `text` that are none of `sources`. A name may leave out the
/// folders that the sentence before it has named.
pub(crate) fn check(path: &str, text: &str, sources: &[&str]) -> Vec<Fault> {
    let is_there = |name: &str| {
        let end = format!("/{name}");
        sources.iter().any(|source| *source == name || source.ends_with(&end))
    };
    let lines = text.lines().enumerate();
    let names = lines.flat_map(|(index, line)| names(line).map(move |name| (index + 1, name)));
    let missing = names.filter(|(_, name)| !is_there(name));
    missing.map(|(line, name)| Fault::new(path, line, format!("there is no file {name}"))).collect()
}

fn names(line: &str) -> impl Iterator<Item = &str> {
    let in_backticks = line.split('`').skip(1).step_by(2);
    in_backticks.filter(|word| word.ends_with(".rs") && !word.contains(' '))
}

mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_no_file_is_found() {
        let sources = ["rpc-core/src/client/channel.rs", "rpc-core/src/lib.rs"];
        let text = "`client/channel.rs` and `rpc-core/src/lib.rs`,\nthen `client/gone.rs` (`x`)";
        let faults = check("A.md", text, &sources);
        let found: Vec<_> = faults.iter().map(|fault| (fault.line, fault.what.as_str())).collect();
        assert_eq!(found, [(2, "there is no file client/gone.rs")]);
        // A part of a name is no file.
        assert_eq!(check("A.md", "`annel.rs`", &sources).len(), 1);
    }
}
