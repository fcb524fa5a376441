//! Compiles the benchmarks' service.

use rpc_codegen::CodegenError;

fn main() -> Result<(), CodegenError> {
    rpc_codegen::configure().compile_protos(&["../proto/bench.proto"], &["../proto"])
}
