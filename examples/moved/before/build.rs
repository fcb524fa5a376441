//! Compiles gRPC's route guide.

#[path = "../found.rs"]
mod found;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = found::package("grpcio-proto")?.join("proto/grpc/example");
    let descriptors = protox::compile([root.join("route_guide.proto")], [&root])?;
    tonic_prost_build::configure().compile_fds(descriptors)?;
    Ok(())
}
