//! Services whose trait and messages another crate has: of them only farcall's module is generated.

use proc_macro2::TokenStream;
use quote::ToTokens;

use crate::names;

/// Packages of protobuf, each with the module in which its generated code is.
#[derive(Debug, Clone, Default)]
pub(crate) struct TonicPaths(Vec<(String, String)>);

impl TonicPaths {
    /// Adds a package, with a dot in front, and its module, a path of Rust.
    pub(crate) fn push(&mut self, package: &str, module: &str) {
        self.0.push((package.to_owned(), module.to_owned()));
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &(String, String)> {
        self.0.iter()
    }

    /// The module with the generated code of `package`; `None` when that is made in this run.
    ///
    /// As with `extern_path`, the longest path that fits counts, and packages below it are modules
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
    fn packages_below_a_path_are_modules_below_its_module() {
        let paths = [(".opentelemetry.proto", "::opentelemetry_proto::tonic")];
        let expected = "::opentelemetry_proto::tonic::collector::trace::v1";
        let found = module(&paths, "opentelemetry.proto.collector.trace.v1");
        assert_eq!(found.as_deref(), Some(expected));
        let found = module(&[(".a", "crate::a")], "a.type.HTTPThing");
        assert_eq!(found.as_deref(), Some("crate::a::r#type::http_thing"));
    }

    #[test]
    fn the_longest_path_counts() {
        let paths = [(".a", "::x"), (".a.b", "::y"), (".a.b.c", "::z")];
        assert_eq!(module(&paths, "a.b").as_deref(), Some("::y"));
        assert_eq!(module(&paths, "a.bc").as_deref(), Some("::x::bc"));
        assert_eq!(module(&paths, "b"), None);
        assert_eq!(module(&paths, ""), None);
    }
}
