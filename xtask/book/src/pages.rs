//! Checks of the book: every page is a chapter, and every link of a rendered page leads somewhere.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use mdbook_driver::MDBook;

/// The table of contents, which is no chapter.
const SUMMARY: &str = "SUMMARY.md";

/// Checks that the table of contents lists every page of the book's folder.
///
/// # Errors
///
/// Returns an error that names the pages that are missing.
pub(crate) fn check_summary(book: &MDBook) -> Result<()> {
    let chapters: BTreeSet<PathBuf> =
        book.book.chapters().filter_map(|chapter| chapter.source_path.clone()).collect();
    let folder = book.source_dir();
    let pages = files(&folder, "md")?;
    let unlisted: Vec<_> = pages
        .iter()
        .filter_map(|page| page.strip_prefix(&folder).ok())
        .filter(|page| *page != Path::new(SUMMARY) && !chapters.contains(*page))
        .collect();
    ensure!(unlisted.is_empty(), "{SUMMARY} does not list {unlisted:?}");
    Ok(())
}

/// Checks the links of the rendered pages in `folder`, and returns the number of pages.
///
/// # Errors
///
/// Returns an error that names the broken links.
pub(crate) fn check_links(folder: &Path) -> Result<usize> {
    let mut texts = HashMap::new();
    for page in files(folder, "html")? {
        let text =
            fs::read_to_string(&page).with_context(|| format!("reading {}", page.display()))?;
        texts.insert(page, text);
    }
    let mut broken = BTreeSet::new();
    for (page, text) in &texts {
        for link in targets(text) {
            if !leads_somewhere(page, link, &texts) {
                let page = page.strip_prefix(folder).unwrap_or(page);
                broken.insert(format!("{}: {link}", page.display()));
            }
        }
    }
    let list = broken.iter().map(String::as_str).collect::<Vec<_>>().join("\n");
    ensure!(broken.is_empty(), "broken links in the book:\n{list}");
    Ok(texts.len())
}

/// The targets of a page's links and images.
fn targets(page: &str) -> impl Iterator<Item = &str> {
    ["href=\"", "src=\""].into_iter().flat_map(move |attribute| {
        page.split(attribute).skip(1).filter_map(|rest| rest.split('"').next())
    })
}

fn leads_somewhere(page: &Path, link: &str, texts: &HashMap<PathBuf, String>) -> bool {
    if link.is_empty() || link.contains(':') || link.starts_with("//") {
        return true;
    }
    let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
    let target = match file {
        "" => page.to_owned(),
        _ => page.parent().unwrap_or(page).join(file),
    };
    let Ok(target) = target.canonicalize() else {
        // mdBook's page for a missing address has links that count from the root of a site.
        return page.ends_with("404.html");
    };
    let text = texts.iter().find(|(path, _)| path.canonicalize().is_ok_and(|it| it == target));
    match text {
        Some((_, text)) if !anchor.is_empty() => text.contains(&format!("id=\"{anchor}\"")),
        _ => true,
    }
}

/// Every file below `folder` with this extension.
fn files(folder: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let entries = fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files(&path, extension)?);
        } else if path.extension().is_some_and(|it| it == extension) {
            found.push(path);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_files_and_anchors_are_found() {
        let folder = std::env::temp_dir().join(format!("farcall-book-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let write = |name: &str, text: &str| fs::write(folder.join(name), text).unwrap();
        write("b.html", "<h2 id=\"c\">");
        write(
            "a.html",
            "<a href=\"b.html#c\"><a href=\"https://example.org\"><img src=\"b.html\">",
        );
        assert_eq!(check_links(&folder).unwrap(), 2);
        write("a.html", "<a href=\"b.html#d\"><a href=\"gone.html\">");
        let error = check_links(&folder).unwrap_err().to_string();
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(error, "broken links in the book:\na.html: b.html#d\na.html: gone.html");
    }
}
