//! The conditions under which tonic's modules exist.
//!
//! `server_mod_attribute("pkg", "#[cfg(feature = \"server\")]")` makes tonic's server module
//! conditional. Our service names the trait in that module, so it needs the same condition. The
//! `cfg` attributes of tonic's modules are therefore repeated on our items. Other attributes are
//! not.

use proc_macro2::TokenStream;
use quote::ToTokens;

/// `cfg` attributes, by the pattern of their packages.
#[derive(Debug, Clone, Default)]
pub(crate) struct ModCfg {
    attributes: Vec<(String, TokenStream)>,
}

impl ModCfg {
    /// Adds the conditions among `attributes`.
    pub(crate) fn push(&mut self, pattern: &str, attributes: Vec<syn::Attribute>) {
        let conditions =
            attributes.into_iter().filter(|attribute| attribute.path().is_ident("cfg"));
        self.attributes.extend(
            conditions.map(|attribute| (pattern.to_owned(), attribute.into_token_stream())),
        );
    }

    /// Returns the conditions on the modules of `package`.
    pub(crate) fn of(&self, package: &str) -> Vec<&TokenStream> {
        let matching = self.attributes.iter().filter(|(pattern, _)| matches(pattern, package));
        matching.map(|(_, attribute)| attribute).collect()
    }
}

/// Matches by tonic's rule: `.` matches everything, a leading dot anchors at the front, anything
/// else at the end.
///
/// A package has no leading dot, so an anchored pattern matches nothing, here as in tonic.
fn matches(pattern: &str, package: &str) -> bool {
    if pattern == "." {
        return true;
    }
    if pattern.is_empty() || pattern.starts_with('.') {
        return false;
    }
    package == pattern || package.strip_suffix(pattern).is_some_and(|front| front.ends_with('.'))
}

#[cfg(test)]
mod tests {
    use syn::parse_quote;

    use super::*;

    #[test]
    fn patterns_match_as_in_tonic() {
        assert!(matches(".", "a.b") && matches(".", ""));
        assert!(matches("a.b", "a.b") && matches("b", "a.b"));
        assert!(!matches("a", "a.b") && !matches("b", "a.bb") && !matches("", "a"));
        assert!(!matches(".a", "a.b"));
    }

    #[test]
    fn only_conditions_are_kept() {
        let mut cfg = ModCfg::default();
        cfg.push("a", vec![parse_quote!(#[cfg(unix)]), parse_quote!(#[allow(dead_code)])]);
        let kept = cfg.of("a").into_iter().map(|attribute| attribute.to_string().replace(' ', ""));
        assert_eq!(kept.collect::<Vec<_>>(), ["#[cfg(unix)]"]);
        assert!(cfg.of("b").is_empty());
    }
}
