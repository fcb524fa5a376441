//! The rules of style and architecture that a machine can check, as an ordinary test.
//!
//! Each rule is a function from text to faults, tested in its own file on snippets that break it,
//! so that a rule which finds nothing is known to be able to. This file applies them to the
//! workspace.

mod doc_comments;
mod document_links;
mod fault;
mod layering;
mod log_lines;
mod log_targets;
mod machine_paths;
mod manifests;
mod named_files;
mod named_keys;
mod pure_modules;
mod readable_errors;
mod readme_excerpts;
mod shape;
mod source;
mod unsafe_places;
mod words;
mod workspace;

use std::collections::HashMap;

use fault::{Fault, assert_none};
use source::Source;
use workspace::Workspace;

/// Applies `rule` to every Rust file of the workspace.
fn check_sources(rule: impl Fn(&Source) -> Vec<Fault>) {
    let workspace = Workspace::load();
    let sources = workspace.sources();
    assert!(sources.len() > 50, "only {} Rust files were found", sources.len());
    assert_none(sources.iter().flat_map(rule));
}

#[test]
fn crates_depend_only_on_those_below_them() {
    assert_none(layering::check(&Workspace::load().packages));
}

#[test]
fn keys_that_are_named_are_in_the_settings_file() {
    let files = Workspace::load().text_files();
    let (_, reference) = files.iter().find(|(path, _)| path == named_keys::REFERENCE).unwrap();
    let keys = named_keys::keys(reference);
    assert!(keys.len() > 100, "only {} keys were found", keys.len());
    let is_named = |path: &&(String, String)| {
        let is_source = path.0.ends_with(".rs") && !path.0.starts_with("xtask/tests/");
        is_source || path.0.ends_with(".md")
    };
    let faults = |(path, text): &(String, String)| named_keys::check(path, text, &keys);
    assert_none(files.iter().filter(is_named).flat_map(faults));
}

#[test]
fn published_crates_say_what_readers_look_for() {
    assert_none(manifests::check(&Workspace::load().packages));
}

#[test]
fn unsafe_code_stands_only_where_it_may() {
    check_sources(unsafe_places::check);
}

#[test]
fn every_crate_but_the_rdma_one_forbids_unsafe_code() {
    let workspace = Workspace::load();
    let roots = workspace.crate_roots();
    assert!(roots.len() >= workspace.packages.len(), "only {} crate roots", roots.len());
    assert_none(roots.iter().flat_map(unsafe_places::check_root));
}

#[test]
fn pure_modules_know_no_io_and_no_clock() {
    check_sources(pure_modules::check);
}

#[test]
fn the_list_of_pure_modules_names_what_exists() {
    assert_none(pure_modules::check_list(&Workspace::load().root));
}

#[test]
fn what_peers_can_write_into_the_log_is_limited() {
    check_sources(log_lines::check);
}

#[test]
fn lines_of_the_log_have_targets_that_stay() {
    check_sources(log_targets::check);
    let files: HashMap<String, String> = Workspace::load().text_files().into_iter().collect();
    let page = &files[log_targets::PAGE];
    check_sources(|source| log_targets::check_documented(source, page));
    assert_none(log_targets::check_page(page));
}

#[test]
fn errors_that_users_meet_read_as_sentences() {
    check_sources(readable_errors::check);
}

#[test]
fn files_and_functions_have_the_shape_of_the_style() {
    check_sources(shape::check);
}

#[test]
fn no_file_knows_the_machine_it_was_written_on() {
    let workspace = Workspace::load();
    let files = workspace.text_files();
    assert_none(files.iter().flat_map(|(path, text)| machine_paths::check(path, text)));
}

#[test]
fn sentences_name_their_actor() {
    let workspace = Workspace::load();
    let files = workspace.text_files();
    assert_none(files.iter().flat_map(|(path, text)| words::check(path, text)));
}

#[test]
fn doc_comments_begin_with_their_subject() {
    check_sources(doc_comments::check);
}

#[test]
fn code_in_documents_is_compiled_by_tests() {
    let files: HashMap<String, String> = Workspace::load().text_files().into_iter().collect();
    assert_none(readme_excerpts::check("README.md", &files["README.md"], &files));
    let is_chapter = |path: &str| path.starts_with("docs/book/src/") && path.ends_with(".md");
    let chapters: Vec<_> = files.iter().filter(|(path, _)| is_chapter(path)).collect();
    assert!(chapters.len() > 25, "only {} chapters were found", chapters.len());
    assert_none(chapters.into_iter().flat_map(|(path, text)| {
        let has_own_test = PACKED_PROGRAMS.iter().any(|name| path.ends_with(name));
        let mut faults = readme_excerpts::check_blocks(path, text, has_own_test);
        faults.extend(readme_excerpts::check(path, text, &files));
        faults
    }));
}

/// The chapters with whole programs, which `cargo xtask package --published` and `--weight` build.
const PACKED_PROGRAMS: &[&str] = &["/dependencies.md", "/published-services.md"];

#[test]
fn recipes_for_load_balancers_are_the_files_that_run() {
    let files: HashMap<String, String> = Workspace::load().text_files().into_iter().collect();
    let page = &files["docs/book/src/behind-a-load-balancer.md"];
    for (language, file) in
        [("toml", "farcall.toml"), ("haproxy", "haproxy.cfg"), ("nginx", "nginx.conf")]
    {
        let (_, block) = page.split_once(&format!("```{language}\n")).expect("it has the block");
        let (block, _) = block.split_once("```").expect("the block ends");
        assert_eq!(block, files[&format!("docs/book/src/load-balancers/{file}")], "{file}");
        assert!(page.contains(&format!("](load-balancers/{file})")), "it links {file}");
    }
}

#[test]
fn links_in_documents_resolve() {
    let files: HashMap<String, String> = Workspace::load().text_files().into_iter().collect();
    let documents = files.iter().filter(|(path, _)| path.ends_with(".md"));
    assert_none(documents.flat_map(|(path, text)| document_links::check(path, text, &files)));
}

#[test]
fn files_that_the_architecture_names_are_there() {
    let files: HashMap<String, String> = Workspace::load().text_files().into_iter().collect();
    let page = files.get("ARCHITECTURE.md").expect("there is one");
    let sources: Vec<&str> = files.keys().map(String::as_str).collect();
    assert_none(named_files::check("ARCHITECTURE.md", page, &sources));
}
