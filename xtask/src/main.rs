//! `cargo xtask`. The tasks are in the library of this package, which the release tooling uses too.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    xtask::main()
}
