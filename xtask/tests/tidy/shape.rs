//! The shape of files and functions: sizes, width, the opening comment, and names that say nothing.

use std::path::Path;

use syn::spanned::Spanned as _;
use syn::visit::Visit;

use crate::fault::Fault;
use crate::source::Source;

/// Code lines of a file, without its tests; and of its tests.
const FILE_LINES_MAX: usize = 500;
/// Code lines of a function's body.
const FUNCTION_LINES_MAX: usize = 70;
const LINE_WIDTH_MAX: usize = 100;
/// Characters of a function's name. A test's name is also a filter.
const NAME_LEN_MAX: usize = 60;

/// Names of files and folders that collect what has no name of its own.
const EMPTY_NAMES: &[&str] =
    &["common", "helper", "helpers", "manager", "misc", "types", "util", "utils"];

/// Names of values that say only that something was said.
const EMPTY_BINDINGS: &[&str] = &["asked", "told", "words"];

/// Returns the violations of the style's shape in `source`.
pub(crate) fn check(source: &Source) -> Vec<Fault> {
    let mut faults: Vec<Fault> = check_name(source).into_iter().collect();
    faults.extend(check_opening(source));
    faults.extend(check_width(source));
    faults.extend(check_file_size(source));
    faults.extend(check_functions(source));
    faults
}

fn check_name(source: &Source) -> Option<Fault> {
    let path = Path::new(&source.path).with_extension("");
    let names = path.iter().map(|name| name.to_string_lossy());
    let empty = names.into_iter().find(|name| EMPTY_NAMES.contains(&name.as_ref()))?;
    Some(Fault::new(&source.path, 1, format!("`{empty}` names no concept")))
}

fn check_opening(source: &Source) -> Option<Fault> {
    let first = source.text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    // The README shows this program in whole, and says what it is.
    let is_shown = source.path.starts_with("examples/hello/");
    let opens = first.starts_with("//!") || is_shown;
    (!opens).then(|| Fault::new(&source.path, 1, "does not open with `//!`, saying what it holds"))
}

fn check_width(source: &Source) -> Vec<Fault> {
    let lines = source.text.lines().enumerate();
    lines
        .filter_map(|(index, line)| {
            let width = line.chars().count();
            let what = format!("{width} columns, at most {LINE_WIDTH_MAX}");
            (width > LINE_WIDTH_MAX).then(|| Fault::new(&source.path, index + 1, what))
        })
        .collect()
}

fn check_file_size(source: &Source) -> Vec<Fault> {
    let code = source.code_lines();
    let tests = source.tests_start() - 1;
    let mut faults = Vec::new();
    for (first_line, lines, what) in [
        (1, &code[..tests.min(code.len())], "code"),
        (tests + 1, &code[tests.min(code.len())..], "tests"),
    ] {
        let count = lines.iter().filter(|is_code| **is_code).count();
        if count > FILE_LINES_MAX {
            let what = format!("{count} lines of {what}, at most {FILE_LINES_MAX}");
            faults.push(Fault::new(&source.path, first_line, what));
        }
    }
    faults
}

fn check_functions(source: &Source) -> Vec<Fault> {
    let mut functions =
        Functions { code: source.code_lines(), path: &source.path, faults: Vec::new() };
    functions.visit_file(&source.syntax());
    functions.faults
}

/// Measures every function that it meets, and checks the names of functions and values.
struct Functions<'a> {
    code: Vec<bool>,
    path: &'a str,
    faults: Vec<Fault>,
}

impl Functions<'_> {
    fn measure(&mut self, name: &syn::Ident, body: &syn::Block) {
        let (open, close) = (body.span().start().line, body.span().end().line);
        // The lines of the braces are the signature's.
        let inside = self.code.get(open..close.saturating_sub(1)).unwrap_or_default();
        let count = inside.iter().filter(|is_code| **is_code).count();
        let line = name.span().start().line;
        if count > FUNCTION_LINES_MAX {
            let what = format!("{name} has {count} lines, at most {FUNCTION_LINES_MAX}");
            self.faults.push(Fault::new(self.path, line, what));
        }
        if name.to_string().starts_with("of_") {
            let what = format!("{name} does not say what it returns");
            self.faults.push(Fault::new(self.path, line, what));
        }
        let len = name.to_string().chars().count();
        if len > NAME_LEN_MAX {
            let what = format!("{name} has {len} characters, at most {NAME_LEN_MAX}");
            self.faults.push(Fault::new(self.path, line, what));
        }
    }
}

