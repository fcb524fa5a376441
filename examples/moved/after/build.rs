//! Compiles the service of the town.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    rpc_codegen::compile_protos("../proto/tour.proto")?;
    Ok(())
}
