//! The peers again, with every heap allocation counted: too slow to measure anything else.
#![forbid(unsafe_code)]

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

fn main() -> anyhow::Result<()> {
    let _profiler = dhat::Profiler::builder().testing().build();
    farcall_bench_peers::run(Some(|| dhat::HeapStats::get().total_blocks))
}
