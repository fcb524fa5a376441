//! Circles and levels of what imports what.

use std::collections::{BTreeMap, BTreeSet};

/// Files, and the files that each imports from.
#[derive(Debug)]
pub(super) struct Graph {
    /// For each file, all that it reaches over one import or more.
    reached: BTreeMap<String, BTreeSet<String>>,
}

impl Graph {
    pub(super) fn new(imports: &BTreeMap<String, BTreeSet<String>>) -> Self {
        let reached = imports.keys().map(|file| (file.clone(), reached(imports, file))).collect();
        Self { reached }
    }

    /// The top-level folders of a crate in place of their files. A file beside them is one of its
    /// own; the crate's root, which imports what it likes, is none.
    pub(super) fn folders(imports: &BTreeMap<String, BTreeSet<String>>) -> Self {
        let mut folders: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (file, imported) in imports.iter().filter(|(file, _)| !is_root(file)) {
            let folder = folder_of(file);
            let others = imported.iter().filter(|other| !is_root(other)).map(|it| folder_of(it));
            let others = others.filter(|other| *other != folder).map(str::to_owned);
            folders.entry(folder.to_owned()).or_default().extend(others);
        }
        Self::new(&folders)
    }

    fn reaches(&self, from: &str, to: &str) -> bool {
        self.reached.get(from).is_some_and(|reached| reached.contains(to))
    }

    /// The groups of files of which each reaches each: the first is that of the first file.
    fn groups(&self) -> Vec<Vec<String>> {
        let mut groups: Vec<Vec<String>> = Vec::new();
        for file in self.reached.keys() {
            let is_home = |group: &&mut Vec<String>| {
                self.reaches(file, &group[0]) && self.reaches(&group[0], file)
            };
            match groups.iter_mut().find(is_home) {
                Some(group) => group.push(file.clone()),
                None => groups.push(vec![file.clone()]),
            }
        }
        groups
    }

    /// The circles: all files of each.
    pub(super) fn circles(&self) -> Vec<Vec<String>> {
        self.groups().into_iter().filter(|group| group.len() > 1).collect()
    }

    /// The files on the longest way from one that imports down to one that imports nothing, with a
    /// circle as one.
    pub(super) fn levels(&self) -> usize {
        let mut groups = self.groups();
        // What a group reaches has less to reach itself, so it comes first.
        groups.sort_by_key(|group| self.reached[&group[0]].len() + usize::from(group.len() == 1));
        let mut levels: Vec<usize> = Vec::new();
        for (index, group) in groups.iter().enumerate() {
            let below = (0..index).filter(|below| self.reaches(&group[0], &groups[*below][0]));
            levels.push(1 + below.map(|below| levels[below]).max().unwrap_or_default());
        }
        levels.into_iter().max().unwrap_or_default()
    }
}

fn is_root(file: &str) -> bool {
    ["lib.rs", "main.rs"].contains(&file)
}

/// The top-level folder of a file, or the name of one that stands beside the folders. A module
/// whose file stands beside its folder is one with it.
fn folder_of(file: &str) -> &str {
    file.split_once('/').map_or_else(|| file.trim_end_matches(".rs"), |(folder, _)| folder)
}

fn reached(imports: &BTreeMap<String, BTreeSet<String>>, from: &str) -> BTreeSet<String> {
    let mut reached = BTreeSet::new();
    let mut open = vec![from];
    while let Some(file) = open.pop() {
        for next in imports.get(file).into_iter().flatten() {
            if reached.insert(next.clone()) {
                open.push(next);
            }
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(arrows: &[(&str, &str)]) -> Graph {
        let mut imports: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (from, to) in arrows {
            imports.entry((*to).to_owned()).or_default();
            imports.entry((*from).to_owned()).or_default().insert((*to).to_owned());
        }
        Graph::new(&imports)
    }

    #[test]
    fn files_that_reach_each_other_are_a_circle() {
        let graph = graph(&[("a", "b"), ("b", "c"), ("c", "a"), ("d", "a"), ("e", "f")]);
        assert_eq!(graph.circles(), [["a", "b", "c"]]);
        assert_eq!(graph.levels(), 2);
    }

    #[test]
    fn folders_that_reach_each_other_are_a_circle() {
        let arrows = [
            ("lib.rs", "a/x.rs"),
            ("a/x.rs", "lib.rs"),
            ("a/x.rs", "b/y.rs"),
            ("b/z.rs", "c.rs"),
            ("c/w.rs", "a/v.rs"),
            ("d.rs", "a/x.rs"),
            ("a/x.rs", "a/v.rs"),
        ];
        let mut imports: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (from, to) in arrows {
            imports.entry(to.to_owned()).or_default();
            imports.entry(from.to_owned()).or_default().insert(to.to_owned());
        }
        assert_eq!(Graph::folders(&imports).circles(), [["a", "b", "c"]]);
    }

    #[test]
    fn levels_are_the_longest_way_down() {
        let chain = [("a", "b"), ("b", "c"), ("a", "c"), ("c", "d"), ("x", "d")];
        assert_eq!(graph(&chain).levels(), 4);
        let circle = [("a", "b"), ("b", "a"), ("b", "c"), ("c", "d"), ("d", "c"), ("d", "e")];
        assert_eq!(graph(&circle).levels(), 3);
        assert_eq!(graph(&[]).levels(), 0);
    }
}
