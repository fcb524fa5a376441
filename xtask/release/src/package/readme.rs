//! The files that a README shows: a line with nothing but a path and a colon, and a fenced block.
//!
//! What they mean is cargo's business.

/// A file that a README shows.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Shown {
    /// Its path in the reader's crate.
    pub(super) path: String,
    /// Its text.
    pub(super) text: String,
}

/// The files of `readme`, in its order.
pub(super) fn files(readme: &str) -> Vec<Shown> {
    let mut files = Vec::new();
    let mut lines = readme.lines();
    let mut path = None;
    while let Some(line) = lines.next() {
        if line.starts_with("```") {
            let block = lines.by_ref().take_while(|line| !line.starts_with("```"));
            let text = block.map(|line| format!("{line}\n")).collect();
            // A block that no path stands above is an illustration.
            files.extend(path.take().map(|path| Shown { path, text }));
        } else if !line.is_empty() {
            path = named(line);
        }
    }
    files
}

/// The path in a line like "`src/main.rs`:".
fn named(line: &str) -> Option<String> {
    let path = line.strip_prefix('`')?.strip_suffix("`:")?;
    (!path.is_empty() && !path.contains('`')).then(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_blocks_below_a_path() {
        let readme = "# a\n\n`Cargo.toml`:\n\n```toml\n[package]\n\nname = \"a\"\n```\n\n\
                      `src/main.rs`:\n```rust,ignore\nfn main() {}\n```\n";
        let shown = |path: &str, text: &str| Shown { path: path.into(), text: text.into() };
        let expected = [
            shown("Cargo.toml", "[package]\n\nname = \"a\"\n"),
            shown("src/main.rs", "fn main() {}\n"),
        ];
        assert_eq!(files(readme), expected);
    }

    #[test]
    fn other_blocks_and_other_lines_with_code_are_none() {
        assert!(files("```sh\n`a`:\n```\n").is_empty());
        assert!(files("The file `a` and `b`:\n\n```\nx\n```\n").is_empty());
        assert!(files("`a` or `b`:\n\n```\nx\n```\n").is_empty());
        assert!(files("`a`:\n\nsome words\n\n```\nx\n```\n").is_empty());
    }
}
