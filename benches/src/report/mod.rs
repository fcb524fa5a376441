//! The report: tables and plots made of files of results.
//!
//! `section` writes the tables, `plot` and `curves` draw, `growth` says which figures are curves,
//! `page` puts the tables between marks of the page that people write, so that a new run renews the
//! numbers of its groups and nothing else. `readme` makes the table and, with `panel`, the chart of
//! the README.

mod columns;
mod curves;
mod growth;
mod page;
mod panel;
mod plot;
mod readme;
mod section;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::figures::Results;

/// The page of figures, below the folder of the book.
const PAGE: &str = "performance/figures.md";

/// The folder of plots, below the same.
const PLOTS: &str = "performance";

/// The chart of the README, below the same.
const CHART: &str = "performance/readme.svg";

/// Renews the page and the plots in `folder` from `files`; of a figure that stands in several, the
/// last is taken. Groups without a figure in them stay as they are.
///
/// # Errors
///
/// Returns an error if a file is not one of results, the page has no marks, or something cannot be
/// written.
pub fn write(files: &[PathBuf], folder: &Path) -> Result<()> {
    let mut results = Results::default();
    for file in files {
        results.merge(Results::read(file)?);
    }
    let plots = folder.join(PLOTS);
    std::fs::create_dir_all(&plots).with_context(|| format!("making {}", plots.display()))?;
    let (sections, drawings) = section::write(&results)?;
    for (name, drawing) in drawings {
        let file = plots.join(name);
        std::fs::write(&file, drawing).with_context(|| format!("writing {}", file.display()))?;
    }
    let file = folder.join(PAGE);
    let mut page =
        std::fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
    for (group, section) in sections {
        page = page::replace(&page, &writer(group), &section)?;
    }
    std::fs::write(&file, page).with_context(|| format!("writing {}", file.display()))
}

/// Renews the chart in `folder` and the table of the README `page` from the results in `file`.
///
/// # Errors
///
/// Returns an error if the file holds no results, lacks a value or mixes runs, if the page has no
/// marks, or if a file cannot be written.
pub fn write_readme(file: &Path, folder: &Path, page: &Path) -> Result<()> {
    let (chart, table) = readme::write(&Results::read(file)?)?;
    let text =
        std::fs::read_to_string(page).with_context(|| format!("reading {}", page.display()))?;
    let text = page::replace(&text, "`farcall-bench readme`", &table)?;
    let file = folder.join(CHART);
    std::fs::write(&file, chart).with_context(|| format!("writing {}", file.display()))?;
    std::fs::write(page, text).with_context(|| format!("writing {}", page.display()))
}

/// The writer of a group's section, as the marks on the page name it.
fn writer(group: &str) -> String {
    format!("`farcall-bench report`, {group}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_a_place_for_each_group() {
        let book = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/book/src");
        let page = std::fs::read_to_string(book.join(PAGE)).unwrap();
        for (_, group, _) in section::GROUPS {
            page::replace(&page, &writer(group), "new").unwrap();
        }
    }
}
