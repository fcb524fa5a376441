//! An error of the libraries that users meet reads as a sentence by `Debug`, too.
//!
//! A `main` that returns an error prints it by `Debug`. `rpc_core::readable_debug!` makes that the
//! error's text; a derived one would be the names of fields.

use syn::spanned::Spanned;
use syn::visit::Visit;
use syn::{Attribute, ItemEnum, ItemStruct};

use crate::fault::Fault;
use crate::source::Source;

/// Folders with errors that users meet.
const PLACES: &[&str] = &[
    "farcall/src/",
    "farcall-service-config/src/",
    "rpc-core/src/",
    "rpc-codegen/src/",
    "rpc-transport-rdma/src/config/",
];

/// Errors that derive `Debug`.
pub(crate) fn check(source: &Source) -> Vec<Fault> {
    let is_test = source.path.ends_with("tests.rs");
    if is_test || !PLACES.iter().any(|place| source.path.starts_with(place)) {
        return Vec::new();
    }
    let mut errors = Errors { found: Vec::new() };
    errors.visit_file(&source.syntax());
    let tests_start = source.tests_start();
    let found = errors.found.into_iter().filter(|&line| line < tests_start);
    let what = "an error that derives `Debug`: `readable_debug!` has `main` print its text";
    found.map(|line| Fault::new(&source.path, line, what)).collect()
}

struct Errors {
    /// The lines of derives with both.
    found: Vec<usize>,
}

impl Errors {
    fn look(&mut self, attributes: &[Attribute]) {
        for attribute in attributes.iter().filter(|it| it.path().is_ident("derive")) {
            let mut derived = Vec::new();
            let parsed = attribute.parse_nested_meta(|meta| {
                derived.extend(meta.path.segments.last().map(|it| it.ident.to_string()));
                Ok(())
            });
            let has = |name: &str| derived.iter().any(|it| it == name);
            if parsed.is_ok() && has("Debug") && has("Error") {
                self.found.push(attribute.span().start().line);
            }
        }
    }
}

impl<'ast> Visit<'ast> for Errors {
    fn visit_item_enum(&mut self, item: &'ast ItemEnum) {
        self.look(&item.attrs);
    }

    fn visit_item_struct(&mut self, item: &'ast ItemStruct) {
        self.look(&item.attrs);
    }
}

mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check(&Source::new(path, text)).into_iter().map(|fault| fault.line).collect()
    }

    #[test]
    fn errors_that_print_the_names_of_their_fields_are_found() {
        for derive in ["Debug, Error", "Debug, Clone, thiserror::Error"] {
            let text = format!("/// An error.\n#[derive({derive})]\npub enum A {{}}\n");
            assert_eq!(lines("farcall/src/a.rs", &text), [2], "{text}");
            assert!(lines("benches/src/a.rs", &text).is_empty());
            assert!(lines("farcall/src/a_tests.rs", &text).is_empty());
        }
    }

    #[test]
    fn other_types_and_errors_of_tests_are_none() {
        let others = "#[derive(Debug, Clone)]\nstruct A;\n#[derive(Error)]\nstruct B;\n\
                      #[cfg(test)]\nmod tests {\n#[derive(Debug, Error)]\nstruct C;\n}\n";
        assert!(lines("rpc-core/src/a.rs", others).is_empty());
    }
}
