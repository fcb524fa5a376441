//! The public interface of farcall and the crates beside it as one golden file of text,
//! `farcall/tests/api.md`, made of rustdoc's pages.
//!
//! The page is held by the step `doc`, so that a change of the interface is seen in a review.
//! Another version of rustdoc may write other pages: then nothing is compared.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use farcall_testkit::process::bounded;

use super::user_docs;

/// Path of the page in the repository.
const PAGE: &str = "farcall/tests/api.md";

/// The environment variable that has the page written.
const WRITE: &str = "FARCALL_WRITE_GOLDEN";

/// The folders whose source text is ours; of other crates' items the page has the names.
const OURS: &[&str] = &[
    "src/farcall/",
    "src/farcall_etcd/",
    "src/farcall_service_config/",
    "src/farcall_xds/",
    "src/rpc_core/",
    "src/rpc_transport_grpc/",
    "src/rpc_transport_rdma/",
];

/// Compares the page with what rustdoc has just written, or writes it if the environment says so.
///
/// # Errors
///
/// Returns an error if they differ, or something cannot be read.
pub(super) fn check() -> Result<()> {
    let version = bounded::output(Command::new("rustdoc").arg("--version"), LIMIT)?;
    let version = version.split_whitespace().nth(1).unwrap_or_default();
    let page = page(version)?;
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(PAGE, &page).with_context(|| format!("writing {PAGE}"))?;
    }
    let held = std::fs::read_to_string(PAGE).with_context(|| format!("reading {PAGE}"))?;
    if !held.contains(&made_by(version)) {
        println!("{PAGE} was written by another rustdoc than {version}: not compared");
        return Ok(());
    }
    let differs = || format!("{PAGE} differs from farcall's interface: {WRITE}=1 rewrites it");
    ensure!(held == page, differs());
    println!("{PAGE} is farcall's interface");
    Ok(())
}

/// A program that prints one line.
const LIMIT: Duration = Duration::from_secs(60);

fn made_by(version: &str) -> String {
    format!("rustdoc {version}")
}

/// The whole page.
fn page(version: &str) -> Result<String> {
    let mut text = "# The public interface of farcall\n\n".to_owned();
    let written = "`FARCALL_WRITE_GOLDEN=1 cargo xtask test --only doc` writes this page from";
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{written} {}'s pages.\n", made_by(version));
    let command = "cargo doc --open --no-deps --all-features -p farcall";
    let _ = writeln!(text, "With every feature. `{command}` shows the descriptions.");
    let (mut ours, mut others) = (Vec::new(), Vec::new());
    for name in user_docs::CRATES {
        let folder = user_docs::pages(name);
        // The paths of farcall's own items do without its name.
        let prefix = if *name == "farcall" { String::new() } else { format!("{name}::") };
        ours.extend(collect(&folder, &prefix, &mut others)?);
    }
    for Item { path, others, declared } in ours {
        let _ = write!(text, "\n## `{path}`\n\n");
        for other in others {
            let _ = write!(text, "Also `{other}`.\n\n");
        }
        let _ = write!(text, "```rust,ignore\n{declared}\n```\n");
    }
    let _ = write!(text, "\n## Of other crates\n\n{}\n", others.join(", "));
    Ok(text)
}

/// Returns the items of a crate's pages that are ours, and adds the names of other crates' items.
fn collect(folder: &Path, prefix: &str, others: &mut Vec<String>) -> Result<Vec<Item>> {
    let (mut ours, mut pages) = (Vec::new(), user_docs::html_below(folder)?);
    pages.sort();
    for path in pages {
        let name = path.strip_prefix(folder).unwrap_or(&path).display().to_string();
        let Some(item) = item_of(&name).map(|item| format!("{prefix}{item}")) else { continue };
        let html = std::fs::read_to_string(&path)?;
        // The way to an item from the private module that it is written in.
        if html.contains("http-equiv=\"refresh\"") {
            continue;
        }
        let declared = declarations(&html);
        match declared.is_empty() {
            true => others.push(format!("`{item}`")),
            false => add(&mut ours, item, declared.join("\n")),
        }
    }
    Ok(ours)
}

/// An item of ours.
struct Item {
    /// Its shortest path.
    path: String,
    /// The other modules' names for the same item.
    others: Vec<String>,
    declared: String,
}

/// Adds an item, once: a module may export what another one has.
fn add(items: &mut Vec<Item>, path: String, declared: String) {
    let name = |path: &str| path.rsplit("::").next().map(str::to_owned);
    let known =
        items.iter_mut().find(|it| name(&it.path) == name(&path) && it.declared == declared);
    let Some(known) = known else {
        return items.push(Item { path, others: Vec::new(), declared });
    };
    let (shorter, longer) = match path.len() < known.path.len() {
        true => (path, std::mem::take(&mut known.path)),
        false => (std::mem::take(&mut known.path), path),
    };
    known.path = shorter;
    known.others.push(longer);
}

