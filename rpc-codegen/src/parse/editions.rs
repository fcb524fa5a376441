//! Telling a file of a protobuf edition from one that is merely wrong.
//!
//! The parser knows `proto2` and `proto3`, and says of `edition = "2023";` that it expected
//! something else. What the file is must be seen in its text, which did not parse.

/// The edition that the text of a `.proto` file begins with, if it does.
pub(crate) fn edition(source: &str) -> Option<&str> {
    let after_word = skip_blank(source).strip_prefix("edition")?;
    let value = skip_blank(skip_blank(after_word).strip_prefix('=')?);
    let quote = value.chars().next().filter(|first| matches!(first, '"' | '\''))?;
    value[1..].split_once(quote).map(|(edition, _)| edition)
}

/// The text behind white space and comments.
fn skip_blank(mut text: &str) -> &str {
    loop {
        text = text.trim_start();
        let comment_end = match text.get(..2) {
            Some("//") => text.find('\n'),
            Some("/*") => text.find("*/").map(|end| end + 2),
            _ => return text,
        };
        // A comment without an end is the rest.
        text = &text[comment_end.unwrap_or(text.len())..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edition_is_found_behind_comments() {
        for source in [
            "edition = \"2023\";",
            "// Licence.\n/* more\n */ edition='2023';\npackage a;",
            "\n edition /* of */ = // now\n \"2023\";",
        ] {
            assert_eq!(edition(source), Some("2023"), "{source}");
        }
    }

    #[test]
    fn other_files_have_none() {
        for source in [
            "",
            "ä",
            "syntax = \"proto3\";",
            "message edition {}",
            "edition",
            "edition = 2023;",
            "edition = \"2023",
            "// edition = \"2023\";",
            "/* edition = \"2023\";",
        ] {
            assert_eq!(edition(source), None, "{source}");
        }
    }
}
