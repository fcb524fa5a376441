//! Renders the book: `cargo xtask book`.
//!
//! mdBook does the work. `outside` names files beside the book instead of linking to them, and
//! `pages` checks what was rendered.
#![forbid(unsafe_code)]

mod outside;
mod pages;

use anyhow::Result;
use mdbook_driver::MDBook;

use outside::OutsideLinks;

/// The book, below the root of the repository.
const BOOK: &str = "docs/book";

fn main() -> Result<()> {
    let mut book = MDBook::load(BOOK)?;
    pages::check_summary(&book)?;
    book.with_preprocessor(OutsideLinks);
    book.build()?;
    let folder = book.build_dir_for("html").canonicalize()?;
    let count = pages::check_links(&folder)?;
    let index = folder.join("index.html");
    println!("{count} pages of the book have no broken link: {}", index.display());
    Ok(())
}