/// The path of the item that a page is about; `None` for pages about something else.
fn item_of(page: &str) -> Option<String> {
    let (modules, file) = page.rsplit_once('/').unwrap_or(("", page));
    let (kind, name) = file.strip_suffix(".html")?.split_once('.')?;
    let is_item = ["struct", "enum", "trait", "fn", "constant", "macro", "type"].contains(&kind);
    let path = modules.split('/').filter(|it| !it.is_empty()).chain([name]);
    // Generated code's, which users do not read.
    let is_shown = is_item && !modules.starts_with("codegen");
    is_shown.then(|| path.collect::<Vec<_>>().join("::"))
}

/// The item's declaration and its own public functions, if its source text is ours.
fn declarations(html: &str) -> Vec<String> {
    let own = html.split("id=\"trait-implementations\"").next().unwrap_or(html);
    let own = own.split("id=\"synthetic-implementations\"").next().unwrap_or(own);
    // Those of the type that it derefs to, which are not its own.
    let own = own.split("id=\"deref-methods-").next().unwrap_or(own);
    if !OURS.iter().any(|folder| own.contains(folder)) {
        return Vec::new();
    }
    let between = |from: &str, to: &str| -> Vec<String> {
        let pieces = own.split(from).skip(1);
        pieces.filter_map(|piece| piece.split(to).next().map(text_of)).collect()
    };
    let mut declared = between("<pre class=\"rust item-decl\"><code>", "</code></pre>");
    let functions = between("<h4 class=\"code-header\">", "</h4>");
    let functions = functions.into_iter().filter(|text| text.starts_with("pub "));
    declared.extend(functions.map(|text| on_one_line(&text)));
    declared
}

/// A function's head without the breaks of its lines.
fn on_one_line(text: &str) -> String {
    let pieces: Vec<&str> = text.split_whitespace().collect();
    pieces.join(" ").replace(")where ", ") where ").replace("( ", "(").replace(", )", ")")
}

/// The text of a piece of HTML, without what folds it.
fn text_of(html: &str) -> String {
    let mut shown = String::new();
    for (index, piece) in html.split("<summary").enumerate() {
        let after = piece.split_once("</summary>").map_or("", |(_, after)| after);
        shown.push_str(if index == 0 { piece } else { after });
    }
    let text = user_docs::without_tags(&shown);
    let entities = [("&lt;", "<"), ("&gt;", ">"), ("&#39;", "'"), ("&quot;", "\""), ("&amp;", "&")];
    let text = entities.iter().fold(text, |text, (from, to)| text.replace(from, to));
    let text = text.replace("]pub ", "]\npub ");
    let lines = text.lines().map(str::trim_end).filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_an_item_is_told_from_others() {
        assert_eq!(item_of("struct.Channel.html").as_deref(), Some("Channel"));
        assert_eq!(item_of("layer/fn.for_methods.html").as_deref(), Some("layer::for_methods"));
        for other in ["index.html", "all.html", "codegen/struct.Detach.html", "layer/index.html"] {
            assert_eq!(item_of(other), None, "{other}");
        }
    }

    #[test]
    fn an_item_of_two_modules_is_listed_by_its_shortest_path() {
        let mut items = Vec::new();
        for path in ["client::Path", "Path", "server::Path"] {
            add(&mut items, path.to_owned(), "pub enum Path".to_owned());
        }
        add(&mut items, "other::Path".to_owned(), "pub struct Path".to_owned());
        let paths: Vec<_> = items.iter().map(|item| item.path.as_str()).collect();
        assert_eq!(paths, ["Path", "other::Path"]);
        assert_eq!(items[0].others, ["client::Path", "server::Path"]);
    }

    #[test]
    fn the_functions_of_what_an_item_derefs_to_are_not_its_own() {
        let html = "src/farcall/<pre class=\"rust item-decl\"><code>pub struct A;</code></pre>\
            <h4 class=\"code-header\">pub fn own()</h4><h2 id=\"deref-methods-%5Bu8%5D\">\
            <h4 class=\"code-header\">pub fn len()</h4>";
        assert_eq!(declarations(html), ["pub struct A;", "pub fn own()"]);
    }

    #[test]
    fn an_item_of_ours_has_its_declaration_and_public_functions() {
        let html = "<a href=\"../src/farcall/a.rs.html\">x</a>\
            <pre class=\"rust item-decl\"><code>pub struct A&lt;T&gt; <summary>Show</summary>{ }\
            </code></pre><h4 class=\"code-header\">pub fn <a>new</a>() -&gt; Self</h4>\
            <h4 class=\"code-header\">pub fn map&lt;F&gt;(\n    f: F,\n)where\n    F: Fn(),</h4>\
            <h4 class=\"code-header\">fn own()</h4><h2 id=\"trait-implementations\">\
            <h4 class=\"code-header\">pub fn other()</h4>";
        let functions = ["pub fn new() -> Self", "pub fn map<F>(f: F) where F: Fn(),"];
        assert_eq!(declarations(html), [&["pub struct A<T> { }"][..], &functions].concat());
        assert!(declarations(&html.replace("src/farcall", "src/tonic")).is_empty());
    }
}
