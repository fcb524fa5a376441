//! Build scripts with their own prost configuration, or with settings that only concern protoc.

#![allow(clippy::unwrap_used, reason = "a failed test is how these tests report")]

use std::path::{Path, PathBuf};
use std::{fs, io};

use rpc_codegen::{Builder, CodegenError, Config};

fn protos() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/protos")
}

fn configure(dir: &Path) -> Builder {
    rpc_codegen::configure().out_dir(dir).emit_rerun_if_changed(false)
}

fn compile(builder: Builder, config: Config) -> Result<(), CodegenError> {
    builder.compile_with_config(config, &[protos().join("greeter.proto")], &[protos()])
}

fn text(dir: &Path) -> String {
    fs::read_to_string(dir.join("sample.v1.rs")).unwrap()
}

#[test]
fn the_builders_settings_are_added_to_the_configurations() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = Config::new();
    config.bytes(["."]).btree_map(["."]).skip_debug([".sample.v1.HelloReply"]);
    config.disable_comments(["sample.v1.HelloRequest"]).enable_type_names();
    let builder = configure(dir.path()).message_attribute("HelloRequest", "#[doc(alias = \"h\")]");
    compile(builder.disable_comments(["sample.v1.Greeter.SayHello"]), config).unwrap();
    let text = text(dir.path());
    for expected in ["::prost::bytes::Bytes", "BTreeMap", "alias = \"h\"", "::prost::Name"] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    assert!(text.contains("#[prost(skip_debug)]") && !text.contains("Says hello"), "{text}");
}

#[test]
fn tonic_writes_the_same_with_the_same_config() {
    let config = || {
        let mut config = Config::new();
        config.bytes([".sample.v1.HelloReply.Part"]).retain_enum_prefix();
        config.type_attribute(".", "#[doc(hidden)]");
        config
    };
    let (ours, tonics) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    compile(configure(ours.path()).build_rpc(false).boxed("HelloRequest.name"), config()).unwrap();
    let fds = protox::compile([protos().join("greeter.proto")], [protos()]).unwrap();
    tonic_prost_build::configure()
        .type_attribute(".", "#[allow(clippy::all)]")
        .build_transport(false)
        .boxed("HelloRequest.name")
        .out_dir(tonics.path())
        .compile_fds_with_config(fds, config())
        .unwrap();
    assert_eq!(text(ours.path()), text(tonics.path()));
}

#[test]
fn the_configs_output_directory_is_used() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = Config::new();
    config.out_dir(dir.path());
    let builder = rpc_codegen::configure().emit_rerun_if_changed(false);
    compile(builder, config).unwrap();
    assert!(text(dir.path()).contains("greeter_rpc"));
}

#[test]
fn a_configs_descriptor_set_fails_before_any_output() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = Config::new();
    config.file_descriptor_set_path(dir.path().join("set.bin"));
    let error = compile(configure(dir.path()), config).unwrap_err();
    assert!(matches!(error, CodegenError::ConfigDescriptorSetPath), "{error}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn settings_of_protoc_are_taken() {
    let dir = tempfile::tempdir().unwrap();
    let builder = configure(dir.path())
        .protoc_arg("--experimental_allow_proto3_optional")
        .emit_package(false)
        .with_extended_rust_types(true);
    compile(builder.clone(), Config::new()).unwrap();
    let with_settings = text(dir.path());
    compile(configure(dir.path()), Config::new()).unwrap();
    assert_eq!(with_settings, text(dir.path()));
}

#[test]
fn a_descriptor_set_is_read_in_place_of_files() {
    let dir = tempfile::tempdir().unwrap();
    let set = dir.path().join("set.bin");
    compile(configure(dir.path()).file_descriptor_set_path(&set), Config::new()).unwrap();
    let from_protos = text(dir.path());
    fs::remove_file(dir.path().join("sample.v1.rs")).unwrap();
    let reading = configure(dir.path()).skip_protoc_run();
    let nothing: &[&str] = &[];
    reading.clone().file_descriptor_set_path(&set).compile_protos(nothing, nothing).unwrap();
    assert_eq!(text(dir.path()), from_protos);
    let error = reading.clone().compile_protos(nothing, nothing).unwrap_err();
    assert!(matches!(error, CodegenError::NoDescriptorSet), "{error}");
    fs::write(&set, "no set").unwrap();
    let error = reading.file_descriptor_set_path(&set).compile_protos(nothing, nothing);
    let message = error.unwrap_err().to_string();
    assert!(message.starts_with(&format!("reading {}", set.display())), "{message}");
}

#[test]
fn errors_convert_to_io_errors() {
    fn main() -> io::Result<()> {
        rpc_codegen::configure()
            .out_dir("out")
            .codec_path("1")
            .compile_protos(&["a.proto"], &[])?;
        Ok(())
    }
    assert!(main().unwrap_err().to_string().starts_with("codec_path(\"1\")"));
}

#[test]
fn a_foreign_service_only_gets_our_module() {
    let dir = tempfile::tempdir().unwrap();
    let builder = configure(dir.path()).tonic_path(".sample.v1", "::other::v1");
    compile(builder.clone(), Config::new()).unwrap();
    let text_of = text(dir.path());
    assert!(text_of.contains("::other::v1::greeter_server::Greeter"), "{text_of}");
    assert!(text_of.contains("::other::v1::HelloRequest"), "{text_of}");
    assert!(!text_of.contains("pub struct HelloRequest"), "{text_of}");
    assert!(!text_of.contains("mod greeter_server"), "{text_of}");
    // Messages may come from elsewhere than services.
    let apart = builder.clone().extern_path(".sample.v1", "::messages");
    compile(apart, Config::new()).unwrap();
    let text_of = text(dir.path());
    assert!(text_of.contains("::other::v1::greeter_server::Greeter"), "{text_of}");
    assert!(text_of.contains("::messages::HelloRequest"), "{text_of}");
    // Nothing is left to generate, which prost-build does not expect.
    compile(builder.build_rpc(false), Config::new()).unwrap();
}

#[test]
fn a_relative_tonic_path_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let builder = configure(dir.path()).tonic_path(".sample.v1", "other::v1");
    let message = compile(builder, Config::new()).unwrap_err().to_string();
    assert!(message.contains("must begin with `::` or `crate::`"), "{message}");
}