impl Functions<'_> {
    fn check_binding(&mut self, name: &syn::Ident) {
        if EMPTY_BINDINGS.iter().any(|empty| name == empty) {
            let what = format!("`{name}` does not say what it holds");
            self.faults.push(Fault::new(self.path, name.span().start().line, what));
        }
    }
}

impl<'ast> Visit<'ast> for Functions<'_> {
    fn visit_pat_ident(&mut self, pattern: &'ast syn::PatIdent) {
        self.check_binding(&pattern.ident);
        syn::visit::visit_pat_ident(self, pattern);
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        if let Some(name) = &field.ident {
            self.check_binding(name);
        }
        syn::visit::visit_field(self, field);
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.measure(&function.sig.ident, &function.block);
        syn::visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.measure(&function.sig.ident, &function.block);
        syn::visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        if let Some(body) = &function.default {
            self.measure(&function.sig.ident, body);
        }
        syn::visit::visit_trait_item_fn(self, function);
    }
}

mod tests {
    use super::*;

    fn whats(path: &str, text: &str) -> Vec<String> {
        check(&Source::new(path, text)).iter().map(Fault::to_string).collect()
    }

    #[test]
    fn a_tidy_file_has_no_faults() {
        assert!(whats("a/src/call.rs", "//! Calls.\n\nfn f() {}\n").is_empty());
    }

    #[test]
    fn a_file_must_say_what_it_holds() {
        assert_eq!(whats("a.rs", "// Calls.\n").len(), 1);
        assert_eq!(whats("a.rs", "").len(), 1);
    }

    #[test]
    fn names_that_say_nothing_of_a_value_are_found() {
        let text = "//! A.\n\nstruct S {\n    told: u8,\n}\nfn of_call(words: u8) {\n    \
                    let (a, asked) = b;\n}\nfn of(said: u8) {}\n";
        let faults = check(&Source::new("a.rs", text));
        let mut lines: Vec<usize> = faults.iter().map(|fault| fault.line).collect();
        lines.sort_unstable();
        assert_eq!(lines, [4, 6, 6, 7]);
    }

    #[test]
    fn long_names_of_functions_are_found() {
        let [long, short] = [61, 60].map(|len| "a".repeat(len));
        let text = format!("//! A.\n\nfn {long}() {{}}\nfn {short}() {{}}\n");
        assert_eq!(whats("a.rs", &text), [format!("a.rs:3: {long} has 61 characters, at most 60")]);
    }

    #[test]
    fn names_without_a_concept_are_found_in_files_and_folders() {
        assert_eq!(
            whats("a/src/utils.rs", "//! A.\n"),
            ["a/src/utils.rs:1: `utils` names no concept"]
        );
        assert_eq!(whats("a/tests/common/mod.rs", "//! A.\n").len(), 1);
        assert!(whats("a/src/type_map.rs", "//! A.\n").is_empty());
    }

    #[test]
    fn a_wide_line_is_found_by_characters() {
        let width = |count| whats("a.rs", &format!("//! {}\n", "ü".repeat(count - 4)));
        assert!(width(LINE_WIDTH_MAX).is_empty());
        assert_eq!(width(LINE_WIDTH_MAX + 1), ["a.rs:1: 101 columns, at most 100"]);
    }

    #[test]
    fn code_and_tests_are_counted_apart() {
        let body = |count| "const A: () = ();\n".repeat(count);
        let file = |code, tests| {
            let text =
                format!("//! A.\n{}#[cfg(test)]\nmod tests {{\n{}}}\n", body(code), body(tests));
            whats("a.rs", &text)
        };
        // The attribute, the opening and the closing line are the tests'.
        assert!(file(500, 497).is_empty());
        assert_eq!(file(501, 0), ["a.rs:1: 501 lines of code, at most 500"]);
        assert_eq!(file(0, 498), ["a.rs:2: 501 lines of tests, at most 500"]);
    }

    #[test]
    fn long_functions_are_found_wherever_they_stand() {
        let long =
            |count: usize| format!("fn long() {{\n{}}}\n", "    g();\n    // Why.\n".repeat(count));
        for (before, after) in [("", ""), ("impl A {\n", "}\n"), ("trait A {\n", "}\n")] {
            let file = |count| whats("a.rs", &format!("//! A.\n{before}{}{after}", long(count)));
            assert!(file(FUNCTION_LINES_MAX).is_empty());
            assert_eq!(file(FUNCTION_LINES_MAX + 1).len(), 1, "{before}");
        }
    }
}
