//! Compiles `hello.proto` and `talk.proto`, and etcd's own `.proto` as the crate `etcd-client`
//! carries it.

fn main() -> Result<(), rpc_codegen::CodegenError> {
    rpc_codegen::compile_protos("../proto/hello.proto")?;
    rpc_codegen::compile_protos("../proto/talk.proto")?;
    let root = rpc_codegen::package_dir("etcd-client")?.join("proto");
    rpc_codegen::configure()
        // Zero copy: `bytes` fields are `Bytes`, which share the transport's memory.
        .bytes(".")
        .include_file("mod.rs")
        .compile_protos(&[root.join("etcd/api/etcdserverpb/rpc.proto")], &[root])
}
