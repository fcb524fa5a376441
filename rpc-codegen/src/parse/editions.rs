//! Detection of files that use a protobuf edition.
//!
//! The parser only knows `proto2` and `proto3`, and reports a syntax error for `edition = "2023";`.
//! Only the text of the file, which did not parse, reveals the cause.

/// Returns the edition at the beginning of a `.proto` file's text, if there is one.
pub(crate) fn edition(source: &str) -> Option<&str> {
    let after_word = skip_blank(source).strip_prefix("edition")?;
    let value = skip_blank(skip_blank(after_word).strip_prefix('=')?);
    let quote = value.chars().next().filter(|first| matches!(first, '"' | '\''))?;
    value[1..].split_once(quote).map(|(edition, _)| edition)
}

/// Skips white space and comments.
fn skip_blank(mut text: &str) -> &str {
    loop {
        text = text.trim_start();
        let comment_end = match text.get(..2) {
            Some("//") => text.find('\n'),
            Some("/*") => text.find("*/").map(|end| end + 2),
            _ => return text,
        };
        // An unterminated comment is the rest of the text.
        text = &text[comment_end.unwrap_or(text.len())..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edition_is_found_after_comments() {
        for source in [
            "edition = \"2023\";",
            "// Licence.\n/* more\n */ edition='2023';\npackage a;",
            "\n edition /* of */ = // now\n \"2023\";",
        ] {
            assert_eq!(edition(source), Some("2023"), "{source}");
        }
    }

    #[test]
    fn other_files_have_no_edition() {
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
