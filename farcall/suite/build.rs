//! Compiles the suite's service.

use std::path::Path;

fn main() -> Result<(), rpc_codegen::CodegenError> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../proto");
    // The suite's own library needs no HTTP/2; the test beside tonic opens its channel itself.
    rpc_codegen::configure()
        .build_transport(false)
        .compile_protos(&[root.join("suite.proto")], &[root])
}
