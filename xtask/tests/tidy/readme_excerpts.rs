//! Code in the README and in the book is copied from files that the tests run, so that a reader
//! can trust it.
//!
//! A paragraph with a link to a Rust file names where the block below it comes from. The block may
//! leave lines out. Its lines stand in the file in the same order; how deep they are indented does
//! not matter.

use std::collections::HashMap;

use crate::document_links::resolve;
use crate::fault::Fault;

/// The lines of `text` that are not in the files that they are said to be from. `sources` are the
/// workspace's files by their path.
pub(crate) fn check(path: &str, text: &str, sources: &HashMap<String, String>) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut linked: Option<String> = None;
    let mut lines = text.lines().enumerate();
    while let Some((index, line)) = lines.next() {
        if !line.starts_with("```") {
            // A block belongs to the nearest paragraph that begins with what it is about.
            if line.starts_with("**") || line.starts_with('#') || line.starts_with('`') {
                linked = None;
            }
            linked = link(path, line).or(linked);
            continue;
        }
        let block = lines.by_ref().take_while(|(_, line)| !line.starts_with("```"));
        let block: Vec<(usize, &str)> = block.collect();
        let Some(file) = linked.take() else { continue };
        match sources.get(&file) {
            None => faults.push(Fault::new(path, index + 1, format!("there is no {file}"))),
            Some(source) => faults.extend(missing(&block, source).map(|(index, line)| {
                Fault::new(path, index + 1, format!("not in {file}, or not there: {line}"))
            })),
        }
    }
    faults
}

/// The blocks of a chapter that no test holds: Rust that names no file, commands that are not ours,
/// and languages without a check.
///
/// Blocks of TOML are settings files, which a test of farcall loads, or parts of a `Cargo.toml`.
pub(crate) fn check_blocks(path: &str, text: &str, has_own_test: bool) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut is_linked = false;
    let mut lines = (1..).zip(text.lines());
    while let Some((number, line)) = lines.next() {
        let Some(language) = line.trim_start().strip_prefix("```") else {
            is_linked |= link(path, line).is_some();
            continue;
        };
        let block = lines.by_ref().map(|(_, line)| line.trim());
        let block: Vec<&str> = block.take_while(|line| !line.starts_with("```")).collect();
        let defect = match language {
            "rust" if is_linked || has_own_test => None,
            "rust" => Some("names no Rust file that it is from"),
            "sh" if block.iter().all(|line| line.starts_with("cargo xtask ")) => None,
            "sh" => Some("has commands that no check runs: it is `text`"),
            "text" | "toml" | "proto" => None,
            "haproxy" | "nginx" => None,
            _ => Some("is in a language without a check"),
        };
        faults.extend(defect.map(|what| Fault::new(path, number, format!("the block {what}"))));
        is_linked = false;
    }
    faults
}

/// The Rust file that a line of the document at `path` links to.
fn link(path: &str, line: &str) -> Option<String> {
    let (_, target) = line.split_once(".rs](")?;
    let (file, _) = target.split_once(')')?;
    resolve(path, file)
}

/// The lines of `block` that `source` does not have behind those before them.
fn missing<'a>(
    block: &'a [(usize, &'a str)],
    source: &'a str,
) -> impl Iterator<Item = (usize, &'a str)> {
    let mut rest = source.lines().map(str::trim);
    let wanted = block.iter().filter(|(_, line)| !line.trim().is_empty());
    wanted.filter(move |(_, line)| !rest.by_ref().any(|other| other == line.trim())).copied()
}

mod tests {
    use super::*;

    fn lines_of_faults(text: &str) -> Vec<usize> {
        let source = "fn main() {\n    let a = 1;\n    let b = 2;\n}\n".to_owned();
        let sources = HashMap::from([("examples/a.rs".to_owned(), source)]);
        check("README.md", text, &sources).iter().map(|fault| fault.line).collect()
    }

    #[test]
    fn lines_of_the_file_in_their_order_are_fine() {
        let text =
            "**A** ([a.rs](examples/a.rs)): it is.\n\n```rust\nlet a = 1;\nlet b = 2;\n```\n";
        assert!(lines_of_faults(text).is_empty());
        assert!(lines_of_faults("```rust\nlet z = 1;\n```\n").is_empty(), "it has no file");
    }

    #[test]
    fn other_lines_and_another_order_are_faults() {
        let text =
            "**A** ([a.rs](examples/a.rs)): it is.\n\n```rust\nlet b = 2;\nlet a = 1;\n```\n";
        assert_eq!(lines_of_faults(text), [5]);
        let text = "**A** ([a.rs](examples/a.rs)):\n\n```rust\nlet c = 3;\n```\n";
        assert_eq!(lines_of_faults(text), [4]);
    }

    #[test]
    fn links_start_at_the_document() {
        let text = "[a.rs](../examples/a.rs):\n\n```rust\nlet z = 1;\n```\n";
        let sources = HashMap::from([("examples/a.rs".to_owned(), "let a = 1;\n".to_owned())]);
        let faults = check("docs/examples.md", text, &sources);
        assert_eq!(faults[0].what, "not in examples/a.rs, or not there: let z = 1;");
    }

    #[test]
    fn blocks_without_a_test_are_faults() {
        let count = |text: &str| check_blocks("a.md", text, false).len();
        let linked = "From [a.rs](a.rs):\n\n```rust\nx\n```\n";
        assert_eq!(count(linked), 0);
        // The link is the first block's alone.
        assert_eq!(count(&format!("{linked}```rust\ny\n```\n")), 1);
        assert_eq!(count("```sh\ncargo xtask test\n```\n"), 0);
        assert_eq!(count("```sh\nls\n```\n"), 1);
        assert_eq!(count("```rust,ignore\nx\n```\n"), 1);
        assert!(check_blocks("a.md", "```rust\nx\n```\n", true).is_empty());
    }

    #[test]
    fn a_file_that_is_not_there_is_a_fault() {
        assert_eq!(lines_of_faults("See [b.rs](examples/b.rs).\n```rust\nx\n```\n"), [2]);
    }
}
