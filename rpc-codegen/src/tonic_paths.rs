//! Services whose trait and messages another crate has. Only their farcall module is generated.

use proc_macro2::TokenStream;
use quote::ToTokens;

use crate::names;

/// Protobuf packages, each with the module that contains its generated code.
#[derive(Debug, Clone, Default)]
pub(crate) struct TonicPaths(Vec<(String, String)>);

impl TonicPaths {
    /// Adds a package with a leading dot, and the Rust path of its module.
    pub(crate) fn push(&mut self, package: &str, module: &str) {
        self.0.push((package.to_owned(), module.to_owned()));
    }

    /// Returns all packages with their modules.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &(String, String)> {
        self.0.iter()
    }

    /// Returns the module with the generated code of `package`; `None` if this run generates it.
    ///
    /// The longest matching path wins, like in `extern_path`, and packages below it are modules
    /// below its module.
    pub(crate) fn module(&self, package: &str) -> Option<TokenStream> {
        let full_name = format!(".{package}");
        let below = |path: &str| full_name.strip_prefix(path).filter(|rest| is_below(rest));
        let fitting = self.0.iter().filter_map(|(path, module)| Some((below(path)?, module)));
        let (rest, module) = fitting.min_by_key(|(rest, _)| rest.len())?;
        let mut module = syn::parse_str::<syn::Path>(module).ok()?;
        for segment in rest.split('.').skip(1) {
            module.segments.push(names::prost_snake(segment).into());
        }
        Some(module.into_token_stream())
    }
}

fn is_below(rest: &str) -> bool {
    rest.is_empty() || rest.starts_with('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(paths: &[(&str, &str)], package: &str) -> Option<String> {
        let mut all = TonicPaths::default();
        for (package, module) in paths {
            all.push(package, module);
        }
        all.module(package).map(|module| module.to_string().replace(' ', ""))
    }

    #[test]
    fn subpackages_are_submodules() {
        let paths = [(".opentelemetry.proto", "::opentelemetry_proto::tonic")];
        let expected = "::opentelemetry_proto::tonic::collector::trace::v1";
        let found = module(&paths, "opentelemetry.proto.collector.trace.v1");
        assert_eq!(found.as_deref(), Some(expected));
        let found = module(&[(".a", "crate::a")], "a.type.HTTPThing");
        assert_eq!(found.as_deref(), Some("crate::a::r#type::http_thing"));
    }

    #[test]
    fn the_longest_path_wins() {
        let paths = [(".a", "::x"), (".a.b", "::y"), (".a.b.c", "::z")];
        assert_eq!(module(&paths, "a.b").as_deref(), Some("::y"));
        assert_eq!(module(&paths, "a.bc").as_deref(), Some("::x::bc"));
        assert_eq!(module(&paths, "b"), None);
        assert_eq!(module(&paths, ""), None);
    }
}
