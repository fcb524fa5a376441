//! The place in the page that is the harness's.

use anyhow::{Context as _, Result};

const BEGIN: &str = "<!-- written by `farcall-bench report`: begin -->";
const END: &str = "<!-- written by `farcall-bench report`: end -->";

/// `page` with `section` between its marks.
pub(super) fn replace(page: &str, section: &str) -> Result<String> {
    let (before, rest) =
        page.split_once(BEGIN).with_context(|| format!("the page has no mark {BEGIN}"))?;
    let (_, after) = rest.split_once(END).with_context(|| format!("the page has no mark {END}"))?;
    Ok(format!("{before}{BEGIN}\n\n{}\n\n{END}{after}", section.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_wrote_stays() {
        let page = format!("# Title\n{BEGIN}\nold\n{END}\nafter\n");
        let once = replace(&page, "new\n").unwrap();
        assert_eq!(once, format!("# Title\n{BEGIN}\n\nnew\n\n{END}\nafter\n"));
        assert_eq!(replace(&once, "new\n").unwrap(), once);
    }

    #[test]
    fn a_page_without_marks_is_left_alone() {
        assert!(replace("# Title\n", "new").is_err());
        assert!(replace(&format!("{BEGIN}\n"), "new").is_err());
    }
}
