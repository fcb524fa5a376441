//! Compiles third-party `.proto` files, and the samples of the golden tests.

use std::fs;
use std::path::{Path, PathBuf};

use rpc_codegen::manual::{self, Method, Service};
use rpc_codegen::{Builder, CodegenError};

fn main() -> Result<(), CodegenError> {
    let out_dir = std::env::var_os("OUT_DIR").map(PathBuf::from).ok_or(CodegenError::OutDir)?;
    published(&out_dir)?;
    another_crate(&out_dir)?;
    by_hand(&out_dir)?;
    samples(&out_dir)
}

/// Compiles services that run in production elsewhere, from the crates that ship their `.proto`
/// files.
fn published(out_dir: &Path) -> Result<(), CodegenError> {
    let compile = |group: &str, package: &str, root: &str, protos: &[&str]| {
        let root = rpc_codegen::package_dir(package)?.join(root);
        // Zero copy: `bytes` fields become `Bytes`, which share the transport's memory.
        compile(configure().bytes("."), &out_dir.join(group), &root, protos)
    };
    compile(
        "etcd",
        "etcd-client",
        "proto",
        &[
            "etcd/api/etcdserverpb/rpc.proto",
            "etcd/server/etcdserver/api/v3lock/v3lockpb/v3lock.proto",
            "etcd/server/etcdserver/api/v3election/v3electionpb/v3election.proto",
        ],
    )?;
    compile(
        "otlp",
        "opentelemetry-proto",
        "src/proto/opentelemetry-proto",
        &[
            "opentelemetry/proto/collector/trace/v1/trace_service.proto",
            "opentelemetry/proto/collector/metrics/v1/metrics_service.proto",
            "opentelemetry/proto/collector/logs/v1/logs_service.proto",
            "opentelemetry/proto/collector/profiles/v1development/profiles_service.proto",
        ],
    )?;
    compile("health", "tonic-health", "proto", &["health.proto"])?;
    let reflection = ["reflection_v1.proto", "reflection_v1alpha.proto"];
    compile("reflection", "tonic-reflection", "proto", &reflection)?;
    let interop = ["grpc/testing/test.proto", "grpc/testing/services.proto"];
    compile("interop", "grpcio-proto", "proto", &interop)
}

/// Compiles a service whose trait and messages come from `tonic-health`.
fn another_crate(out_dir: &Path) -> Result<(), CodegenError> {
    let root = rpc_codegen::package_dir("tonic-health")?.join("proto");
    let builder = configure().tonic_path(".grpc.health.v1", "::tonic_health::pb");
    compile(builder, &out_dir.join("tonics_health"), &root, &["health.proto"])
}

/// Compiles a service without a `.proto` file, whose messages the samples generate.
fn by_hand(out_dir: &Path) -> Result<(), CodegenError> {
    let greet = Method::builder()
        .name("greet")
        .route_name("Greet")
        .input_type("crate::plain::sample::v1::HelloRequest")
        .output_type("crate::plain::sample::v1::HelloReply")
        .codec_path("tonic_prost::ProstCodec")
        .build();
    let service = Service::builder().name("ByHand").package("hand").method(greet).build();
    manual::Builder::new().runtime_path("crate::runtime").out_dir(out_dir).compile(&[service])
}

/// Compiles the samples under every setting that changes the text, so that rustc checks the golden
/// texts.
fn samples(out_dir: &Path) -> Result<(), CodegenError> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/protos");
    let sample = |name: &str, builder: Builder| {
        compile(builder, &out_dir.join(name), &root, &["greeter.proto", "no_package.proto"])
    };
    sample("plain", configure())?;
    sample("shared_bytes", configure().bytes("."))?;
    sample("arc_self", configure().use_arc_self(true))?;
    sample("default_stubs", configure().generate_default_stubs(true))?;
    let both = configure().use_arc_self(true).generate_default_stubs(true);
    sample("arc_self_default_stubs", both)?;
    sample("client_only", configure().build_server(false))?;
    sample("without_transport", configure().build_transport(false))?;
    sample("server_only", configure().build_client(false))?;
    sample("well_known", configure().compile_well_known_types(true))?;
    let conditional = configure()
        .server_mod_attribute(".", "#[cfg(feature = \"sample-server\")]")
        .client_mod_attribute(".", "#[cfg(feature = \"sample-client\")]");
    sample("conditional", conditional)?;
    let nest = ["nest.proto", "nest_old.proto", "nest_types.proto"];
    compile(configure(), &out_dir.join("nest"), &root, &nest)?;
    let odd_names = |name: &str, builder: Builder| {
        compile(builder, &out_dir.join(name), &root, &["odd_names.proto"])
    };
    odd_names("odd_names", configure())?;
    // tonic's modules use the name `BoxStream` only with default stubs.
    odd_names("odd_names_default_stubs", configure().generate_default_stubs(true))
}

/// Returns a builder with `connect()`, whose name some methods share.
fn configure() -> Builder {
    rpc_codegen::configure().build_transport(true).runtime_path("crate::runtime")
}

/// Compiles `protos` below `root` into `out_dir`, with a `mod.rs` that includes the output.
fn compile(
    builder: Builder,
    out_dir: &Path,
    root: &Path,
    protos: &[&str],
) -> Result<(), CodegenError> {
    fs::create_dir_all(out_dir)
        .map_err(|reason| CodegenError::Write { path: out_dir.to_owned(), reason })?;
    let protos: Vec<PathBuf> = protos.iter().map(|proto| root.join(proto)).collect();
    let builder = builder.out_dir(out_dir).include_file("mod.rs");
    builder.compile_protos(&protos, &[root.to_owned()])
}
