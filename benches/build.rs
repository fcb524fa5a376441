//! Compiles the benchmarks' service, and notes the compiler's version.

use std::error::Error;
use std::process::Command;

fn main() -> Result<(), Box<dyn Error>> {
    // Cargo sets it. Counts of instructions are those of one compiler.
    let compiler = std::env::var("RUSTC")?;
    let version = String::from_utf8(Command::new(compiler).arg("--version").output()?.stdout)?;
    println!("cargo::rustc-env=FARCALL_COMPILER={}", version.trim());
    rpc_codegen::configure()
        // Zero copy: `bytes` fields are `Bytes`, which share the transport's memory.
        .bytes(".")
        .compile_protos(&["../proto/bench.proto"], &["../proto"])?;
    Ok(())
}
