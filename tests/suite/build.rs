//! Compiles the stub of gRPC's health service, and the service of gRPC's interoperability tests.

use std::path::Path;

use rpc_codegen::CodegenError;

fn main() -> Result<(), CodegenError> {
    let set = Path::new(&std::env::var_os("OUT_DIR").unwrap_or_default()).join("interop.bin");
    // The service of recordings.
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../proto");
    rpc_codegen::compile_protos(root.join("talk.proto"))?;
    // A service whose messages have vectors.
    rpc_codegen::compile_protos(root.join("bench.proto"))?;
    // The stub alone: the messages are tonic-health's.
    let root = rpc_codegen::package_dir("tonic-health")?.join("proto");
    rpc_codegen::configure()
        .tonic_path(".grpc.health.v1", "::tonic_health::pb")
        .compile_protos(&[root.join("health.proto")], &[root])?;
    let root = rpc_codegen::package_dir("grpcio-proto")?.join("proto");
    // What the interoperability tests want unimplemented is indeed not implemented.
    rpc_codegen::configure()
        // Zero copy: `bytes` fields are `Bytes`, which share the transport's memory.
        .bytes(".")
        .generate_default_stubs(true)
        .file_descriptor_set_path(set)
        .compile_protos(&[root.join("grpc/testing/test.proto")], &[root])
}
