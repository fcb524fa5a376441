//! The package sources that this machine is configured with, read to derive one for another suite
//! of Debian.
//!
//! Kernels come from a suite that the machine may not list. Its host is never guessed: whatever
//! mirror or proxy the machine uses for its own suite is asked for the other one.

use std::path::{Path, PathBuf};

/// A source of Debian packages, in what a list needs to repeat it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DebianSource {
    /// Options in a list's brackets, such as the key that signs.
    options: Vec<String>,
    uri: String,
    suite: String,
}

/// Names of suites that change their release. Unstable's machines call themselves by the codename
/// of the next release, which is not what their sources say.
const MOVING_SUITES: [&str; 6] =
    ["stable", "oldstable", "oldoldstable", "testing", "unstable", "sid"];

impl DebianSource {
    /// The source of the release called `codename`, or of a suite that changes its release, among
    /// those that this machine is configured with.
    pub(super) fn configured(codename: &str) -> Option<Self> {
        let mut files = vec![PathBuf::from("/etc/apt/sources.list")];
        for entry in std::fs::read_dir("/etc/apt/sources.list.d").into_iter().flatten().flatten() {
            files.push(entry.path());
        }
        Self::find(files.iter().flat_map(|file| read(file)), codename)
    }

    fn find(sources: impl Iterator<Item = Self>, codename: &str) -> Option<Self> {
        let (exact, others): (Vec<Self>, Vec<Self>) =
            sources.partition(|source| source.suite == codename);
        let moving = |source: &Self| MOVING_SUITES.contains(&source.suite.as_str());
        exact.into_iter().chain(others.into_iter().filter(moving)).next()
    }

    /// A line of a package list for another suite of the same archive.
    pub(super) fn line_for(&self, suite: &str) -> String {
        let options = if self.options.is_empty() {
            String::new()
        } else {
            format!("[{}] ", self.options.join(" "))
        };
        format!("deb {options}{} {suite} main\n", self.uri)
    }
}

fn read(file: &Path) -> Vec<DebianSource> {
    let Ok(text) = std::fs::read_to_string(file) else { return Vec::new() };
    match file.extension().and_then(|extension| extension.to_str()) {
        Some("list") => in_lines(&text),
        Some("sources") => in_stanzas(&text),
        _ => Vec::new(),
    }
}

/// `deb [option=value ...] URI SUITE COMPONENT...`, a source a line.
fn in_lines(text: &str) -> Vec<DebianSource> {
    text.lines().filter_map(in_line).collect()
}

fn in_line(line: &str) -> Option<DebianSource> {
    let rest = line.trim().strip_prefix("deb ")?.trim_start();
    let (options, rest) = match rest.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => ("", rest),
    };
    let mut pieces = rest.split_whitespace();
    Some(DebianSource {
        options: options.split_whitespace().map(str::to_owned).collect(),
        uri: pieces.next()?.to_owned(),
        suite: pieces.next()?.to_owned(),
    })
}

/// Fields in stanzas, where one stanza may name several suites.
fn in_stanzas(text: &str) -> Vec<DebianSource> {
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    lines.split(|line| line.trim().is_empty()).flat_map(in_stanza).collect()
}

fn in_stanza(lines: &[&str]) -> Vec<DebianSource> {
    let field = |wanted: &str| {
        lines.iter().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case(wanted).then(|| value.trim())
        })
    };
    let is_binary = field("Types").is_some_and(|types| types.split(' ').any(|kind| kind == "deb"));
    let is_enabled = field("Enabled").is_none_or(|enabled| enabled != "no");
    let uri = field("URIs").and_then(|uris| uris.split_whitespace().next());
    let (true, true, Some(uri)) = (is_binary, is_enabled, uri) else { return Vec::new() };
    let option = |name: &str| field(name).map(|value| format!("{}={value}", name.to_lowercase()));
    // A key that stands in the stanza itself cannot be repeated in a line; the machine's key ring
    // serves then.
    let options: Vec<String> = ["Signed-By", "Trusted"]
        .into_iter()
        .filter_map(option)
        .filter(|option| !option.ends_with('='))
        .collect();
    field("Suites")
        .unwrap_or_default()
        .split_whitespace()
        .map(|suite| DebianSource {
            options: options.clone(),
            uri: uri.to_owned(),
            suite: suite.to_owned(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_keep_their_options() {
        let text = "# deb http://old.test/debian bookworm main\n\
                    deb-src http://mirror.test/debian bookworm main\n\
                    deb [signed-by=/key.gpg arch=amd64] http://mirror.test/debian bookworm main\n";
        let sources = in_lines(text);
        assert_eq!(sources.len(), 1);
        assert_eq!(
            sources[0].line_for("bookworm-backports"),
            "deb [signed-by=/key.gpg arch=amd64] http://mirror.test/debian bookworm-backports \
             main\n"
        );
    }

    #[test]
    fn stanzas_give_a_source_for_each_suite() {
        let text = "Types: deb\n# a comment\nURIs: http://mirror.test/debian\n\
                    Suites: bookworm bookworm-updates\n\
                    Components: main\nSigned-By: /key.gpg\n\n\
                    Types: deb-src\nURIs: http://mirror.test/source\nSuites: trixie\n\n\
                    Enabled: no\nTypes: deb\nURIs: http://mirror.test/off\nSuites: sid\n";
        let sources = in_stanzas(text);
        let suites: Vec<&str> = sources.iter().map(|source| source.suite.as_str()).collect();
        assert_eq!(suites, ["bookworm", "bookworm-updates"]);
        assert_eq!(
            sources[0].line_for("bookworm"),
            "deb [signed-by=/key.gpg] http://mirror.test/debian bookworm main\n"
        );
    }

    #[test]
    fn unstable_is_found_under_the_next_releases_name() {
        let text = "deb http://mirror.test/security sid-security main\n\
                    deb http://mirror.test/debian sid main\n";
        let of = |codename| DebianSource::find(in_lines(text).into_iter(), codename);
        assert_eq!(of("forky").unwrap().uri, "http://mirror.test/debian");
        let both = format!("{text}deb http://other.test/debian forky main\n");
        let of = |codename| DebianSource::find(in_lines(&both).into_iter(), codename);
        assert_eq!(of("forky").unwrap().uri, "http://other.test/debian");
        assert_eq!(DebianSource::find(std::iter::empty(), "forky"), None);
    }

    #[test]
    fn a_source_without_options_has_no_brackets() {
        let sources = in_lines("deb http://mirror.test/debian trixie main contrib");
        assert_eq!(
            sources[0].line_for("bookworm"),
            "deb http://mirror.test/debian bookworm main\n"
        );
    }
}
