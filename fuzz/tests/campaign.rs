//! Every target on its corpus and on mutations of it. With `FARCALL_FUZZ_WRITE=1` it writes the
//! corpora anew first, from the targets' seeds, and keeps the files that others have added.

use std::fs;
use std::process::ExitCode;

use farcall_fuzz::campaign::{Campaign, corpus, corpus_dir, run};
use farcall_fuzz::{Target, held, targets};
use libtest_mimic::{Arguments, Failed, Trial};

/// Corpora are read by people too.
const FILE_LEN_MAX: usize = 1024;

fn main() -> ExitCode {
    let campaign = Campaign::from_env();
    println!("campaign of seed {} and factor {}", campaign.seed, campaign.factor);
    let trials = targets().into_iter().flat_map(|target| {
        [
            Trial::test(format!("{}::corpus", target.name), move || has_seeds(&target)),
            Trial::test(format!("{}::campaign", target.name), move || {
                println!("{}: {} mutated inputs", target.name, run(&target, campaign)?);
                for (peak, bound) in held(&target) {
                    println!("{}: held {peak} bytes, of at most {bound}", target.name);
                }
                Ok(())
            }),
        ]
    });
    if std::env::var_os("FARCALL_FUZZ_WRITE").is_some() {
        let written: Result<Vec<()>, _> = targets().iter().map(write).collect();
        if let Err(error) = written {
            println!("cannot write the corpora: {error}");
            return ExitCode::FAILURE;
        }
    }
    // The allocator counts what all threads hold.
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

/// The corpus has what the wire format is today, so that it does not fall behind it.
fn has_seeds(target: &Target) -> Result<(), Failed> {
    let corpus = corpus(target)?;
    if (target.seeds)().iter().any(|seed| !corpus.contains(seed)) {
        let text = "the corpus is older than the seeds: run with FARCALL_FUZZ_WRITE=1";
        return Err(text.into());
    }
    match corpus.iter().map(Vec::len).max() {
        Some(len) if len <= FILE_LEN_MAX => Ok(()),
        len => Err(format!("the longest file of the corpus has {len:?} bytes").into()),
    }
}

fn write(target: &Target) -> std::io::Result<()> {
    let dir = corpus_dir(target);
    fs::create_dir_all(&dir)?;
    for (index, seed) in (target.seeds)().iter().enumerate() {
        fs::write(dir.join(format!("seed-{index:02}")), seed)?;
    }
    Ok(())
}
