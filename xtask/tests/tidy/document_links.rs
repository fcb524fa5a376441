//! Relative links in documents lead to a file or folder of the repository, and their anchors to a
//! heading in that file.
//!
//! Links to other hosts are not followed.

use std::collections::{HashMap, HashSet};

use crate::fault::Fault;

/// Returns the broken links in `text`. `files` has the text of each file by its path.
pub(crate) fn check(path: &str, text: &str, files: &HashMap<String, String>) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (number, line) in prose(text) {
        for link in links(&without_code(line)) {
            let defect = defect(path, link, files);
            faults.extend(defect.map(|what| Fault::new(path, number, what)));
        }
    }
    faults
}

/// Resolves the target of a link in `page`. Returns `None` if it leads out of the repository.
pub(crate) fn resolve(page: &str, target: &str) -> Option<String> {
    let mut folders: Vec<&str> = page.split('/').collect();
    folders.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                folders.pop()?;
            }
            _ => folders.push(part),
        }
    }
    Some(folders.join("/"))
}

/// The lines outside of fenced blocks, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// `line` without the words in backticks, which may look like links.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect()
}

fn links(line: &str) -> impl Iterator<Item = &str> {
    let ends = line.match_indices("](").map(|(at, opening)| &line[at + opening.len()..]);
    ends.filter_map(|rest| rest.split_once(')').map(|(link, _)| link))
}

fn defect(page: &str, link: &str, files: &HashMap<String, String>) -> Option<String> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (target, anchor) = link.split_once('#').unwrap_or((link, ""));
    let target = if target.is_empty() { Some(page.to_owned()) } else { resolve(page, target) };
    let Some(target) = target else { return Some(format!("{link} leads out of the repository")) };
    let folder = format!("{target}/");
    match files.get(&target) {
        Some(text) if !anchor.is_empty() && !anchors(text).contains(anchor) => {
            Some(format!("{target} has no heading #{anchor}"))
        }
        None if !files.keys().any(|file| file.starts_with(&folder)) => {
            Some(format!("there is no {target}"))
        }
        _ => None,
    }
}

/// The anchors that code hosts give the headings of `text`. A repeated heading gets a number.
fn anchors(text: &str) -> HashSet<String> {
    let mut anchors = HashSet::new();
    for (_, line) in prose(text) {
        if line.starts_with('#') {
            let slug = slug(line.trim_start_matches('#'));
            let numbered = (1..).map(|number| format!("{slug}-{number}"));
            let mut names = std::iter::once(slug.clone()).chain(numbered);
            let free = names.find(|name| !anchors.contains(name));
            anchors.extend(free);
        }
    }
    anchors
}

fn slug(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

mod tests {
    use super::*;

    fn faults(text: &str) -> Vec<(usize, String)> {
        let files = [
            ("docs/a.md", text),
            ("docs/b.md", "# B\n## `On` this, and that\n## Twice\n## Twice\n"),
            ("examples/tests/c.rs", ""),
        ];
        let files = files.map(|(path, text)| (path.to_owned(), text.to_owned()));
        let faults = check("docs/a.md", text, &HashMap::from(files)).into_iter();
        faults.map(|fault| (fault.line, fault.what)).collect()
    }

    #[test]
    fn files_folders_and_anchors_resolve() {
        let text = "# Here\n[b](b.md) [`c`](../examples/tests/c.rs) [f](../examples)\n\
                    [x](b.md#on-this-and-that) [y](b.md#twice-1) [z](#here)\n";
        assert!(faults(text).is_empty());
        assert!(faults("[o](https://example.org/a) [m](mailto:a@example.org)").is_empty());
    }

    #[test]
    fn broken_links_are_faults() {
        let fault = |line: usize, what: &str| (line, what.to_owned());
        assert_eq!(faults("\n[g](gone.md)"), [fault(2, "there is no docs/gone.md")]);
        assert_eq!(faults("[e](exam)"), [fault(1, "there is no docs/exam")]);
        assert_eq!(faults("[b](b.md#c)"), [fault(1, "docs/b.md has no heading #c")]);
        assert_eq!(faults("[s](#c)"), [fault(1, "docs/a.md has no heading #c")]);
        let outside = "../../x.md leads out of the repository";
        assert_eq!(faults("[o](../../x.md)"), [fault(1, outside)]);
    }

    #[test]
    fn code_is_no_link() {
        assert!(faults("```md\n[g](gone.md)\n```\n`a[0](b)` is code\n").is_empty());
        assert_eq!(faults("```\n```\n[g](gone.md)").len(), 1);
    }
}
