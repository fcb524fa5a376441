//! The sections of a page that commands of the harness write.

use anyhow::{Context as _, Result};

/// Returns `page` with `section` between the marks of `writer`.
///
/// # Errors
///
/// Returns an error if the page lacks a mark.
pub(super) fn replace(page: &str, writer: &str, section: &str) -> Result<String> {
    let [begin, end] = marks(writer);
    let (before, rest) =
        page.split_once(&begin).with_context(|| format!("the page has no mark {begin}"))?;
    let (_, after) =
        rest.split_once(&end).with_context(|| format!("the page has no mark {end}"))?;
    Ok(format!("{before}{begin}\n\n{}\n\n{end}{after}", section.trim()))
}

fn marks(writer: &str) -> [String; 2] {
    ["begin", "end"].map(|end| format!("<!-- written by {writer}: {end} -->"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_wrote_stays() {
        let [begin, end] = marks("report");
        let page = format!("# Title\n{begin}\nold\n{end}\nafter\n");
        let once = replace(&page, "report", "new\n").unwrap();
        assert_eq!(once, format!("# Title\n{begin}\n\nnew\n\n{end}\nafter\n"));
        assert_eq!(replace(&once, "report", "new\n").unwrap(), once);
    }

    #[test]
    fn a_page_without_marks_is_left_alone() {
        assert!(replace("# Title\n", "report", "new").is_err());
        let [begin, end] = marks("report");
        assert!(replace(&format!("{begin}\n"), "report", "new").is_err());
        assert!(replace(&format!("{begin}\n{end}\n"), "readme", "new").is_err());
    }
}
