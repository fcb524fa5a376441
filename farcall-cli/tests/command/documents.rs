//! The text of `--help`, and the examples of `docs/book/src/command-line.md`.

use crate::program::{farcall, farcall_in};
use crate::servers;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/book/src/command-line.md");
const HELP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/help.txt");

/// The address of the server in the page's examples.
const ADDRESS: &str = "127.0.0.1:7000";

/// Compares with the file that `FARCALL_WRITE_GOLDEN=1` writes anew.
#[tokio::test]
async fn help_is_what_the_file_has() {
    let mut text = farcall("--help").await.succeeded();
    let commands: Vec<String> = text
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_whitespace().next().map(str::to_owned))
        .filter(|name| name != "help")
        .collect();
    for command in commands {
        let help = farcall(&format!("{command} --help")).await.succeeded();
        text.push_str(&format!("\n=== farcall {command} --help\n\n{help}"));
    }
    if std::env::var_os("FARCALL_WRITE_GOLDEN").is_some() {
        std::fs::write(HELP, &text).unwrap();
    }
    let held = std::fs::read_to_string(HELP).unwrap();
    assert_eq!(held, text, "FARCALL_WRITE_GOLDEN=1 writes {HELP} anew");
}

/// Each block of the page is run: its first line is the command, and the others are
/// what it prints, but for times and ports.
#[tokio::test]
async fn examples_of_the_page_print_what_it_shows() {
    let page = std::fs::read_to_string(PAGE).unwrap();
    let server = servers::over_tcp().await;
    let folder = tempfile::tempdir().unwrap();
    let settings = format!("[targets.probe]\naddress = \"{}\"\n", server.address);
    std::fs::write(folder.path().join("farcall.toml"), settings).unwrap();
    let blocks: Vec<&str> =
        page.split("```text\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(blocks.len() > 5, "{} examples", blocks.len());
    for block in blocks {
        let (line, expected) = block.split_once('\n').unwrap();
        let line = line.strip_prefix("$ farcall ").expect(line);
        let arguments: Vec<String> =
            split(line).iter().map(|it| it.replace(ADDRESS, server.authority())).collect();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let ran = farcall_in(folder.path(), &arguments, "").await;
        let shown = format!("{}{}", ran.stderr, ran.stdout).replace(server.authority(), ADDRESS);
        let has_figures =
            ["bench ", "explain ", "top "].iter().any(|command| line.starts_with(command));
        let masked = if has_figures { masked_figures } else { masked };
        assert_eq!(masked(&shown), masked(expected), "{line}");
    }
}

/// Returns the output of the page's session that begins with `line`. A test of its own runs it.
pub(crate) fn console(line: &str) -> String {
    let page = std::fs::read_to_string(PAGE).unwrap_or_else(|error| panic!("{PAGE}: {error}"));
    let mut blocks = page.split("```console\n").skip(1);
    let block = blocks.find(|block| block.starts_with(line)).expect(line);
    let (_, output) = block.split_once('\n').expect(line);
    output.split("```").next().unwrap_or_default().to_owned()
}

/// Splits a line as a shell does, which knows single quotes.
fn split(line: &str) -> Vec<String> {
    let mut arguments = Vec::new();
    for (index, part) in line.split('\'').enumerate() {
        match index % 2 {
            0 => arguments.extend(part.split_whitespace().map(str::to_owned)),
            _ => arguments.push(part.to_owned()),
        }
    }
    arguments
}

/// Replaces ports, times with their unit, and rates.
fn masked(text: &str) -> String {
    let text = text.split('\n').map(|line| {
        let line = line.replace("/s", " /s");
        let parts: Vec<_> = line.split(' ').collect();
        let is_number = |part: &str| {
            part.starts_with(|it: char| it.is_ascii_digit())
                && part.chars().all(|it| it.is_ascii_digit() || ".,".contains(it))
        };
        // Performance data has names before its numbers: `p99=310us`.
        let is_data = |part: &str| part.contains('=') && part.contains("us");
        let data = |part: &str| {
            let (name, limits) = (part.split('=').next(), part.split_once(';'));
            [name, limits.map(|(_, limits)| limits)].into_iter().flatten().collect()
        };
        let is_unit = |part: &str| {
            ["us", "ms", "s"].contains(&part.trim_matches(|it: char| !it.is_ascii_alphabetic()))
        };
        let mut shown: Vec<String> = Vec::new();
        for (index, part) in parts.iter().enumerate() {
            let next = parts.get(index + 1).copied().unwrap_or_default();
            shown.push(match part.rsplit_once(':') {
                _ if is_number(part) && is_unit(next) => "N".into(),
                _ if is_unit(part) => "unit".into(),
                _ if is_data(part) => data(part),
                Some(("127.0.0.1", _)) => "PORT".into(),
                _ => (*part).to_owned(),
            });
        }
        shown.join(" ")
    });
    text.collect::<Vec<_>>().join("\n")
}

/// Replaces every figure and bar.
pub(crate) fn masked_figures(text: &str) -> String {
    let mask = |part: &str| match part.trim_end_matches(',') {
        "us" | "ms" | "s" => "unit".to_owned(),
        part if part.starts_with(|it: char| it.is_ascii_digit()) => "N".to_owned(),
        part => part.trim_matches('#').to_owned(),
    };
    let line = |line: &str| {
        let parts = line.split_whitespace().map(mask).filter(|part| !part.is_empty());
        parts.collect::<Vec<_>>().join(" ")
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}
