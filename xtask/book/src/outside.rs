//! Links that lead out of the book, to source files and other documents of the repository.
//!
//! On a code host they work. A rendered page stands alone, so there the path takes the link's
//! place.

use std::path::{Component, Path};

use mdbook_driver::book::Book;
use mdbook_driver::errors::Result;
use mdbook_preprocessor::{Preprocessor, PreprocessorContext};

/// The folder of chapters, below the root of the repository.
const CHAPTERS: &str = "docs/book/src";

/// Replaces links to files outside the book by their paths.
#[derive(Debug)]
pub(crate) struct OutsideLinks;

impl Preprocessor for OutsideLinks {
    fn name(&self) -> &str {
        "outside-links"
    }

    fn run(&self, _: &PreprocessorContext, mut book: Book) -> Result<Book> {
        book.for_each_chapter_mut(|chapter| {
            if let Some(path) = &chapter.path {
                chapter.content = named(path, &chapter.content);
            }
        });
        Ok(book)
    }
}

/// Replaces the outside links in the chapter at `path`.
fn named(path: &Path, text: &str) -> String {
    let mut is_code = false;
    let lines = text.lines().map(|line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        if is_code || is_fence { line.to_owned() } else { named_in_line(path, line) }
    });
    lines.map(|line| line + "\n").collect()
}

fn named_in_line(path: &Path, line: &str) -> String {
    let mut named = String::new();
    let mut rest = line;
    while let Some((before, label, target, after)) = next_link(rest) {
        match outside(path, target) {
            None => {
                let end = rest.len() - after.len();
                named.push_str(&rest[..end]);
            }
            Some(file) => {
                named.push_str(before);
                let plain = label.replace('`', "");
                let says_file = file.ends_with(&plain);
                let shown =
                    if says_file { format!("`{file}`") } else { format!("{label} (`{file}`)") };
                named.push_str(&shown);
            }
        }
        rest = after;
    }
    named + rest
}

/// The first link of `line`: the text before it, its label, its target, and the text after it.
fn next_link(line: &str) -> Option<(&str, &str, &str, &str)> {
    let middle = line.find("](")?;
    let start = line[..middle].rfind('[')?;
    let (target, after) = line[middle + 2..].split_once(')')?;
    Some((&line[..start], &line[start + 1..middle], target, after))
}

/// Returns the path of a link's target in the repository, if the target is outside the book.
fn outside(chapter: &Path, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with('#') || target.starts_with("mailto:") {
        return None;
    }
    let file = target.split('#').next().unwrap_or(target);
    let mut folders = Vec::new();
    for part in Path::new(CHAPTERS).join(chapter.parent()?).join(file).components() {
        match part {
            Component::ParentDir => drop(folders.pop()),
            Component::Normal(name) => folders.push(name.to_string_lossy().into_owned()),
            _ => {}
        }
    }
    let path = folders.join("/");
    (!path.starts_with(CHAPTERS)).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outside_links_become_paths() {
        let shown = |line: &str| named_in_line(Path::new("a/b.md"), line);
        assert_eq!(shown("See [c.rs](../../../../x/c.rs)."), "See `x/c.rs`.");
        assert_eq!(shown("[the file](../../../../x/c.rs#l)"), "the file (`x/c.rs`)");
    }

    #[test]
    fn links_within_the_book_stay() {
        let line = "[a](../d.md#e), [f](g.svg) and [h](https://example.org)";
        assert_eq!(named_in_line(Path::new("a/b.md"), line), line);
    }

    #[test]
    fn code_blocks_stay() {
        let text = "```md\n[c](../../../x/c.rs)\n```\n";
        assert_eq!(named(Path::new("b.md"), text), text);
    }
}
