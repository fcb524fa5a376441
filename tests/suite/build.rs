//! Compiles the suite's service, and that of gRPC's interoperability tests.

use std::path::Path;

use rpc_codegen::CodegenError;

fn main() -> Result<(), CodegenError> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../proto");
    // Zero copy: `bytes` fields are `Bytes`, which share the transport's memory.
    let configure = || rpc_codegen::configure().bytes(".");
    let set = |name| Path::new(&std::env::var_os("OUT_DIR").unwrap_or_default()).join(name);
    // The service of recordings.
    rpc_codegen::compile_protos(root.join("talk.proto"))?;
    configure()
        .file_descriptor_set_path(set("suite.bin"))
        .compile_protos(&[root.join("suite.proto")], &[root])?;
    // The stub alone: the messages are tonic-health's.
    let root = rpc_codegen::package_dir("tonic-health")?.join("proto");
    rpc_codegen::configure()
        .tonic_path(".grpc.health.v1", "::tonic_health::pb")
        .compile_protos(&[root.join("health.proto")], &[root])?;
    let root = rpc_codegen::package_dir("grpcio-proto")?.join("proto");
    // What the interoperability tests want unimplemented is indeed not implemented.
    configure()
        .generate_default_stubs(true)
        .file_descriptor_set_path(set("interop.bin"))
        .compile_protos(&[root.join("grpc/testing/test.proto")], &[root])
}
