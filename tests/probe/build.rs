//! Compiles the service.

use std::path::Path;

use rpc_codegen::CodegenError;

fn main() -> Result<(), CodegenError> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../proto");
    let set = Path::new(&std::env::var_os("OUT_DIR").unwrap_or_default()).join("suite.bin");
    rpc_codegen::configure()
        // Zero copy: `bytes` fields are `Bytes`, which share the transport's memory.
        .bytes(".")
        .file_descriptor_set_path(set)
        .compile_protos(&[root.join("suite.proto")], &[root])
}
