//! Text that a peer has sent and that people read here: in logs, errors and statuses.
//!
//! A peer that can put a line break into a log line forges log lines, one that can put an escape
//! sequence there rewrites the terminal of the operator who reads them, and one that can put 500 KB
//! there fills the disk. So text of a peer is escaped and cut where it is parsed, and has a type
//! that says so. What applications send each other (messages, metadata, the text of a status) is
//! theirs and goes through unchanged; only where the runtime itself logs it, it is a `PeerText`.

use std::fmt;

/// Text of a peer, fit for logs and error messages: one line, without control characters, at most
/// [`PeerText::LEN_MAX`] bytes long.
///
/// Characters that are not printable are escaped as in a Rust string literal (`\n`, `\u{1b}`): all
/// control characters, line and paragraph separators, and the invisible ones that change the
/// direction of text; so is the backslash, so that nothing passes for an escape. What is longer is
/// cut at a character, and says how much was left out.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct PeerText(String);

impl PeerText {
    /// The longest text, in bytes, with the note on what was left out: four lines of a terminal,
    /// which any reason of our own fits.
    pub const LEN_MAX: usize = 512;

    /// Escapes and cuts what a peer has sent.
    #[must_use]
    pub fn new(text: &str) -> Self {
        let mut out = String::new();
        for (at, character) in text.char_indices() {
            let before = out.len();
            match character {
                // Debug escapes these for literals; in a line they do no harm.
                '"' | '\'' => out.push(character),
                _ => out.extend(character.escape_debug()),
            }
            if out.len() > Self::LEN_MAX - NOTE_LEN_MAX {
                out.truncate(before);
                // Not the length of the escapes, which the peer did not send.
                let left_out = text.len() - at;
                out.push_str(&format!(" [{left_out} bytes left out]"));
                break;
            }
        }
        Self(out)
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the peer sent nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Room for the note, with the longest number there is.
const NOTE_LEN_MAX: usize = " [18446744073709551615 bytes left out]".len();

impl From<&str> for PeerText {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<String> for PeerText {
    fn from(text: String) -> Self {
        Self::new(&text)
    }
}

impl fmt::Display for PeerText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for PeerText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_could_forge_a_line_or_steer_a_terminal_is_escaped() {
        let text = "a\nb\r\x1b[2J\u{9b}1m\u{2028}\u{202e}\u{2066}\u{200b}\u{feff}\u{7f}\\n";
        let expected = r"a\nb\r\u{1b}[2J\u{9b}1m\u{2028}\u{202e}\u{2066}\u{200b}\u{feff}\u{7f}\\n";
        assert_eq!(PeerText::new(text).as_str(), expected);
        let plain = r#"can't open "mlx5_0": größer als 2³² (日本)"#;
        assert_eq!(PeerText::new(plain).as_str(), plain);
    }

    #[test]
    fn what_is_long_is_cut_at_a_character_and_says_so() {
        let cut = PeerText::new(&"é".repeat(250_000));
        assert!(cut.as_str().ends_with("é [499526 bytes left out]"), "{cut}");
        assert!(cut.as_str().len() <= PeerText::LEN_MAX);
    }

    #[test]
    fn text_is_shown_as_it_is_held() {
        let text = PeerText::from("a\nb".to_owned());
        assert_eq!((text.to_string(), format!("{text:?}")), (r"a\nb".into(), r#""a\nb""#.into()));
        assert_eq!(text, PeerText::from("a\nb"));
        assert!(!text.is_empty() && PeerText::new("").is_empty());
    }

    proptest! {
        #[test]
        fn it_is_one_bounded_printable_line(text in any::<String>(), times in 1..200usize) {
            for text in [text.clone(), text.repeat(times)] {
                let safe = PeerText::new(&text);
                prop_assert!(safe.as_str().len() <= PeerText::LEN_MAX);
                for shown in [safe.to_string(), format!("{safe:?}")] {
                    let bad = |c: char| {
                        c.is_control()
                            || matches!(c, '\u{2028}' | '\u{2029}' | '\u{61c}')
                            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}')
                            || matches!(c, '\u{2060}'..='\u{206f}' | '\u{feff}')
                    };
                    prop_assert!(!shown.contains(bad), "{shown}");
                }
            }
        }

        #[test]
        fn every_character_by_itself(character: char) {
            let safe = PeerText::new(&character.to_string());
            prop_assert!(!safe.as_str().contains(char::is_control));
            prop_assert!(!safe.is_empty());
        }
    }
}
