//! Compiles the suite's service, and that of gRPC's interoperability tests.

use std::path::Path;

use rpc_codegen::CodegenError;

fn main() -> Result<(), CodegenError> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../proto");
    rpc_codegen::compile_protos(root.join("suite.proto"))?;
    let root = rpc_codegen::package_dir("grpcio-proto")?.join("proto");
    // What the interoperability tests want unimplemented is indeed not implemented.
    rpc_codegen::configure()
        .generate_default_stubs(true)
        .compile_protos(&[root.join("grpc/testing/test.proto")], &[root])
}
