//! The folders in which protox finds imports.

#![cfg(not(feature = "protoc"))]
#![allow(clippy::unwrap_used, reason = "a failed test is how these tests report")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rpc_codegen::CodegenError;

/// Names the output folder for a process that a test starts.
const OUT: &str = "FARCALL_TEST_OUT";

fn protos() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/protos")
}

fn compile(proto: PathBuf, includes: &[PathBuf], out_dir: &Path) -> Result<(), CodegenError> {
    let builder = rpc_codegen::configure().out_dir(out_dir).emit_rerun_if_changed(false);
    let mut all = includes.to_vec();
    all.push(proto.parent().unwrap().to_owned());
    builder.compile_protos(&[proto], &all)
}

#[test]
fn protobufs_own_files_are_ours_despite_the_includes() {
    let dir = tempfile::tempdir().unwrap();
    let newer = protos().join("newer");
    compile(newer.join("options.proto"), std::slice::from_ref(&newer), dir.path()).unwrap();
    let text = fs::read_to_string(dir.path().join("sample.v1.rs")).unwrap();
    assert!(text.contains("pub struct Distance"), "{text}");
    // Requested by its path, the file is also ours.
    compile(newer.join("google/protobuf/descriptor.proto"), &[newer], dir.path()).unwrap();
}

/// The fixture is only useful while protox fails on it.
#[test]
fn protox_fails_on_the_newer_file() {
    let newer = protos().join("newer");
    let error = protox::compile(["options.proto"], [newer]).unwrap_err();
    assert_eq!(error.file(), Some("google/protobuf/descriptor.proto"), "{error}");
}

#[test]
fn imports_are_found_where_protoc_include_says() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("far.proto"), "syntax = \"proto3\"; message Far {}").unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "--ignored", "compiles_an_import_from_elsewhere"]);
    let output = command.env("PROTOC_INCLUDE", dir.path()).env(OUT, dir.path()).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && printed.contains("1 passed"), "{printed}");
    assert!(dir.path().join("near.rs").is_file());
}

/// A test must not change its own environment.
#[test]
#[ignore = "imports_are_found_where_protoc_include_says runs it in a process of its own"]
fn compiles_an_import_from_elsewhere() {
    let out_dir = std::env::var_os(OUT).map(PathBuf::from).unwrap();
    compile(protos().join("elsewhere/near.proto"), &[], &out_dir).unwrap();
}
