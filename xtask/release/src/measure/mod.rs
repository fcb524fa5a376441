//! `cargo xtask measure`: how the code looks to a reader, crate by crate, in a table: how long the
//! files are, how dense the comments, and which files import each other in a circle.
//!
//! `lines` counts in a file, `tree` finds crates and their files, `paths` reads what a file names,
//! `modules` resolves those paths to files, `graph` finds circles and levels. Nothing here judges:
//! what may not be is held by the `tidy` test.

mod graph;
pub(crate) mod lines;
mod modules;
mod paths;
mod tree;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use farcall_testkit::process::bounded;
use farcall_testkit::table::Columns;

use graph::Graph;
use lines::Counts;
use tree::Crate;

/// Name of the line with all crates.
const ALL: &str = "all";

/// `git archive` and `tar` take about a second.
const UNPACK_LIMIT: Duration = Duration::from_secs(120);

/// Arguments of `cargo xtask measure`.
#[derive(Debug, Args)]
pub(crate) struct MeasureOptions {
    /// Measure this crate only, by its folder, for example `rpc-core`. May be repeated.
    #[arg(long = "crate", value_name = "FOLDER")]
    crates: Vec<String>,
    /// Name the files of every circle of imports, and the folders.
    #[arg(long)]
    circles: bool,
    /// The checkout to measure.
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    root: PathBuf,
    /// Measure this commit of the checkout, and not its files.
    #[arg(long, value_name = "COMMIT")]
    at: Option<String>,
}

/// The measures of a crate, or of all.
#[derive(Debug)]
struct Measures {
    folder: String,
    counts: Counts,
    /// Code lines of each file, the shortest first.
    lengths: Vec<usize>,
    circles: Vec<Vec<String>>,
    /// Circles among the top-level folders.
    folder_circles: Vec<Vec<String>>,
    levels: usize,
    vague_words: usize,
}

/// Measures, and prints the table.
///
/// # Errors
///
/// Returns an error if a file cannot be read, or there is no such crate or commit.
pub(crate) fn run(options: &MeasureOptions) -> Result<()> {
    let mut crates = match &options.at {
        None => tree::crates(&options.root)?,
        Some(commit) => {
            let folder = tempfile::Builder::new().prefix("farcall-measure-").tempdir()?;
            unpack(&options.root, commit, folder.path())?;
            tree::crates(folder.path())?
        }
    };
    if let Some(unknown) =
        options.crates.iter().find(|name| crates.iter().all(|known| known.folder != **name))
    {
        bail!("`{unknown}` contains no crate");
    }
    crates.retain(|known| options.crates.is_empty() || options.crates.contains(&known.folder));
    let mut measured: Vec<Measures> = crates.iter().map(measure).collect();
    if measured.len() > 1 {
        measured.push(together(&measured));
    }
    print!("{}", table(&measured));
    if options.circles {
        for one in measured.iter().filter(|it| it.folder != ALL) {
            let Measures { folder, circles, folder_circles, .. } = one;
            circles.iter().for_each(|circle| println!("{folder}: {}", circle.join(" <-> ")));
            for circle in folder_circles {
                println!("{folder}: {}", circle.join("/ <-> ") + "/");
            }
        }
    }
    Ok(())
}

/// Puts the files of a commit into `folder`.
fn unpack(root: &Path, commit: &str, folder: &Path) -> Result<()> {
    let archive = folder.join("commit.tar");
    let mut git = Command::new("git");
    git.arg("-C").arg(root).args(["archive", "--format=tar", "--output"]).arg(&archive);
    bounded::run(git.arg(commit), UNPACK_LIMIT)?;
    let mut tar = Command::new("tar");
    tar.arg("--extract").arg("--file").arg(&archive).arg("--directory").arg(folder);
    Ok(bounded::run(&mut tar, UNPACK_LIMIT)?)
}

fn measure(measured: &Crate) -> Measures {
    let mut lengths = Vec::new();
    let mut counts = Counts::default();
    for (_, text) in &measured.sources {
        let file_counts = Counts::of(lines::without_tests(text));
        lengths.push(file_counts.code);
        counts += file_counts;
    }
    lengths.sort_unstable();
    let imports = modules::imports(&measured.sources);
    let graph = Graph::new(&imports);
    Measures {
        folder: measured.folder.clone(),
        counts,
        lengths,
        circles: graph.circles(),
        folder_circles: Graph::folders(&imports).circles(),
        levels: graph.levels(),
        vague_words: measured.texts.iter().map(|text| lines::vague_words(text)).sum(),
    }
}

