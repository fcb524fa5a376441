//! The page of operators, `/debug/farcall`, as Chromium draws it: whole, without scripts, and
//! without a message on the console. A picture of it is left in the target folder.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use farcall_testkit::process::bounded;
use tempfile::TempDir;

use super::{ARGUMENTS, keep_within};
use xtask::interop::{Column, folder};
use xtask::setup;

/// The bound on one look: a start of the browser, and a page without scripts.
const LOOK_LIMIT: Duration = Duration::from_secs(60);

/// Width and height of the picture.
const WINDOW: &str = "--window-size=1280,1800";

/// Plots of the page, and tables that a server with calls and connections has in any case.
const PLOTS: usize = 3;
const TABLES: [&str; 4] = ["Connections", "Methods", "Failed calls", "Settings"];

/// Shows the page of the server at `authority`, whose service `called` has had calls.
///
/// # Errors
///
/// Returns an error if the browser cannot be started.
pub(super) fn show(authority: &str, called: &str) -> Result<Column> {
    let url = format!("http://{authority}/debug/farcall");
    let log = look(&url, &["--enable-logging=stderr", "--dump-dom"])?;
    let picture = folder()?.join("operators.png");
    let _ = fs::remove_file(&picture);
    let screenshot = format!("--screenshot={}", picture.display());
    // It loads itself again otherwise, also while the picture is taken.
    look(&format!("{url}?refresh=off"), &[&screenshot, WINDOW])?;
    let text = verdict(&log, called, &picture);
    println!("the page of operators: {}", picture.display());
    Column::parse("chromium-operators", &text)
}

/// Lets a browser of its own show `url`, and returns what it prints.
fn look(url: &str, arguments: &[&str]) -> Result<String> {
    let program = setup::chromium().context("Chromium is missing")?;
    let profile = TempDir::with_prefix("farcall-chromium-")?;
    let output = profile.path().join("output");
    let mut command = Command::new("sh");
    // The page goes to one stream, and messages of the console to the other.
    command.args(["-c", "\"$@\" > \"$0\" 2>&1"]).arg(&output).arg(program).args(ARGUMENTS);
    command.args(arguments);
    keep_within(&mut command, profile.path())?;
    bounded::run(command.arg(url), LOOK_LIMIT)?;
    Ok(fs::read_to_string(output)?)
}

/// Judges what the browser printed, and the picture.
fn verdict(log: &str, called: &str, picture: &Path) -> String {
    let has_heading = |title: &&str| log.contains(&format!("<h2>{title}"));
    let missing: Vec<_> = TABLES.into_iter().filter(|title| !has_heading(title)).collect();
    let plots = log.matches("<svg").count();
    let console: Vec<_> = log.lines().filter(|line| line.contains("CONSOLE")).collect();
    let picture_len = fs::metadata(picture).map_or(0, |file| file.len());
    let cases = [
        ("tables", missing.is_empty(), format!("without {missing:?}")),
        ("called methods", log.contains(called), format!("no {called}")),
        ("plots", plots >= PLOTS && log.contains("<polyline"), format!("{plots} plots")),
        (
            "no scripts",
            !log.contains("<script") && !log.contains(" src="),
            "it loads something".into(),
        ),
        ("silent console", console.is_empty(), console.join("; ")),
        ("picture", picture_len > 10_000, format!("{picture_len} bytes")),
    ];
    let line = |(name, is_met, why): (&str, bool, String)| match is_met {
        true => format!("ok {name}\n"),
        false => format!("FAILED {name}: {why}\n"),
    };
    cases.into_iter().map(line).chain(["done\n".to_owned()]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_page_lacks_is_named() {
        let text = verdict("<h2>Methods</h2><script>", "t.T", Path::new("/nowhere"));
        let failed: Vec<_> = text.lines().filter(|line| line.starts_with("FAILED")).collect();
        assert_eq!(failed.len(), 5, "{text}");
        assert!(failed[0].contains("Connections") && !failed[0].contains("Methods"), "{text}");
        assert!(text.contains("ok silent console\n") && text.ends_with("done\n"), "{text}");
    }
}
