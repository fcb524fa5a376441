//! The recipe of the book's `logging.md`: warnings are visible without `RUST_LOG`, and a full
//! disk does not end the program. The test is its own child, whose output must not be the
//! harness's.
#![allow(clippy::unwrap_used, reason = "a failed test is how these tests report")]

use std::process::{Command, Output, Stdio};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// Set in the child.
const CHILD: &str = "FARCALL_TEST_LOG_RECIPE";

fn main() {
    if std::env::var_os(CHILD).is_some() {
        return run_recipe();
    }
    document_has_the_recipe();
    warnings_are_visible_without_a_filter();
    #[cfg(target_os = "linux")]
    full_disk_does_not_end_the_program();
}

fn run_recipe() {
    // The recipe begins here.
    let filter = EnvFilter::builder().with_default_directive(LevelFilter::WARN.into());
    tracing_subscriber::fmt()
        .with_env_filter(filter.from_env_lossy())
        .log_internal_errors(false)
        .init();
    // It ends here.
    tracing::warn!(target: "farcall::path", "a warning");
    tracing::info!(target: "farcall::path", "an information");
}

/// Runs the recipe in a process of its own.
fn child(rust_log: Option<&str>, out: impl Into<Stdio>, err: impl Into<Stdio>) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env(CHILD, "1").env_remove("RUST_LOG").stdout(out).stderr(err);
    command.envs(rust_log.map(|filter| ("RUST_LOG", filter)));
    command.spawn().unwrap().wait_with_output().unwrap()
}

fn document_has_the_recipe() {
    let recipe = include_str!("log_recipe.rs");
    let (_, recipe) = recipe.split_once("// The recipe begins here.\n").unwrap();
    let (recipe, _) = recipe.split_once("    // It ends here.").unwrap();
    let recipe: Vec<_> = recipe.lines().map(|line| line.strip_prefix("    ").unwrap()).collect();
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/book/src/logging.md");
    // A packed crate has no documents.
    if let Ok(page) = std::fs::read_to_string(page) {
        assert!(page.contains(&recipe.join("\n")), "docs/book/src/logging.md has another recipe");
    }
}

fn warnings_are_visible_without_a_filter() {
    for (filter, has_warning, has_info) in
        [(None, true, false), (Some("farcall=info"), true, true), (Some("off"), false, false)]
    {
        let printed = child(filter, Stdio::piped(), Stdio::piped());
        let text = String::from_utf8(printed.stdout).unwrap();
        assert_eq!(text.contains("a warning"), has_warning, "{filter:?}: {text}");
        assert_eq!(text.contains("an information"), has_info, "{filter:?}: {text}");
    }
}

#[cfg(target_os = "linux")]
fn full_disk_does_not_end_the_program() {
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let ended = child(None, full(), full());
    assert!(ended.status.success(), "{:?}", ended.status);
}
