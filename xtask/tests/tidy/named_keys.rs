//! A key of the settings file that a message or a page names is one that the file has.
//!
//! Held for the table `rdma`, whose keys are named by a crate that does not know the file.

use std::collections::BTreeSet;

use crate::fault::Fault;

/// The reference of the settings file.
pub(crate) const REFERENCE: &str = "docs/book/src/farcall.toml";

/// Every key of `reference`, and every table, by its path.
pub(crate) fn keys(reference: &str) -> BTreeSet<String> {
    let (mut keys, mut table) = (BTreeSet::new(), String::new());
    for line in reference.lines() {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            name.clone_into(&mut table);
            keys.insert(table.clone());
        }
        let key = line.strip_prefix("# ").and_then(|line| line.split_once(" = "));
        if let Some((key, _)) = key
            && is_key(key)
        {
            keys.insert(format!("{table}.{key}"));
        }
    }
    keys
}

fn is_key(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}

/// The names in `text` that look like keys of the table and are none.
pub(crate) fn check(path: &str, text: &str, keys: &BTreeSet<String>) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        // Behind the quote of a literal, or that of a word of code in prose.
        for (at, _) in line.match_indices("rdma.") {
            if !line[..at].ends_with(['"', '`']) {
                continue;
            }
            let rest = &line[at..];
            let end = rest.find(|c: char| !(c.is_ascii_lowercase() || c == '_' || c == '.'));
            let name = rest[..end.unwrap_or(rest.len())].trim_end_matches('.');
            let is_file = [".rs", ".svg", ".md"].iter().any(|ending| name.ends_with(ending));
            if name != "rdma" && !is_file && !keys.contains(name) {
                let what = format!("{name} is named, and {REFERENCE} has no such key");
                faults.push(Fault::new(path, number, what));
            }
        }
    }
    faults
}

mod tests {
    use super::*;

    const TEXT: &str = "# Words = none.\n[rdma]\n# lanes = 1\n[rdma.connect]\n# timeout = 14\n";

    #[test]
    fn keys_are_named_by_their_tables() {
        let found: Vec<_> = keys(TEXT).into_iter().collect();
        assert_eq!(found, ["rdma", "rdma.connect", "rdma.connect.timeout", "rdma.lanes"]);
    }

    #[test]
    fn a_key_that_the_file_does_not_have_is_a_fault() {
        let faults = |text: &str| check("a.rs", text, &keys(TEXT)).len();
        assert_eq!(faults("ensure(x, \"rdma.lanes\"); // `rdma.connect.timeout`"), 0);
        assert_eq!(faults("\"rdma.speed is 7\"\nand `rdma.connect.speed`"), 2);
        assert_eq!(faults("self.rdma.speed, tests/rdma.rs, `rdma.rs`"), 0);
    }
}
