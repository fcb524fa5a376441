//! Compiles the benchmarks' service, and notes the compiler's version.

use std::error::Error;
use std::path::Path;
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
    // The same with the messages of a service that comes from tonic.
    let vectors = Path::new(&std::env::var_os("OUT_DIR").unwrap_or_default()).join("vectors");
    std::fs::create_dir_all(&vectors)?;
    rpc_codegen::configure()
        .out_dir(vectors)
        .compile_protos(&["../proto/bench.proto"], &["../proto"])?;
    Ok(())
}
