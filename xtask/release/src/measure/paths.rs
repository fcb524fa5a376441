//! The paths of this crate that a file names: in `use`, and where it calls or mentions an item by
//! its path. Comments and strings are none of it.

/// A path, by its segments; `*` is the last one of a glob.
pub(super) type Path = Vec<String>;

/// The paths that a file names.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Named {
    /// Paths that it imports or uses in its code.
    pub(super) used: Vec<Path>,
    /// Paths that it only re-exports, with the exported names.
    pub(super) passed_on: Vec<(String, Path)>,
}

/// Reads a file.
pub(super) fn named(text: &str) -> Named {
    let pieces = tokens(text);
    let mut named = Named::default();
    let mut at = 0;
    while at < pieces.len() {
        if pieces[at] != "use" {
            at += 1;
            continue;
        }
        let end =
            pieces[at..].iter().position(|word| word == ";").map_or(pieces.len(), |len| at + len);
        let mut found = Vec::new();
        tree(&pieces[at + 1..end], &mut 0, &Vec::new(), &mut found);
        let before = pieces[..at].last().map(String::as_str);
        if before == Some("pub") || (before == Some(")") && is_visibility(&pieces[..at])) {
            named.passed_on.extend(found);
        } else {
            named.used.extend(found.into_iter().map(|(_, path)| path));
        }
        at = end;
    }
    named.used.extend(mentioned(&pieces));
    named
}

/// Returns true if the words end with `pub(...)`.
fn is_visibility(pieces: &[String]) -> bool {
    let open = pieces.iter().rposition(|word| word == "(");
    open.and_then(|open| pieces[..open].last()).is_some_and(|word| word == "pub")
}

/// Adds the paths of a tree of `use`, from the word at `at`, each with the name that it gets.
fn tree(pieces: &[String], at: &mut usize, prefix: &Path, found: &mut Vec<(String, Path)>) {
    let mut path = prefix.clone();
    while let Some(word) = pieces.get(*at) {
        *at += 1;
        match word.as_str() {
            "::" => {}
            "{" => {
                while pieces.get(*at).is_some_and(|word| word != "}") {
                    tree(pieces, at, &path, found);
                    *at += usize::from(pieces.get(*at).is_some_and(|word| word == ","));
                }
                *at += 1;
                return;
            }
            "as" => {
                let name = pieces.get(*at).cloned().unwrap_or_default();
                *at += 1;
                found.push((name, path));
                return;
            }
            name => path.push(name.to_owned()),
        }
        if pieces.get(*at).is_none_or(|next| next == "," || next == "}") {
            break;
        }
    }
    if path.last().is_some_and(|last| last == "self") && path.len() > 1 {
        path.pop();
    }
    found.push((path.last().cloned().unwrap_or_default(), path));
}

/// Paths that begin with `crate`, `super` or `self` outside of `use`. Those of a visibility use
/// nothing.
fn mentioned(pieces: &[String]) -> Vec<Path> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < pieces.len() {
        if pieces[at] == "use" {
            at += pieces[at..].iter().take_while(|word| *word != ";").count();
            continue;
        }
        let begins = ["crate", "super", "self"].contains(&pieces[at].as_str())
            && !pieces[..at].ends_with(&["pub", "(", "in"].map(String::from));
        if !begins || pieces.get(at + 1).is_none_or(|word| word != "::") {
            at += 1;
            continue;
        }
        let mut path = vec![pieces[at].clone()];
        while pieces.get(at + 1).is_some_and(|word| word == "::") {
            at += 2;
            match pieces.get(at) {
                Some(name) if is_name(name) => path.push(name.clone()),
                _ => break,
            }
        }
        at += 1;
        found.push(path);
    }
    found
}

fn is_name(word: &str) -> bool {
    word.chars().all(|c| c.is_alphanumeric() || c == '_')
}

/// Names and signs in order, without comments, strings and characters.
fn tokens(text: &str) -> Vec<String> {
    let mut message = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let len = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |at| at + 2)
        } else if first == '"' {
            string_len(rest)
        } else if first == '\'' {
            // A character, but for a lifetime.
            let len = if rest[1..].starts_with('\\') { 3 } else { 2 };
            match rest.char_indices().nth(len) {
                Some((at, '\'')) => at + 1,
                _ => 1,
            }
        } else if first.is_alphanumeric() || first == '_' {
            let len = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            message.push(rest[..len].to_owned());
            len
        } else {
            let len = if rest.starts_with("::") { 2 } else { first.len_utf8() };
            if !first.is_whitespace() {
                message.push(rest[..len].to_owned());
            }
            len
        };
        rest = &rest[len..];
    }
    message
}

/// The length of the string at the beginning of `text`, with its quotes.
fn string_len(text: &str) -> usize {
    let mut is_escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(paths: &[Path]) -> Vec<String> {
        paths.iter().map(|path| path.join("::")).collect()
    }

    #[test]
    fn trees_are_taken_apart() {
        let text = "use crate::{a::{self, A}, b::*, c::C as D};\nuse std::io;\n";
        let used = ["crate::a", "crate::a::A", "crate::b::*", "crate::c::C", "std::io"];
        assert_eq!(joined(&named(text).used), used);
    }

    #[test]
    fn what_is_passed_on_is_not_used() {
        let named = named("pub use a::A;\npub(crate) use b::{B as C, D};\nuse e::E;\n");
        let passed_on = named.passed_on.iter().map(|(name, path)| (name.as_str(), path.join("::")));
        let expected = [("A", "a::A"), ("C", "b::B"), ("D", "b::D")];
        assert!(passed_on.eq(expected.map(|(name, path)| (name, path.to_owned()))));
        assert_eq!(joined(&named.used), ["e::E"]);
    }

    #[test]
    fn visibilities_use_nothing() {
        let text = "pub(in crate::a) struct A { pub(in super::b) b: super::c::B }\n";
        assert_eq!(joined(&named(text).used), ["super::c::B"]);
    }

    #[test]
    fn paths_in_code_count_and_those_in_comments_and_strings_do_not() {
        let text = "// crate::a\nfn f<'a>() { crate::b::g('\"', '\\'', \"crate::c \\\" \"); }\n\
                    fn g() { super::h() }\n";
        assert_eq!(joined(&named(text).used), ["crate::b::g", "super::h"]);
    }
}
