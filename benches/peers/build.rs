//! Compiles the benchmark's service for the peer that brings a compiler of its own.

fn main() -> anyhow::Result<()> {
    #[cfg(feature = "capnp")]
    capnpc::CompilerCommand::new().src_prefix("schema").file("schema/bench.capnp").run()?;
    Ok(())
}
