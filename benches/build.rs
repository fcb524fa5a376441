//! Compiles the benchmarks' service.

use rpc_codegen::CodegenError;

fn main() -> Result<(), CodegenError> {
    rpc_codegen::configure()
        // Zero copy: `bytes` fields are `Bytes`, which share the transport's memory.
        .bytes(".")
        .compile_protos(&["../proto/bench.proto"], &["../proto"])
}
