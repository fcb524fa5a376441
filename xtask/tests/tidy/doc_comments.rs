//! A doc comment, and each section of it, begins with what an item is or does, not with a question
//! or a relation.

use crate::fault::Fault;
use crate::source::Source;

/// First words that put off the subject. `writing.md` asks for a noun phrase or a verb.
const LATE: &[&str] = &[
    "What", "How", "Whether", "Where", "Which", "When", "Whose", "Who", "Has", "That", "So", "As",
];

/// Returns the doc comments of `source` that begin with such a word, or have a section that does.
pub(crate) fn check(source: &Source) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut is_inside = false;
    for (number, line) in (1..).zip(source.text.lines()) {
        let text = doc_text(line);
        // A heading, and the empty line below it, precede the section's first line.
        if text.is_some_and(|text| text.starts_with("# ") || (!is_inside && text.is_empty())) {
            is_inside = false;
            continue;
        }
        if let Some(text) = text
            && !is_inside
            && let Some(first) = text.split(|c: char| !c.is_alphanumeric()).next()
            && LATE.contains(&first)
        {
            let what = format!("the comment begins with `{first}`: say what the item is or does");
            faults.push(Fault::new(&source.path, number, what));
        }
        is_inside = text.is_some();
    }
    faults
}

/// Returns the text of a line that is a doc comment.
fn doc_text(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let text = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"))?;
    // Four slashes are an ordinary comment.
    (!text.starts_with('/')).then(|| text.trim())
}

mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<usize> {
        check(&Source::new("a.rs", text)).iter().map(|fault| fault.line).collect()
    }

    #[test]
    fn a_late_subject_is_found_on_a_first_line() {
        let text =
            "//! What it holds.\n\n/// A time.\n/// When it is over.\nfn a() {}\n    /// As b.\n";
        assert_eq!(lines(text), [1, 6]);
    }

    #[test]
    fn a_late_subject_is_found_below_a_heading() {
        let text = "/// Reads.\n///\n/// # Errors\n///\n/// When it cannot.\n/// As b.\n\
                    /// # Panics\n/// If it is told to.\nfn a() {}\n";
        assert_eq!(lines(text), [5]);
    }

    #[test]
    fn subjects_verbs_and_ordinary_comments_pass() {
        let text = "/// Returns.\nfn a() {}\n// When it is due.\n//// How.\n/// Hash of it.\n///\n";
        assert!(lines(text).is_empty());
    }
}