/// The measures of all crates as one, whose circles have been named with the crates.
fn together(measured: &[Measures]) -> Measures {
    let mut counts = Counts::default();
    measured.iter().for_each(|one| counts += one.counts);
    let mut lengths: Vec<_> = measured.iter().flat_map(|one| one.lengths.clone()).collect();
    lengths.sort_unstable();
    Measures {
        folder: ALL.to_owned(),
        counts,
        lengths,
        circles: measured.iter().flat_map(|one| one.circles.clone()).collect(),
        folder_circles: measured.iter().flat_map(|one| one.folder_circles.clone()).collect(),
        levels: measured.iter().map(|one| one.levels).max().unwrap_or_default(),
        vague_words: measured.iter().map(|one| one.vague_words).sum(),
    }
}

fn table(measured: &[Measures]) -> String {
    let columns = Columns::new()
        .left("crate", 22)
        .right("files", 6)
        .right("code", 7)
        .right("median", 7)
        .right("longest", 8)
        .right("types", 6)
        .right("public", 7)
        .right("traits", 7)
        .right("doc/100", 8)
        .right("inline/100", 11)
        .right("circles", 8)
        .right("folders", 8)
        .right("levels", 7)
        .right("words", 6);
    let mut table = format!("{}\n", columns.heading());
    for one in measured {
        let Measures { folder, counts, lengths, circles, folder_circles, levels, vague_words } =
            one;
        let (code, doc) = (counts.code, counts.per_hundred(counts.doc));
        let inline = counts.per_hundred(counts.inline);
        let median = lengths.get(lengths.len() / 2).copied().unwrap_or_default();
        let longest = lengths.last().copied().unwrap_or_default();
        let Counts { types, public, traits, .. } = *counts;
        let numbers = [lengths.len(), code, median, longest, types, public, traits];
        let mut cells = vec![folder.clone()];
        cells.extend(numbers.map(|number| number.to_string()));
        cells.extend([format!("{doc:.0}"), format!("{inline:.1}")]);
        let circles = [circles.len(), folder_circles.len(), *levels, *vague_words];
        cells.extend(circles.map(|number| number.to_string()));
        table.push_str(&columns.line(cells));
        table.push('\n');
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_is_a_line_of_the_table() {
        let sources = [
            ("lib.rs", "//! A crate.\nmod a;\nmod b;\n"),
            ("a.rs", "use crate::b::B;\n/// One.\npub struct A(B);\n"),
            ("b.rs", "use crate::a::A;\npub trait B {}\n// Why.\nfn f(_: A) {}\n"),
        ];
        let sources: Vec<_> = sources.map(|(path, text)| (path.into(), text.into())).into();
        let measured = measure(&Crate { folder: "it".into(), sources, texts: Vec::new() });
        assert_eq!(measured.circles, [["a.rs", "b.rs"]]);
        let shown = table(&[measured]);
        let pieces: Vec<&str> = shown.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(
            pieces,
            ["it", "3", "7", "2", "3", "1", "2", "1", "29", "14.3", "1", "1", "1", "0"],
            "{shown}"
        );
    }

    #[test]
    fn all_crates_together_are_one_line() {
        let one = |text: &str| {
            let sources = vec![("lib.rs".into(), text.into())];
            measure(&Crate { folder: "one".into(), sources, texts: vec![text.to_owned()] })
        };
        let shown = table(&[together(&[one("fn f() {}\n"), one("struct A;\nfn g() {}\n")])]);
        let pieces: Vec<&str> = shown.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(
            pieces,
            ["all", "2", "3", "2", "2", "1", "0", "0", "0", "0.0", "0", "0", "1", "0"]
        );
    }

    #[test]
    fn a_commit_is_measured_by_its_files() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let folder = tempfile::tempdir().unwrap();
        assert!(unpack(&root, "no-such-commit", folder.path()).is_err());
        let file = folder.path().join("xtask/src/lib.rs");
        // A bare machine has no git: what was cloned elsewhere is copied there.
        let has_git = Command::new("git").arg("--version").output().is_ok();
        if has_git && root.join(".git").exists() {
            unpack(&root, "HEAD", folder.path()).unwrap();
            assert!(file.is_file());
        }
    }
}
