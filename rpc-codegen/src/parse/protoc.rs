//! The system's parser, protoc, which prost-build runs, and its errors with locations.

use std::io;
use std::path::{Path, PathBuf};

use prost::Message as _;
use prost_build::{Config, protoc_from_env};
use tempfile::tempdir;

use super::place::located;
use super::{Parsed, find};
use crate::descriptor_set;
use crate::error::CodegenError;

/// The text that prost-build puts before protoc's output.
const PREFIX: &str = "protoc failed: ";

/// Runs protoc on `protos`, with the program and the arguments of `config`.
///
/// # Errors
///
/// Returns an error if there is no protoc, or if a file is missing or does not parse.
pub(super) fn parse(
    config: &mut Config,
    protos: &[impl AsRef<Path>],
    includes: &[PathBuf],
) -> Result<Parsed, CodegenError> {
    let failed = |reason: io::Error| CodegenError::Protoc { message: reason.to_string() };
    // prost-build decodes the set and drops custom options. protoc therefore also writes it to a
    // file.
    let folder = tempdir().map_err(failed)?;
    let path = folder.path().join("descriptors");
    config.file_descriptor_set_path(&path);
    let set = config.load_fds(protos, includes).map_err(|error| run_error(&error, includes))?;
    descriptor_set::refuse_editions(&set)?;
    let encoded = std::fs::read(&path).unwrap_or_else(|_| set.encode_to_vec());
    let files = set.file.iter().filter_map(|file| find(file.name(), includes)).collect();
    Ok(Parsed { set, encoded, files })
}

/// Builds the error for a failed run of protoc.
fn run_error(error: &io::Error, includes: &[PathBuf]) -> CodegenError {
    if error.kind() == io::ErrorKind::NotFound {
        return CodegenError::ProtocNotFound { program: protoc_from_env() };
    }
    let text = error.to_string();
    match text.strip_prefix(PREFIX) {
        Some(printed) => printed_error(printed, includes),
        None => CodegenError::Protoc { message: text },
    }
}

/// Builds the error for protoc's output. The first line with a location leads, and the other lines
/// follow: protoc reports a missing import before the line that imports it.
fn printed_error(printed: &str, includes: &[PathBuf]) -> CodegenError {
    let lines = || printed.lines().map(str::trim).filter(|line| !line.is_empty());
    let Some((index, (file, line_column, message))) =
        lines().enumerate().find_map(|(index, line)| Some((index, place(line)?)))
    else {
        return CodegenError::Input { message: lines().collect::<Vec<_>>().join("; ") };
    };
    let others: Vec<_> =
        lines().enumerate().filter(|(at, _)| *at != index).map(|(_, line)| line).collect();
    let message = match others[..] {
        [] => message.to_owned(),
        _ => format!("{message} ({})", others.join("; ")),
    };
    located(file, Some(line_column), message, includes)
}

/// Splits a line of the form `file:line:column: message`. Ignores warnings.
fn place(line: &str) -> Option<(&str, (usize, usize), &str)> {
    let (place, message) = line.split_once(": ")?;
    let mut parts = place.rsplitn(3, ':');
    let column = parts.next()?.parse().ok()?;
    let row = parts.next()?.parse().ok()?;
    let file = parts.next()?;
    (!message.starts_with("warning: ")).then_some((file, (row, column), message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn protos() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/protos")
    }

    fn has_protoc() -> bool {
        let is_there = std::process::Command::new(protoc_from_env()).arg("--version").output();
        let is_there = is_there.is_ok_and(|output| output.status.success());
        if !is_there {
            println!("skipped: no protoc");
        }
        is_there
    }

    fn parse_broken(proto: &str) -> String {
        let broken = protos().join("broken");
        let error = parse(&mut Config::new(), &[broken.join(proto)], std::slice::from_ref(&broken));
        error.unwrap_err().to_string().replace(&broken.display().to_string(), "DIR")
    }

    #[test]
    fn missing_protoc_names_the_ways_to_get_one() {
        let mut config = Config::new();
        config.protoc_executable("/no/such/protoc");
        let error = parse(&mut config, &[protos().join("greeter.proto")], &[protos()]).unwrap_err();
        assert!(matches!(error, CodegenError::ProtocNotFound { .. }), "{error}");
        let error = CodegenError::ProtocNotFound { program: "protoc".into() }.to_string();
        for way in [
            "runs `protoc`, which is not installed",
            "apt-get install protobuf-compiler",
            "PROTOC",
            "protox",
        ] {
            assert!(error.contains(way), "{error}");
        }
    }

    #[test]
    fn printed_locations_are_parsed() {
        let cases = [
            ("a.proto:4:15: Expected \";\".\n", "a.proto:4:15: Expected \";\"."),
            (
                "far.proto: File not found.\na.proto:5:1: Import \"far.proto\" had errors.\n",
                "a.proto:5:1: Import \"far.proto\" had errors. (far.proto: File not found.)",
            ),
            (
                "a.proto:1:1: warning: Import b is unused.\na.proto:2:3: \"X\" is not defined.",
                "a.proto:2:3: \"X\" is not defined. (a.proto:1:1: warning: Import b is unused.)",
            ),
            ("no.proto: No such file or directory\n", "no.proto: No such file or directory"),
        ];
        for (printed, expected) in cases {
            assert_eq!(printed_error(printed, &[]).to_string(), expected);
        }
    }

    #[test]
    fn real_protoc_errors_have_file_and_line() {
        if !has_protoc() {
            return;
        }
        let syntax = parse_broken("syntax.proto");
        assert!(syntax.starts_with("DIR/syntax.proto:4:"), "{syntax}");
        let import = parse_broken("missing_import.proto");
        assert!(import.starts_with("DIR/missing_import.proto:5:1: Import \"absent"), "{import}");
        let edition = parse_broken("edition.proto");
        assert!(edition.starts_with("DIR/edition.proto: protobuf editions"), "{edition}");
        let missing = parse_broken("nothing.proto");
        assert!(missing.contains("nothing.proto"), "{missing}");
    }

    #[cfg(feature = "protox")]
    #[test]
    fn real_protoc_generates_the_code_of_protox() {
        if !has_protoc() {
            return;
        }
        let generate = |parsed: Parsed| {
            let dir = tempdir().unwrap();
            crate::configure().out_dir(dir.path()).compile_fds(parsed.set).unwrap();
            std::fs::read_to_string(dir.path().join("sample.v1.rs")).unwrap()
        };
        let (file, includes) = ([protos().join("greeter.proto")], [protos()]);
        let by_protoc = parse(&mut Config::new(), &file, &includes).unwrap();
        assert!(by_protoc.files.contains(&file[0]), "{:?}", by_protoc.files);
        let by_protox = super::super::protox::parse(&file, &includes).unwrap();
        assert_eq!(generate(by_protoc), generate(by_protox));
    }
}
