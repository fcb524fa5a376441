//! Snapshots of the generated text. They only hold farcall's part, since the rest is tonic's.

#![allow(clippy::unwrap_used, reason = "a failed test is how these tests report")]

use std::fs;
use std::path::{Path, PathBuf};

use rpc_codegen::Builder;

fn protos() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/protos")
}

/// Returns the text of one file that `builder` generates from a file of `tests/protos`.
fn generate(builder: Builder, proto: &str, output: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let builder = builder.out_dir(dir.path()).emit_rerun_if_changed(false);
    builder.compile_protos(&[protos().join(proto)], &[protos()]).unwrap();
    fs::read_to_string(dir.path().join(output)).unwrap()
}

/// Returns the farcall module of the greeter.
fn farcall_module(builder: Builder) -> String {
    let text = generate(builder, "greeter.proto", "sample.v1.rs");
    let start = text.find("/// farcall glue for").unwrap();
    text[start..].to_owned()
}

#[test]
fn all_four_kinds_of_call() {
    insta::assert_snapshot!(farcall_module(rpc_codegen::configure()));
}

/// The crate that includes the text depends on farcall alone, unless it opts out.
#[test]
fn tonic_and_prost_are_found_in_the_runtime() {
    let text = generate(rpc_codegen::configure(), "greeter.proto", "sample.v1.rs");
    assert_eq!(text.matches("    use ::farcall::codegen::tonic;\n").count(), 2, "{text}");
    assert!(text.contains("::farcall::codegen::tonic_prost::ProstCodec::default()"), "{text}");
    assert!(text.contains("prost_path = \"::farcall::codegen::prost\""), "{text}");
    assert!(!text.contains(" ::prost::") && !text.contains("<::prost::"), "{text}");
    let own = rpc_codegen::configure().use_reexports(false);
    let own = generate(own, "greeter.proto", "sample.v1.rs");
    assert!(!own.contains("codegen::tonic") && !own.contains("codegen::prost"), "{own}");
    assert!(own.contains("::prost::Message") && own.contains(" tonic_prost::ProstCodec"), "{own}");
}

#[test]
fn arc_self_passes_the_arc() {
    insta::assert_snapshot!(farcall_module(rpc_codegen::configure().use_arc_self(true)));
}

#[test]
fn default_stubs_change_the_trait_and_not_our_text() {
    let with = farcall_module(rpc_codegen::configure().generate_default_stubs(true));
    assert_eq!(with, farcall_module(rpc_codegen::configure()));
}

#[test]
fn client_only() {
    insta::assert_snapshot!(farcall_module(rpc_codegen::configure().build_server(false)));
}

#[test]
fn server_only() {
    let builder = rpc_codegen::configure().build_client(false);
    insta::assert_snapshot!(farcall_module(builder.runtime_path("::rpc_core::codegen")));
}

#[test]
fn conditions_on_tonics_modules_are_repeated() {
    let builder = rpc_codegen::configure()
        .server_mod_attribute("sample.v1", "#[cfg(feature = \"server\")] #[allow(unused)]")
        .client_mod_attribute("v1", "#[cfg(feature = \"client\")]");
    insta::assert_snapshot!(farcall_module(builder));
}

#[test]
fn comments_can_be_left_out() {
    let paths = ["sample.v1.Greeter", "sample.v1.Greeter.SayHello"];
    let text = farcall_module(rpc_codegen::configure().disable_comments(paths));
    assert!(!text.contains("Greets people") && !text.contains("Says hello"), "{text}");
    assert!(text.contains("Was replaced"), "{text}");
}

#[test]
fn odd_names() {
    let text = generate(rpc_codegen::configure(), "odd_names.proto", "odd.r#type.rs");
    let start = text.find("/// farcall glue for `odd.type.Methods`").unwrap();
    let end = text.find("/// farcall glue for `odd.type.Empty`").unwrap();
    let end = text[..end].rfind("/// Generated client implementations.").unwrap();
    insta::assert_snapshot!(&text[start..end]);
}

/// Runs tonic's own builder on the same descriptors, also without protoc.
fn tonics_text(
    configure: impl FnOnce(tonic_prost_build::Builder) -> tonic_prost_build::Builder,
) -> String {
    let dir = tempfile::tempdir().unwrap();
    let fds = protox::compile([protos().join("greeter.proto")], [protos()]).unwrap();
    let builder = tonic_prost_build::configure().type_attribute(".", "#[allow(clippy::all)]");
    let builder = builder.build_transport(false).out_dir(dir.path());
    configure(builder).compile_fds(fds).unwrap();
    fs::read_to_string(dir.path().join("sample.v1.rs")).unwrap()
}

