//! A Rust file in the views that rules need: its lines, its words without comments and strings, and
//! its syntax.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// A Rust file.
#[derive(Debug)]
pub(crate) struct Source {
    /// Its path, relative to the workspace.
    pub(crate) path: String,
    /// Its text.
    pub(crate) text: String,
}

/// A word or a sign of code, with its line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) text: String,
    pub(crate) line: usize,
}

impl Source {
    pub(crate) fn new(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), text: text.to_owned() }
    }

    /// The syntax of the file.
    pub(crate) fn syntax(&self) -> syn::File {
        syn::parse_file(&self.text)
            .unwrap_or_else(|error| panic!("{}:{}: {error}", self.path, error.span().start().line))
    }

    /// The words and signs of the file in order. Comments are none, and literals are left out, doc
    /// comments with them.
    pub(crate) fn tokens(&self) -> Vec<Token> {
        let stream: TokenStream =
            self.text.parse().unwrap_or_else(|error| panic!("{}: {error}", self.path));
        let mut tokens = Vec::new();
        flatten(stream, &mut tokens);
        tokens
    }

    /// The line of the attribute of a trailing `#[cfg(test)] mod tests { ... }`, or the line behind
    /// the last.
    pub(crate) fn tests_start(&self) -> usize {
        let lines: Vec<&str> = self.text.lines().collect();
        let attribute = lines.iter().rposition(|line| line.starts_with("#[cfg(test)]"));
        match attribute {
            Some(index) if lines[index + 1..].iter().any(|line| opens_module(line)) => index + 1,
            _ => lines.len() + 1,
        }
    }

    /// For each line, from the first, whether it holds code: neither blank nor only a comment.
    pub(crate) fn code_lines(&self) -> Vec<bool> {
        let mut in_block = false;
        self.text
            .lines()
            .map(|line| {
                let line = line.trim();
                let starts_block = line.starts_with("/*");
                let is_comment = in_block || starts_block || line.starts_with("//");
                in_block = (in_block || starts_block) && !line.contains("*/");
                !is_comment && !line.is_empty()
            })
            .collect()
    }
}

fn opens_module(line: &str) -> bool {
    line.starts_with("mod ") && line.ends_with('{')
}

fn flatten(stream: TokenStream, tokens: &mut Vec<Token>) {
    for tree in stream {
        let line = tree.span().start().line;
        match tree {
            TokenTree::Ident(ident) => tokens.push(Token { text: ident.to_string(), line }),
            TokenTree::Punct(sign) => tokens.push(Token { text: sign.to_string(), line }),
            TokenTree::Literal(_) => {}
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::None => ("", ""),
                };
                tokens.push(Token { text: open.to_owned(), line });
                let end = group.span_close().start().line;
                flatten(group.stream(), tokens);
                tokens.push(Token { text: close.to_owned(), line: end });
            }
        }
    }
}

/// Returns the line of each occurrence of `pattern` in `tokens`. The pattern's tokens have blanks
/// between them.
pub(crate) fn find(tokens: &[Token], pattern: &str) -> Vec<usize> {
    let wanted: Vec<&str> = pattern.split(' ').collect();
    tokens
        .windows(wanted.len())
        .filter(|window| window.iter().zip(&wanted).all(|(token, word)| token.text == *word))
        .map(|window| window[0].line)
        .collect()
}

mod tests {
    use super::*;

    #[test]
    fn tokens_leave_out_comments_and_strings() {
        let source = Source::new("a.rs", "//! word\n// word\nfn f() { \"word\"; g(word) }\n");
        assert_eq!(find(&source.tokens(), "word"), [3]);
        assert_eq!(find(&source.tokens(), "g ( word )"), [3]);
        assert_eq!(find(&source.tokens(), "f ( word )"), [0; 0]);
    }

    #[test]
    fn code_is_told_from_comments_and_blank_lines() {
        let source = Source::new("a.rs", "// a\n\n/* b\nc */\nfn f() {} // d\n");
        assert_eq!(source.code_lines(), [false, false, false, false, true]);
    }

    #[test]
    fn the_trailing_tests_are_found() {
        let with = Source::new("a.rs", "fn f() {}\n\n#[cfg(test)]\nmod tests {\n}\n");
        assert_eq!(with.tests_start(), 3);
        let without = Source::new("a.rs", "#[cfg(test)]\nfn f() {}\n");
        assert_eq!(without.tests_start(), 3);
    }
}
