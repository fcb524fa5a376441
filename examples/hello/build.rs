fn main() -> Result<(), rpc_codegen::CodegenError> {
    rpc_codegen::compile_protos("proto/greeter.proto")
}
