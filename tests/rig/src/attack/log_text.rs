//! Finds forbidden text in a victim's log: a terminal's control characters, lines that a peer
//! forged, and lines without an end.

/// The mark that hostile peers put behind the line breaks of their names and reasons.
pub(super) const FORGED: &str = "FORGED-LINE";

/// The longest line that a log may have. Four fields of a peer at 1 KiB each would be generous; a
/// line has one or two, and some text of ours.
pub(super) const LINE_LEN_MAX: usize = 4 << 10;

/// The most lines that a log may have. A victim writes ten of a kind at once and then six a minute,
/// and a row of a minute and a half makes two or three kinds; a client that makes a channel for
/// each of its calls has a limit for each, and makes 50.
pub(super) const LINES_MAX: usize = 100;

/// The findings in a log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct LogFindings {
    pub(super) lines: usize,
    pub(super) longest: usize,
    /// Characters that control a terminal, or turn the direction of text.
    pub(super) controls: usize,
    /// Lines that begin as a peer wrote them.
    pub(super) forged: usize,
}

impl LogFindings {
    /// Reads a log.
    pub(super) fn of(log: &[u8]) -> Self {
        let text = String::from_utf8_lossy(log);
        let mut findings = Self::default();
        for line in text.split_inclusive('\n').map(|line| line.trim_end_matches('\n')) {
            findings.lines += 1;
            findings.longest = findings.longest.max(line.len());
            findings.controls += line.chars().filter(|c| is_control(*c)).count();
            findings.forged += usize::from(line.starts_with(FORGED));
        }
        findings
    }
}

fn is_control(c: char) -> bool {
    let is_direction = matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let is_line_break = matches!(c, '\u{2028}' | '\u{2029}');
    c.is_control() || is_direction || is_line_break
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_peer_can_do_to_a_log_is_found() {
        let log = format!("12:00 WARN declined: a\n{FORGED} b\n12:01 \u{1b}[31mred \u{202e}\n");
        let findings = LogFindings::of(log.as_bytes());
        assert_eq!((findings.lines, findings.controls, findings.forged), (3, 2, 1));
        assert_eq!(LogFindings::of(&[b'x'; 5000]).longest, 5000);
    }

    #[test]
    fn an_ordinary_log_has_nothing() {
        let log = format!("12:00 WARN declined: \"a\\n{FORGED}\"\n12:01 WARN b\n");
        let expected = LogFindings { lines: 2, longest: 37, ..LogFindings::default() };
        assert_eq!(LogFindings::of(log.as_bytes()), expected);
    }
}
