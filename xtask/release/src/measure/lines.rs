//! Classifies the lines of a file.

use std::ops::AddAssign;

/// Words that stand for an actor instead of naming it, in pieces so that this file has none.
const VAGUE: [&str; 4] =
    [concat!("who", "ever"), concat!("no", "body"), concat!("who", "m"), concat!("some", "body")];

/// Items that a crate may show, with the keyword behind `pub`.
const ITEMS: [&str; 11] = [
    "struct", "enum", "union", "trait", "fn", "async fn", "const fn", "const", "static", "type",
    "mod",
];

/// Numbers of a file's lines, by class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Counts {
    /// Neither blank nor a comment.
    pub(super) code: usize,
    /// Comments that become documentation.
    pub(super) doc: usize,
    /// Lines that are another comment.
    pub(super) inline: usize,
    /// Structures, enumerations and unions.
    pub(super) types: usize,
    /// Items that are `pub` and belong to no type: those of modules.
    pub(super) public: usize,
    pub(super) traits: usize,
}

impl Counts {
    pub(super) fn of(text: &str) -> Self {
        let mut counts = Self::default();
        for line in text.lines() {
            let trimmed = line.trim_start();
            if trimmed.is_empty() {
                continue;
            }
            if trimmed.starts_with("///") || trimmed.starts_with("//!") {
                counts.doc += 1;
                continue;
            }
            if trimmed.starts_with("//") {
                counts.inline += 1;
                continue;
            }
            counts.code += 1;
            let item = without_visibility(trimmed);
            let is = |keyword: &str| begins_with_word(item, keyword);
            counts.types += usize::from(["struct", "enum", "union"].into_iter().any(is));
            counts.traits += usize::from(is("trait"));
            let public = line.strip_prefix("pub ");
            let is_item = |item: &str| ITEMS.iter().any(|keyword| begins_with_word(item, keyword));
            counts.public += usize::from(public.is_some_and(is_item));
        }
        counts
    }

    /// Returns `lines` per 100 lines of code.
    pub(super) fn per_hundred(&self, lines: usize) -> f64 {
        100.0 * lines as f64 / self.code.max(1) as f64
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.code += other.code;
        self.doc += other.doc;
        self.inline += other.inline;
        self.types += other.types;
        self.public += other.public;
        self.traits += other.traits;
    }
}

fn without_visibility(line: &str) -> &str {
    let Some(rest) = line.strip_prefix("pub") else { return line };
    let rest = rest.strip_prefix('(').and_then(|rest| rest.split_once(')')).map_or(rest, |it| it.1);
    rest.trim_start()
}

fn begins_with_word(line: &str, word: &str) -> bool {
    line.strip_prefix(word).is_some_and(|rest| rest.starts_with(' '))
}

/// The text up to a trailing `#[cfg(test)] mod tests { ... }`.
pub(crate) fn without_tests(text: &str) -> &str {
    let Some(at) = text.rfind("#[cfg(test)]\n") else { return text };
    let opens_module = |line: &str| line.starts_with("mod ") && line.ends_with('{');
    let behind = text[at..].lines().skip(1).find(|line| !line.starts_with("#["));
    if behind.is_some_and(opens_module) { &text[..at] } else { text }
}

/// Counts the words of a text that stand for an actor instead of naming it.
pub(super) fn vague_words(text: &str) -> usize {
    let pieces = text.split(|c: char| !c.is_alphanumeric());
    pieces.filter(|word| VAGUE.iter().any(|vague| word.eq_ignore_ascii_case(vague))).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_by_their_kind() {
        let text = "//! A.\n\n/// B.\npub struct B;\n// Why.\npub(crate) enum C {}\n\
                    pub trait D {\n    /// E.\n    fn e(); // F.\n}\npub use D as G;\n\
                    impl B {\n    pub fn h() {}\n}\npub async fn i() {}\n";
        let expected = Counts { code: 10, doc: 3, inline: 1, types: 2, public: 3, traits: 1 };
        assert_eq!(Counts::of(text), expected);
        assert_eq!(format!("{:.1}", expected.per_hundred(expected.doc)), "30.0");
    }

    #[test]
    fn tests_at_the_end_are_left_out() {
        let text = "fn f() {}\n\n#[cfg(test)]\nmod tests {\n}\n";
        assert_eq!(without_tests(text), "fn f() {}\n\n");
        let elsewhere = "#[cfg(test)]\nmod tests;\nfn f() {}\n";
        assert_eq!(without_tests(elsewhere), elsewhere);
    }

    #[test]
    fn vague_words_count_whole_and_in_any_case() {
        let [first, second, third, _] = VAGUE;
        let text = format!("{}; {third}, {second}'s and {second}s", first.to_uppercase());
        assert_eq!(vague_words(&text), 3);
    }
}
