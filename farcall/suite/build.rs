//! Compiles the suite's service, and that of gRPC's interoperability tests.

use std::path::Path;

use rpc_codegen::CodegenError;

fn main() -> Result<(), CodegenError> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../proto");
    // Zero copy: `bytes` fields are `Bytes`, which share the transport's memory.
    let configure = || rpc_codegen::configure().bytes(".");
    configure().compile_protos(&[root.join("suite.proto")], &[root])?;
    let root = rpc_codegen::package_dir("grpcio-proto")?.join("proto");
    // What the interoperability tests want unimplemented is indeed not implemented.
    configure()
        .generate_default_stubs(true)
        .compile_protos(&[root.join("grpc/testing/test.proto")], &[root])
}
