//! Services that are described without a `.proto` file.

#![allow(clippy::unwrap_used, reason = "a failed test is how these tests report")]

use std::fs;

use rpc_codegen::manual::{Builder, Method, MethodBuilder, Service};

fn method(name: &str, route: &str) -> MethodBuilder {
    let method = Method::builder().name(name).route_name(route).comment("Says something.");
    method.input_type("crate::Request").output_type("super::Reply").codec_path("crate::Codec")
}

fn service() -> Service {
    let talk = method("talk", "Talk").client_streaming().server_streaming();
    let service = Service::builder().name("Echo").package("sample.v1").comment("Echoes.");
    service.method(method("say", "Say").build()).method(talk.build()).build()
}

#[test]
fn our_module_follows_tonics() {
    let (ours, tonics) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    Builder::new().out_dir(ours.path()).compile(&[service()]).unwrap();
    tonic_prost_build::manual::Builder::new()
        .build_transport(false)
        .out_dir(tonics.path())
        .compile(&[service()]);
    let read =
        |dir: &tempfile::TempDir| fs::read_to_string(dir.path().join("sample.v1.Echo.rs")).unwrap();
    let (ours, tonics) = (read(&ours), read(&tonics));
    let import = "    use ::farcall::codegen::tonic;\n";
    assert_eq!(ours.matches(import).count(), 2, "in each of tonic's modules: {ours}");
    let ours = ours.replace(import, "");
    let module = ours.strip_prefix(&tonics).unwrap();
    for expected in [
        "pub mod echo_rpc {",
        "\"/sample.v1.Echo/Say\"",
        "CallKind::Streaming",
        "impl<T: super::echo_server::Echo> EchoService<T>",
        "IntoRequest<crate::Request>",
        "Response<self::super::Reply>",
        "/// Says something.",
    ] {
        assert!(module.contains(expected), "{expected}: {module}");
    }
}

#[test]
fn only_requested_modules_are_generated() {
    let dir = tempfile::tempdir().unwrap();
    Builder::new().out_dir(dir.path()).build_server(false).compile(&[service()]).unwrap();
    let text = fs::read_to_string(dir.path().join("sample.v1.Echo.rs")).unwrap();
    assert!(text.contains("EchoStub") && text.contains("mod echo_client"), "{text}");
    assert!(!text.contains("EchoService") && !text.contains("mod echo_server"), "{text}");
}

#[test]
fn a_foreign_service_only_gets_our_module() {
    let dir = tempfile::tempdir().unwrap();
    let builder = Builder::new().out_dir(dir.path()).tonic_path(".sample", "::other::api");
    builder.compile(&[service()]).unwrap();
    let text = fs::read_to_string(dir.path().join("sample.v1.Echo.rs")).unwrap();
    assert!(text.contains("T: ::other::api::v1::echo_server::Echo"), "{text}");
    assert!(text.contains("pub mod echo_rpc {"), "{text}");
    assert!(!text.contains("mod echo_server {") && !text.contains("mod echo_client"), "{text}");
    let builder = Builder::new().out_dir(dir.path()).tonic_path(".sample", "other");
    let error = builder.compile(&[service()]).unwrap_err();
    assert!(error.to_string().starts_with("tonic_path(\"other\")"), "{error}");
}

#[test]
fn faults_are_named_without_a_panic() {
    let dir = tempfile::tempdir().unwrap();
    let absent = dir.path().join("absent");
    let error = Builder::new().out_dir(&absent).compile(&[service()]).unwrap_err();
    assert!(error.to_string().contains(&absent.display().to_string()), "{error}");
    let builder = Builder::new().out_dir(dir.path()).runtime_path("1");
    let error = builder.compile(&[service()]).unwrap_err();
    assert!(error.to_string().starts_with("runtime_path(\"1\")"), "{error}");
    let method = method("say", "Say").codec_path("1").build();
    let service = Service::builder().name("Echo").package("a").method(method).build();
    let error = Builder::new().out_dir(dir.path()).compile(&[service]).unwrap_err();
    assert!(error.to_string().starts_with("codec_path(\"1\")"), "{error}");
}