#[test]
fn without_our_module_the_text_is_tonics_own() {
    let tonics = tonics_text(|builder| builder);
    let ours = rpc_codegen::configure().build_rpc(false);
    pretty_equal(&generate(ours, "greeter.proto", "sample.v1.rs"), &tonics);
}

/// These tests have the feature `transport`, as in a workspace with a member that enables it.
#[test]
fn only_a_setting_makes_clients_name_tonics_transport() {
    let text = |builder| generate(builder, "greeter.proto", "sample.v1.rs");
    assert!(!text(rpc_codegen::configure()).contains("tonic::transport"));
    let tonics = tonics_text(|builder| builder.build_transport(true));
    assert!(tonics.contains("tonic::transport::Channel"), "{tonics}");
    let ours = rpc_codegen::configure().build_rpc(false).build_transport(true);
    pretty_equal(&text(ours), &tonics);
}

#[test]
fn every_setting_of_the_trait_reaches_tonic() {
    let tonics = tonics_text(|builder| {
        builder
            .use_arc_self(true)
            .generate_default_stubs(true)
            .server_attribute("sample.v1.Greeter", "#[doc(hidden)]")
            .client_attribute("sample.v1.Greeter", "#[doc(alias = \"c\")]")
            .trait_attribute("Greeter", "#[doc(alias = \"t\")]")
            .server_mod_attribute("sample.v1", "#[cfg(unix)]")
            .client_mod_attribute("sample.v1", "#[cfg(windows)]")
            .message_attribute("HelloRequest", "#[derive(Eq)]")
            .field_attribute("HelloRequest.name", "#[doc(alias = \"n\")]")
            .btree_map(".")
            .bytes(".")
            .disable_comments(["sample.v1.Greeter.SayHello"])
            .extern_path(".google.protobuf.Timestamp", "::other::Timestamp")
            .codec_path("crate::Codec")
    });
    let ours = rpc_codegen::configure()
        .build_rpc(false)
        .use_arc_self(true)
        .generate_default_stubs(true)
        .server_attribute("sample.v1.Greeter", "#[doc(hidden)]")
        .client_attribute("sample.v1.Greeter", "#[doc(alias = \"c\")]")
        .trait_attribute("Greeter", "#[doc(alias = \"t\")]")
        .server_mod_attribute("sample.v1", "#[cfg(unix)]")
        .client_mod_attribute("sample.v1", "#[cfg(windows)]")
        .message_attribute("HelloRequest", "#[derive(Eq)]")
        .field_attribute("HelloRequest.name", "#[doc(alias = \"n\")]")
        .btree_map(".")
        .bytes(".")
        .disable_comments(["sample.v1.Greeter.SayHello"])
        .extern_path(".google.protobuf.Timestamp", "::other::Timestamp")
        .codec_path("crate::Codec");
    let ours = generate(ours, "greeter.proto", "sample.v1.rs");
    pretty_equal(&ours, &tonics);
}

/// Compares line by line, so that a failure names the line instead of two whole files.
fn pretty_equal(ours: &str, tonics: &str) {
    for (number, (ours, tonics)) in ours.lines().zip(tonics.lines()).enumerate() {
        assert_eq!(ours, tonics, "line {}", number + 1);
    }
    assert_eq!(ours.lines().count(), tonics.lines().count());
}

#[test]
fn bytes_fields_are_vecs_by_default() {
    let text = |builder| generate(builder, "greeter.proto", "sample.v1.rs");
    let (bytes, vec) = ("::prost::bytes::Bytes", "::prost::alloc::vec::Vec<u8>");
    let default = text(rpc_codegen::configure());
    assert!(!default.contains(bytes) && default.contains(vec));
    let all = text(rpc_codegen::configure().bytes("."));
    assert!(all.contains(bytes) && !all.contains(vec));
    let some = text(rpc_codegen::configure().bytes(".sample.v1.HelloReply.Part"));
    assert!(some.contains(bytes) && some.contains(vec));
}

#[test]
fn a_descriptor_set_yields_the_same_text() {
    let dir = tempfile::tempdir().unwrap();
    let set = dir.path().join("set.bin");
    let builder = rpc_codegen::configure().file_descriptor_set_path(&set);
    let from_protos = generate(builder, "greeter.proto", "sample.v1.rs");
    let fds = prost::Message::decode(&*fs::read(&set).unwrap()).unwrap();
    rpc_codegen::configure().out_dir(dir.path()).compile_fds(fds).unwrap();
    assert_eq!(fs::read_to_string(dir.path().join("sample.v1.rs")).unwrap(), from_protos);
}
