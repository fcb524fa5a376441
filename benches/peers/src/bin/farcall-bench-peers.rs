//! A worker that is one of the peers. `farcall-bench` starts it.
#![forbid(unsafe_code)]

fn main() -> anyhow::Result<()> {
    farcall_bench_peers::run(None)
}
