//! Compiles the service of the town.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let descriptors = protox::compile(["../proto/tour.proto"], ["../proto"])?;
    tonic_prost_build::configure().compile_fds(descriptors)?;
    Ok(())
}
