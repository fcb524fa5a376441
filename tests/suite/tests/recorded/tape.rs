//! Recordings as text, for people to read and for `git diff` to show.
//!
//! A line that begins with `>` holds bytes of the client in hexadecimal, one with `<` bytes of the
//! server. Lines that begin with a space continue it, and `#` begins a comment. `61*100` is 100
//! bytes of 0x61. Each `>` or `<` begins one handshake message or one record.

use std::fmt::Write as _;

/// The side that sent something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// The client.
    Client,
    /// The server.
    Server,
}

/// A handshake message or a record, and the side that sent it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unit {
    pub(crate) from: Side,
    pub(crate) bytes: Vec<u8>,
}

/// Bytes in one line of text. The longest header is as long.
const LINE_LEN: usize = 32;

/// The shortest run of equal bytes that is written as a count.
const RUN_MIN: usize = 64;

/// Writes a recording.
pub(crate) fn write(units: &[Unit]) -> String {
    let mut text = String::new();
    for Unit { from, bytes } in units {
        let sign = if *from == Side::Client { '>' } else { '<' };
        let mut lines = hex_lines(bytes).into_iter();
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{sign} {}", lines.next().unwrap_or_default());
        for line in lines {
            let _ = writeln!(text, "  {line}");
        }
    }
    text
}

fn hex_lines(bytes: &[u8]) -> Vec<String> {
    let mut lines = Vec::new();
    let mut plain = Vec::new();
    for run in bytes.chunk_by(|left, right| left == right) {
        if run.len() < RUN_MIN {
            plain.extend_from_slice(run);
        } else {
            lines.extend(plain.chunks(LINE_LEN).map(hex));
            lines.push(format!("{:02x}*{}", run[0], run.len()));
            plain.clear();
        }
    }
    lines.extend(plain.chunks(LINE_LEN).map(hex));
    lines
}

/// Returns bytes in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reads a recording.
///
/// # Panics
///
/// Panics if the text is none.
pub(crate) fn parse(text: &str) -> Vec<Unit> {
    let mut units: Vec<Unit> = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let (sign, rest) = line.split_at(1);
        let from = match sign {
            ">" => Some(Side::Client),
            "<" => Some(Side::Server),
            _ => None,
        };
        if let Some(from) = from {
            units.push(Unit { from, bytes: Vec::new() });
        }
        let unit = units.last_mut().expect("a recording begins with `>` or `<`");
        unit.bytes.extend(unhex(rest.trim()));
    }
    units
}

/// Reads bytes in hexadecimal, or a run of them.
pub(crate) fn unhex(text: &str) -> Vec<u8> {
    let byte = |digits: &str| u8::from_str_radix(digits, 16).expect("two hexadecimal digits");
    match text.split_once('*') {
        Some((digits, count)) => vec![byte(digits); count.parse().expect("a count of bytes")],
        None => (0..text.len()).step_by(2).map(|at| byte(&text[at..at + 2])).collect(),
    }
}

#[test]
fn recordings_survive_as_text() {
    let unit = |from, bytes: &[u8]| Unit { from, bytes: bytes.to_vec() };
    let long = [&[1, 2, 3][..], &[9; 100], &[7; 40]].concat();
    let units = [unit(Side::Client, &long), unit(Side::Server, &[255])];
    let text = write(&units);
    assert!(text.starts_with("> 010203\n  09*100\n  0707"), "{text}");
    assert_eq!(parse(&format!("# What it is.\n\n{text}")), units);
}
