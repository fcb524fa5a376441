//! Lines of the log have targets that stay: a filter that a user has written holds although a
//! module is moved.
//!
//! Every macro of `tracing` in the libraries names its target first, and the book's `logging.md`
//! has each target. Without one a line's target is the path of its module, in one of seven crates.

use proc_macro2::{TokenStream, TokenTree};

use crate::fault::Fault;
use crate::source::Source;

/// The libraries that users' programs have.
const CRATES: &[&str] = &[
    "rpc-core/src/",
    "rpc-transport-grpc/src/",
    "rpc-transport-tcp/src/",
    "rpc-transport-rdma/src/",
    "farcall/src/",
    "farcall-etcd/src/",
    "farcall-xds/src/",
];

/// Those of them whose lines the page has one by one.
const DOCUMENTED: &[&str] =
    &["rpc-core/src/", "farcall/src/", "farcall-etcd/src/", "farcall-xds/src/"];

/// The macros that make lines and spans, or ask whether they would be written.
const WRITERS: &[&str] = &[
    "trace",
    "debug",
    "info",
    "warn",
    "error",
    "event",
    "enabled",
    "span",
    "trace_span",
    "debug_span",
    "info_span",
    "warn_span",
    "error_span",
    "limited_log",
];

/// The targets that there are. The page has them all.
pub(crate) const TARGETS: &[&str] = &[
    "farcall::path",
    "farcall::server",
    "farcall::call",
    "farcall::access",
    "farcall::rdma",
    "farcall::settings",
    "farcall::trace",
    "farcall::log",
];

/// The page that tells what each target says.
pub(crate) const PAGE: &str = "docs/book/src/logging.md";

/// Lines without one of the targets.
pub(crate) fn check(source: &Source) -> Vec<Fault> {
    let is_test = source.path.ends_with("tests.rs");
    if is_test || !CRATES.iter().any(|place| source.path.starts_with(place)) {
        return Vec::new();
    }
    let stream: TokenStream =
        source.text.parse().unwrap_or_else(|error| panic!("{}: {error}", source.path));
    let mut lines = Vec::new();
    look(stream, &mut lines);
    let tests_start = source.tests_start();
    lines.retain(|&line| line < tests_start);
    let what = format!("a line of the log without a target of {PAGE}: `target: \"farcall::..\"`");
    lines.into_iter().map(|line| Fault::new(&source.path, line, what.clone())).collect()
}

/// The lines of INFO and above of the runtime that the page does not have. Those of RDMA are told
/// there as a whole.
pub(crate) fn check_documented(source: &Source, page: &str) -> Vec<Fault> {
    let is_test = source.path.ends_with("tests.rs");
    if is_test || !DOCUMENTED.iter().any(|it| source.path.starts_with(it)) {
        return Vec::new();
    }
    let stream: TokenStream =
        source.text.parse().unwrap_or_else(|error| panic!("{}: {error}", source.path));
    let mut said = Vec::new();
    texts(stream, &mut said);
    let tests_start = source.tests_start();
    let is_missing = |(line, text): &(usize, String)| {
        let fixed = text.split('{').next().unwrap_or(text).trim_end();
        *line < tests_start && !page.contains(&format!("`{fixed}"))
    };
    let missing = said.into_iter().filter(is_missing);
    missing
        .map(|(line, text)| Fault::new(&source.path, line, format!("{PAGE} has no `{text}`")))
        .collect()
}

/// Collects the texts of lines of INFO and above, with where they are written.
fn texts(stream: TokenStream, said: &mut Vec<(usize, String)>) {
    let trees: Vec<TokenTree> = stream.into_iter().collect();
    for (index, tree) in trees.iter().enumerate() {
        let TokenTree::Group(group) = tree else { continue };
        if let [.., TokenTree::Ident(name), TokenTree::Punct(sign)] = &trees[..index]
            && sign.as_char() == '!'
        {
            let arguments: Vec<TokenTree> = group.stream().into_iter().collect();
            let is_level = |tree: &TokenTree| {
                let levels = ["INFO", "WARN", "ERROR"];
                matches!(tree, TokenTree::Ident(word) if levels.iter().any(|it| word == it))
            };
            let is_shown = ["info", "warn", "error"].iter().any(|it| name == it)
                || (name == "limited_log" && arguments.iter().any(is_level));
            let mut text = arguments.iter().skip(3).filter_map(|tree| match tree {
                TokenTree::Literal(literal) => {
                    syn::parse_str::<syn::LitStr>(&literal.to_string()).ok()
                }
                _ => None,
            });
            if let (true, Some(text)) = (is_shown, text.next_back()) {
                said.push((name.span().start().line, text.value()));
            }
        }
        texts(group.stream(), said);
    }
}

