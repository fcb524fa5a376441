//! The imports among a crate's files: resolves each path to the file of its module.
//!
//! An item counts for the file that defines it. A module that passes it on (`pub use`) is followed,
//! and imports nothing by that, as long as its own code does not use it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path as FilePath, PathBuf};

use super::lines::without_tests;
use super::paths::{self, Named, Path};

/// Maximum number of modules that re-export an item one after the other.
const PASSES_MAX: usize = 8;

/// A crate's modules by their paths.
struct Modules<'a>(BTreeMap<Path, (&'a FilePath, Named)>);

/// For each file, the files that it imports from.
pub(super) fn imports(sources: &[(PathBuf, String)]) -> BTreeMap<String, BTreeSet<String>> {
    let modules = sources.iter().map(|(file, text)| {
        (module_path(file), (file.as_path(), paths::named(without_tests(text))))
    });
    let modules = Modules(modules.collect());
    let mut imports = BTreeMap::new();
    for (module, (file, named)) in &modules.0 {
        let found = named.used.iter().filter_map(|path| modules.resolve(module, path, PASSES_MAX));
        let found: BTreeSet<String> =
            found.filter(|found| found != file).map(|found| found.display().to_string()).collect();
        imports.insert(file.display().to_string(), found);
    }
    imports
}

/// The path of the module in a file: that of `a/b.rs` and of `a/b/mod.rs` is `a::b`. A program in
/// `bin` is a crate of its own, whose name begins its path.
fn module_path(file: &FilePath) -> Path {
    let stem = file.with_extension("");
    let mut path: Path = stem.iter().map(|name| name.to_string_lossy().into_owned()).collect();
    if path.last().is_some_and(|last| last == "mod")
        || (path.len() == 1 && ["lib", "main"].contains(&path[0].as_str()))
    {
        path.pop();
    }
    path
}

impl<'a> Modules<'a> {
    /// The file that defines what `path` names in `module`, if that is of this crate.
    fn resolve(&self, module: &Path, path: &Path, passes: usize) -> Option<&'a FilePath> {
        let (mut base, rest) = self.base(module, path)?;
        let mut names = rest.iter().peekable();
        while let Some(name) = names.peek() {
            base.push((*name).clone());
            if !self.0.contains_key(&base) {
                base.pop();
                break;
            }
            names.next();
        }
        let (file, named) = self.0.get(&base)?;
        let Some(name) = names.next() else { return Some(file) };
        let passed_on = named.passed_on.iter().filter(|(known, _)| known == name || known == "*");
        let target = passed_on.filter(|_| passes > 0).find_map(|(known, path)| {
            let mut path = path.clone();
            if known == "*" {
                path.pop();
                path.push(name.clone());
            }
            path.extend(names.clone().cloned());
            let found = self.resolve(&base, &path, passes - 1)?;
            // Behind a glob, only a file that is not the module of the glob itself is certain.
            (known != "*" || found != *file).then_some(found)
        });
        Some(target.unwrap_or(file))
    }

    /// The module in which a path begins, and what of the path is left.
    fn base<'p>(&self, module: &Path, path: &'p Path) -> Option<(Path, &'p [String])> {
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => Some((Vec::new(), rest)),
            "self" => Some((module.clone(), rest)),
            "super" => {
                let mut parent = module.clone();
                parent.pop()?;
                let climbs = rest.iter().take_while(|name| *name == "super").count();
                (0..climbs).try_for_each(|_| parent.pop().map(drop))?;
                Some((parent, &rest[climbs..]))
            }
            _ => {
                // A module below this one, without which it is another crate's.
                let mut child = module.clone();
                child.push(first.clone());
                self.0.contains_key(&child).then_some((child, rest))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(sources: &[(&str, &str)]) -> Vec<String> {
        let sources: Vec<(PathBuf, String)> =
            sources.iter().map(|(path, text)| (path.into(), (*text).to_owned())).collect();
        let arrows = |(from, to): (String, BTreeSet<String>)| {
            to.into_iter().map(move |to| format!("{from} -> {to}"))
        };
        imports(&sources).into_iter().flat_map(arrows).collect()
    }

    #[test]
    fn paths_lead_to_files() {
        let arrows = of(&[
            ("lib.rs", "mod a;\nmod b;\nuse a::A;\nuse std::fmt;\n"),
            ("a/mod.rs", "mod c;\nuse self::c::C;\npub struct A(C);\n"),
            ("a/c.rs", "use super::A;\nuse super::super::b::{self, B};\npub struct C;\n"),
            ("b.rs", "fn f() { crate::a::c::g() }\n"),
        ]);
        let expected = [
            "a/c.rs -> a/mod.rs",
            "a/c.rs -> b.rs",
            "a/mod.rs -> a/c.rs",
            "b.rs -> a/c.rs",
            "lib.rs -> a/mod.rs",
        ];
        assert_eq!(arrows, expected);
    }

    #[test]
    fn what_is_passed_on_is_followed_to_its_file() {
        let arrows = of(&[
            ("lib.rs", "mod a;\nmod b;\npub use a::*;\n"),
            ("a/mod.rs", "mod c;\npub use c::C as D;\npub struct A;\n"),
            ("a/c.rs", "pub struct C;\n"),
            ("b.rs", "use crate::a::D;\nuse crate::a::A;\n"),
        ]);
        assert_eq!(arrows, ["b.rs -> a/c.rs", "b.rs -> a/mod.rs"]);
    }

    #[test]
    fn tests_import_what_they_like() {
        let tests = "#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}\n";
        assert_eq!(of(&[("a.rs", ""), ("b.rs", tests)]), [""; 0]);
    }
}
