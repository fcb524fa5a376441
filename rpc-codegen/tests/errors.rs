//! Errors name the file and line, or the setting, to fix.

// The messages are protox's.
#![cfg(not(feature = "protoc"))]
#![allow(clippy::unwrap_used, reason = "a failed test is how these tests report")]

use std::path::{Path, PathBuf};

use prost_types::{FileDescriptorProto, MethodDescriptorProto, ServiceDescriptorProto};
use rpc_codegen::{Builder, CodegenError, FileDescriptorSet};

fn broken() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/protos/broken")
}

fn compile(builder: Builder, proto: &str) -> CodegenError {
    let dir = tempfile::tempdir().unwrap();
    let builder = builder.out_dir(dir.path()).emit_rerun_if_changed(false);
    builder.compile_protos(&[broken().join(proto)], &[broken()]).unwrap_err()
}

/// Returns the message, with the directory of the broken files replaced.
fn message(proto: &str) -> String {
    let message = compile(rpc_codegen::configure(), proto).to_string();
    message.replace(&broken().display().to_string(), "DIR")
}

#[test]
fn a_missing_import_names_its_line_and_the_search_path() {
    let expected = "DIR/missing_import.proto:5:1: import 'absent.proto' not found \
                    (include directories: DIR)";
    assert_eq!(message("missing_import.proto"), expected);
}

#[test]
fn a_syntax_error_names_file_and_line() {
    let message = message("syntax.proto");
    assert!(message.starts_with("DIR/syntax.proto:4:15: expected"), "{message}");
}

#[test]
fn an_undefined_message_names_file_and_line() {
    let message = message("undefined.proto");
    assert!(message.starts_with("DIR/undefined.proto:4:10: name 'Nothing'"), "{message}");
}

#[test]
fn a_file_of_an_edition_is_named_with_its_edition() {
    let expected = "DIR/edition.proto: protobuf editions are not supported \
                    (edition = \"2023\"): write syntax = \"proto3\" or \"proto2\"";
    assert_eq!(message("edition.proto"), expected);
    assert_eq!(message("imports_edition.proto"), expected);
}

#[test]
fn a_descriptor_set_with_an_edition_is_an_error() {
    let file = FileDescriptorProto {
        name: Some("a.proto".to_owned()),
        syntax: Some("editions".to_owned()),
        ..Default::default()
    };
    let dir = tempfile::tempdir().unwrap();
    let fds = FileDescriptorSet { file: vec![file] };
    let error = rpc_codegen::configure().out_dir(dir.path()).compile_fds(fds).unwrap_err();
    let message = error.to_string();
    assert!(message.starts_with("a.proto: protobuf editions"), "{message}");
}

#[test]
fn a_missing_file_is_named() {
    let message = message("nothing.proto");
    assert!(message.contains("DIR/nothing.proto"), "{message}");
}

#[test]
fn invalid_settings_fail_before_anything_is_generated() {
    let cases = [
        (rpc_codegen::configure().runtime_path("not a path"), "runtime_path(\"not a path\")"),
        (rpc_codegen::configure().extern_path(".a", "::b::"), "extern_path(\"::b::\")"),
        (rpc_codegen::configure().type_attribute(".", "derive(Hash)"), "type_attribute("),
        (rpc_codegen::configure().server_mod_attribute("a", "#[cfg("), "server_mod_attribute("),
        (rpc_codegen::configure().codec_path("1"), "codec_path(\"1\")"),
    ];
    for (builder, expected) in cases {
        let message = compile(builder, "undefined.proto").to_string();
        assert!(message.starts_with(expected), "{message}");
    }
}

#[test]
fn an_external_path_that_prost_refuses_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let builder = rpc_codegen::configure().out_dir(dir.path()).extern_path("no.dot", "::other");
    let message = builder.compile_fds(FileDescriptorSet::default()).unwrap_err().to_string();
    assert!(message.contains("no.dot") || message.contains("extern"), "{message}");
}

#[test]
fn a_descriptor_set_without_its_imports_is_an_error() {
    let mut fds = protox::compile(["greeter.proto"], [broken().join("..")]).unwrap();
    fds.file.retain(|file| file.name() == "greeter.proto");
    let dir = tempfile::tempdir().unwrap();
    let builder = rpc_codegen::configure().out_dir(dir.path());
    let message = builder.compile_fds(fds).unwrap_err().to_string();
    assert!(message.contains("google/protobuf/empty.proto"), "{message}");
}

#[test]
fn descriptors_with_holes_are_an_error() {
    let method = MethodDescriptorProto { name: Some("Do".to_owned()), ..Default::default() };
    let holes = [
        ServiceDescriptorProto::default(),
        ServiceDescriptorProto {
            name: Some("Half".to_owned()),
            method: vec![method],
            options: None,
        },
        ServiceDescriptorProto {
            name: Some("Nameless".to_owned()),
            method: vec![MethodDescriptorProto::default()],
            options: None,
        },
    ];
    for service in holes {
        let dir = tempfile::tempdir().unwrap();
        let file = FileDescriptorProto {
            name: Some("a.proto".to_owned()),
            service: vec![service],
            ..Default::default()
        };
        let fds = FileDescriptorSet { file: vec![file] };
        let error = rpc_codegen::configure().out_dir(dir.path()).compile_fds(fds).unwrap_err();
        assert!(matches!(error, CodegenError::DescriptorSet { .. }), "{error}");
    }
}

#[test]
fn relative_type_names_in_a_descriptor_set_are_resolved() {
    let mut fds = protox::compile(["no_package.proto"], [broken().join("..")]).unwrap();
    fds.file[0].service[0].method[0].input_type = Some("Ping".to_owned());
    let dir = tempfile::tempdir().unwrap();
    rpc_codegen::configure().out_dir(dir.path()).compile_fds(fds).unwrap();
    assert!(dir.path().join("_.rs").is_file());
}

#[test]
fn a_missing_output_directory_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let absent = dir.path().join("absent");
    let protos = broken().join("..");
    let builder = rpc_codegen::configure().out_dir(&absent).emit_rerun_if_changed(false);
    let error = builder.compile_protos(&[protos.join("greeter.proto")], &[protos]).unwrap_err();
    assert!(error.to_string().contains(&absent.display().to_string()), "{error}");
}