/// Returns a fault for each target that the page lacks.
pub(crate) fn check_page(page: &str) -> Vec<Fault> {
    let missing = TARGETS.iter().filter(|target| !page.contains(&format!("`{target}`")));
    missing.map(|target| Fault::new(PAGE, 1, format!("it does not have `{target}`"))).collect()
}

/// Collects the lines of macros without a target.
fn look(stream: TokenStream, lines: &mut Vec<usize>) {
    let trees: Vec<TokenTree> = stream.into_iter().collect();
    for (index, tree) in trees.iter().enumerate() {
        let TokenTree::Group(group) = tree else { continue };
        if let [.., TokenTree::Ident(name), TokenTree::Punct(sign)] = &trees[..index]
            && sign.as_char() == '!'
            && WRITERS.iter().any(|writer| name == writer)
            && !has_target(group.stream())
        {
            lines.push(name.span().start().line);
        }
        look(group.stream(), lines);
    }
}

/// Returns true if a macro's arguments begin with one of the targets, or with the target that a
/// macro of ours received.
fn has_target(arguments: TokenStream) -> bool {
    let first: Vec<TokenTree> = arguments.into_iter().take(3).collect();
    let [TokenTree::Ident(word), TokenTree::Punct(colon), target] = &first[..] else {
        return false;
    };
    let is_known = match target {
        TokenTree::Literal(text) => {
            TARGETS.iter().any(|known| text.to_string() == format!("\"{known}\""))
        }
        TokenTree::Punct(sign) => sign.as_char() == '$',
        _ => false,
    };
    word == "target" && colon.as_char() == ':' && is_known
}

mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check(&Source::new(path, text)).into_iter().map(|fault| fault.line).collect()
    }

    #[test]
    fn lines_without_a_known_target_are_found_wherever_they_stand() {
        for written in [
            "tracing::warn!(\"a\")",
            "limited_log!(log, WARN, \"a\", b)",
            "select! { () = a => tracing::debug!(%error, \"a\") }",
            "tracing::info!(target: \"mine\", \"a\")",
            "tracing::info_span!(\"a\")",
        ] {
            let text = format!("fn f() {{\n    {written};\n}}\n");
            assert_eq!(lines("rpc-core/src/a.rs", &text), [2], "{text}");
            assert!(lines("tests/suite/src/a.rs", &text).is_empty());
        }
    }

    #[test]
    fn lines_with_a_target_are_none_and_tests_may_write_any() {
        let text = "fn f() { tracing::warn!(target: \"farcall::path\", \"a\") }\n\
                    macro_rules! m { ($t:literal) => { tracing::event!(target: $t, \"a\") }; }\n\
                    #[cfg(test)]\nmod tests {\n    fn g() { tracing::warn!(\"a\"); }\n}\n";
        assert!(lines("farcall/src/a.rs", text).is_empty());
    }

    #[test]
    fn lines_that_the_page_does_not_have_are_found() {
        let text = "fn f() {\n    \
                    limited_log!(target: \"farcall::log\", a, WARN, \"a line\", b);\n    \
                    tracing::info!(target: \"farcall::log\", c = 1, \"the {d} line\");\n    \
                    tracing::debug!(target: \"farcall::log\", \"nothing\");\n}\n";
        let source = Source::new("rpc-core/src/a.rs", text);
        let lines = |page: &str| {
            check_documented(&source, page).into_iter().map(|fault| fault.line).collect::<Vec<_>>()
        };
        assert_eq!(lines(""), [2, 3]);
        assert_eq!(lines("| `a line` | `the .. line` |"), [0; 0]);
        assert_eq!(lines("| a line | `the .. line` |"), [2]);
    }

    #[test]
    fn a_page_without_a_target_is_found() {
        let page = TARGETS[1..].iter().map(|target| format!("`{target}` ")).collect::<String>();
        assert_eq!(check_page(&page).len(), 1);
        assert!(check_page(&format!("{page}`{}`", TARGETS[0])).is_empty());
    }
}
