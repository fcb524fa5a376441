//! Compiles gRPC's route guide.

#[path = "../found.rs"]
mod found;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = found::package("grpcio-proto")?.join("proto/grpc/example");
    rpc_codegen::compile_protos(root.join("route_guide.proto"))?;
    Ok(())
}
