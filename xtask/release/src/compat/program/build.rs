//! Generates messages and stubs with the version's own code generator.

fn main() -> Result<(), rpc_codegen::CodegenError> {
    rpc_codegen::compile_protos("talk.proto")
}
