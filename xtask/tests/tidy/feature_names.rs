//! No public name depends on whether RDMA is built in: a program that compiles with it compiles
//! without, and is told at run time.
//!
//! What a feature adds to a crate is private. `cargo check --no-default-features`
//! then shows that every name is there, since the crate root exports them whatever is built in.

use syn::spanned::Spanned;
use syn::visit::Visit;
use syn::{Attribute, ItemFn, ItemMod, ItemUse, Visibility};

use crate::fault::Fault;
use crate::source::Source;

/// Where the rule holds, and the features that it is about.
const PLACES: &[(&str, &[&str])] = &[
    ("farcall/src/", &["rdma", "rdma-sys"]),
    ("rpc-transport-rdma/src/config/", &["ibverbs", "sim", "transport"]),
    ("rpc-transport-rdma/src/stats/device_status.rs", &["ibverbs", "sim", "transport"]),
    ("rpc-transport-rdma/src/stats/lane_info.rs", &["ibverbs", "sim", "transport"]),
];

/// Attributes by which something that may be a part of the interface depends on a feature.
pub(crate) fn check(source: &Source) -> Vec<Fault> {
    let place = PLACES.iter().find(|(path, _)| source.path.starts_with(path));
    let Some((_, features)) = place else { return Vec::new() };
    let mut conditions = Conditions { features, found: Vec::new(), private: Vec::new() };
    conditions.visit_file(&source.syntax());
    let Conditions { found, private, .. } = conditions;
    let what =
        "a public name may depend on this feature: only private modules, imports and functions may";
    let faults = found.into_iter().filter(|line| !private.contains(line));
    faults.map(|line| Fault::new(&source.path, line, what)).collect()
}

struct Conditions<'a> {
    features: &'a [&'a str],
    /// The lines of attributes that name one of the features.
    found: Vec<usize>,
    /// The lines of attributes of what is private.
    private: Vec<usize>,
}

impl Conditions<'_> {
    fn is_condition(&self, attribute: &Attribute) -> bool {
        let is_cfg = ["cfg", "cfg_attr"].iter().any(|name| attribute.path().is_ident(name));
        let words = match &attribute.meta {
            syn::Meta::List(list) => list.tokens.to_string(),
            _ => String::new(),
        };
        is_cfg && self.features.iter().any(|name| words.contains(&format!("feature = \"{name}\"")))
    }

    fn pass_if_private(&mut self, visibility: &Visibility, attributes: &[Attribute]) {
        if !matches!(visibility, Visibility::Public(_)) {
            self.private.extend(attributes.iter().map(|it| it.span().start().line));
        }
    }
}

impl<'ast> Visit<'ast> for Conditions<'_> {
    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        if self.is_condition(attribute) {
            self.found.push(attribute.span().start().line);
        }
    }

    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        self.pass_if_private(&module.vis, &module.attrs);
        syn::visit::visit_item_mod(self, module);
    }

    fn visit_item_fn(&mut self, function: &'ast ItemFn) {
        self.pass_if_private(&function.vis, &function.attrs);
        syn::visit::visit_item_fn(self, function);
    }

    fn visit_item_use(&mut self, import: &'ast ItemUse) {
        self.pass_if_private(&import.vis, &import.attrs);
        syn::visit::visit_item_use(self, import);
    }
}

mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check(&Source::new(path, text)).iter().map(|fault| fault.line).collect()
    }

    #[test]
    fn names_that_depend_on_rdma_are_found_whatever_they_are() {
        for text in [
            "#[cfg(feature = \"rdma\")]\npub use a::B;",
            "#[cfg(any(feature = \"rdma\", feature = \"sim\"))]\npub struct A;",
            "#[cfg(not(feature = \"rdma\"))]\npub mod a;",
            "#[cfg(feature = \"rdma\")]\nimpl A {}",
            "#[cfg(feature = \"rdma-sys\")]\npub fn a() {}",
        ] {
            assert_eq!(lines("farcall/src/a.rs", text), [1], "{text}");
            assert!(lines("tests/suite/src/a.rs", text).is_empty());
        }
        let method = "impl A {\n    #[cfg(feature = \"rdma\")]\n    pub fn a() {}\n}";
        assert_eq!(lines("farcall/src/a.rs", method), [2]);
        let field = "pub struct A {\n    #[cfg(feature = \"transport\")]\n    pub a: u8,\n}";
        assert_eq!(lines("rpc-transport-rdma/src/config/values.rs", field), [2]);
    }

    #[test]
    fn what_is_private_and_other_features_may_depend_on_anything() {
        for text in [
            "#[cfg(not(feature = \"rdma\"))]\nmod a;",
            "#[cfg(feature = \"rdma\")]\nuse a::b;",
            "#[cfg(feature = \"rdma\")]\npub(super) fn a() {}",
            "#[cfg(feature = \"sim\")]\npub use a::b;",
            "fn f() -> bool { cfg!(feature = \"rdma\") }",
        ] {
            assert!(lines("farcall/src/a.rs", text).is_empty(), "{text}");
        }
    }
}
