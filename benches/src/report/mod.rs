//! The report: tables and plots made of files of results.
//!
//! `section` writes the tables, `plot` and `curves` draw, `growth` says which figures are curves,
//! `page` puts the tables between two marks of the page
//! that people write, so that a new run renews all numbers and nothing else.

mod columns;
mod curves;
mod growth;
mod page;
mod plot;
mod section;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::figures::Results;

/// The page, below the folder of documentation.
const PAGE: &str = "performance.md";

/// The folder of plots, below the same.
const PLOTS: &str = "performance";

/// Renews the page and the plots in `folder` from `files`; of a figure that stands in several, the
/// last is taken.
///
/// # Errors
///
/// When a file is not one of results, the page has no marks, or something cannot be written.
pub fn write(files: &[PathBuf], folder: &Path) -> Result<()> {
    let mut results = Results::default();
    for file in files {
        results.merge(Results::read(file)?);
    }
    let plots = folder.join(PLOTS);
    std::fs::create_dir_all(&plots).with_context(|| format!("making {}", plots.display()))?;
    let (section, drawings) = section::write(&results)?;
    for (name, drawing) in drawings {
        let file = plots.join(name);
        std::fs::write(&file, drawing).with_context(|| format!("writing {}", file.display()))?;
    }
    let file = folder.join(PAGE);
    let page =
        std::fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
    let page = page::replace(&page, &section)?;
    std::fs::write(&file, page).with_context(|| format!("writing {}", file.display()))
}
