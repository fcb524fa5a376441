//! Names of functions and bindings: nouns and verbs that fit a line and a filter.

use proc_macro2::Span;
use syn::visit::Visit;

use crate::fault::Fault;
use crate::source::Source;

/// Characters of a function's name. A longer test name makes a poor filter.
const FUNCTION_NAME_MAX: usize = 60;

/// Names of bindings that say nothing.
const EMPTY: &[&str] = &["words", "told", "asked"];

/// Returns the names in `source` that break the rule. Names in macros are not checked.
pub(crate) fn check(source: &Source) -> Vec<Fault> {
    let mut names = Names { path: &source.path, faults: Vec::new() };
    names.visit_file(&source.syntax());
    names.faults
}

struct Names<'a> {
    path: &'a str,
    faults: Vec<Fault>,
}

impl Names<'_> {
    fn check_function(&mut self, name: &syn::Ident) {
        let text = name.to_string();
        let len = text.chars().count();
        if len > FUNCTION_NAME_MAX {
            let what = format!("`{text}` has {len} characters, at most {FUNCTION_NAME_MAX}");
            self.report(name.span(), what);
        }
        self.check_preposition(name);
    }

    fn check_preposition(&mut self, name: &syn::Ident) {
        if name.to_string().starts_with("of_") {
            self.report(name.span(), format!("`{name}` is a phrase: name the thing"));
        }
    }

    fn report(&mut self, span: Span, what: String) {
        self.faults.push(Fault::new(self.path, span.start().line, what));
    }
}

impl<'ast> Visit<'ast> for Names<'_> {
    fn visit_signature(&mut self, signature: &'ast syn::Signature) {
        self.check_function(&signature.ident);
        syn::visit::visit_signature(self, signature);
    }

    fn visit_pat_ident(&mut self, pattern: &'ast syn::PatIdent) {
        self.check_preposition(&pattern.ident);
        if EMPTY.iter().any(|name| pattern.ident == name) {
            self.report(pattern.ident.span(), format!("`{}` says nothing", pattern.ident));
        }
        syn::visit::visit_pat_ident(self, pattern);
    }
}

mod tests {
    use super::*;

    fn count(text: &str) -> usize {
        check(&Source::new("a.rs", text)).len()
    }

    #[test]
    fn phrases_and_empty_names_are_found() {
        assert_eq!(count("fn of_a(words: &str) { let of_b = words; let Some(told) = of_b; }"), 4);
        assert_eq!(count("fn of(a: u8) { let often = a; let offset = often; }"), 0);
    }

    #[test]
    fn long_names_of_functions_are_found() {
        let [long, short] = [61, 60].map(|len| "a".repeat(len));
        assert_eq!(count(&format!("fn {long}() {{}} fn {short}() {{}}")), 1);
        assert_eq!(count(&format!("trait T {{ fn {long}(); }} impl S {{ fn {long}() {{}} }}")), 2);
    }
}
