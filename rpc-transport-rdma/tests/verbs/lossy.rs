//! Checks that a device keeps its word on a cable that loses packets: a READ that it calls complete
//! is whole, and queue pairs live on.
//!
//! It takes time and a cable that was damaged on purpose, so it runs only when
//! `FARCALL_LOSSY_SECONDS` says for how long. Faults are rare: an optimised build makes twenty
//! times the READs.
//!
//! ```sh
//! cargo test --release -p rpc-transport-rdma --test verbs --no-run    # names VERBS_TEST
//! tc qdisc replace dev DEVICE root netem loss 0.1%
//! FARCALL_LOSSY_SECONDS=60 VERBS_TEST --nocapture lossy
//! ```
//!
//! Soft-RoCE keeps it on Linux 6.1 and breaks it on 6.12, as `docs/book/src/rdma.md` tells.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rpc_transport_rdma::memory::{Access, LargeBuffer, RegionPool, Sink};
use rpc_transport_rdma::verbs::{ConnectOptions, Port, Work};

use crate::rig::{End, Sizes, connected_with, hardware_ports};

/// Pairs of queue pairs that read at a time.
const PAIRS: usize = 4;

/// READs that each end has under way.
const DEPTH: usize = 12;

/// One READ in three is so long, the others have a few packets.
const LONG: usize = 256 << 10;

const WORD_LEN: usize = 8;

/// A READ and the message behind it.
struct Transfer {
    seed: u64,
    source: LargeBuffer,
    /// Completions to come.
    missing: usize,
    sink: Option<Arc<Sink>>,
}

/// Two ends that read from each other.
struct Pair {
    ends: [End; 2],
    /// Behind the ends, because their sources may be read until those are gone.
    transfers: [VecDeque<Transfer>; 2],
}

/// The memory that all pairs share. It is reused, so that bytes which a READ leaves out show.
struct Bench {
    ports: [Port; 2],
    sources: [Arc<RegionPool>; 2],
    sinks: [Arc<RegionPool>; 2],
    dice: fastrand::Rng,
    seed: u64,
    whole: usize,
    /// Description of each other fault.
    cut_off: Vec<String>,
}

fn pattern(seed: u64) -> impl Iterator<Item = [u8; WORD_LEN]> {
    (0_u64..).map(move |index| ((seed << 32) | index).to_le_bytes())
}

/// From where the bytes are not those of that seed.
fn wrong_from(seed: u64, bytes: &[u8]) -> Option<usize> {
    let mut places = bytes.chunks_exact(WORD_LEN).zip(pattern(seed));
    places.position(|(found, word)| found != word).map(|index| index * WORD_LEN)
}

impl Bench {
    fn new(ports: [Port; 2]) -> Self {
        let pool = |port: &Port, access| RegionPool::new(&port.device, access, 256 << 20);
        Self {
            sources: [0, 1].map(|i| pool(&ports[i], Access::Source)),
            sinks: [0, 1].map(|i| pool(&ports[i], Access::Sink)),
            ports,
            dice: fastrand::Rng::with_seed(7),
            seed: 0,
            whole: 0,
            cut_off: Vec::new(),
        }
    }

    fn pair(&self) -> Pair {
        let ends = connected_with(&self.ports, Sizes::default(), &ConnectOptions::default());
        Pair { ends, transfers: Default::default() }
    }

    /// Makes an end read as much as it may.
    fn read(&mut self, pair: &mut Pair, i: usize) {
        while pair.transfers[i].len() < DEPTH && pair.ends[i].queue_pair.room() >= 2 {
            self.seed += 1;
            let is_long = self.dice.u8(..3) == 0;
            let len = if is_long { LONG } else { WORD_LEN * self.dice.usize(1..4000) };
            let mut source = self.sources[1 - i].try_take(len).unwrap();
            source
                .chunks_exact_mut(WORD_LEN)
                .zip(pattern(self.seed))
                .for_each(|(to, word)| to.copy_from_slice(&word));
            let sink = Arc::new(Sink::new(self.sinks[i].try_take(len).unwrap()));
            let remote = source.remote();
            let read = Work::Read { sink, offset: 0, len: len as u32, remote };
            let end = &mut pair.ends[i];
            end.post_all([read].into());
            // Without messages between them READs come to no harm.
            let has_message = self.dice.bool();
            if has_message {
                let message = end.send(b"a message");
                end.post_all([message].into());
            }
            let missing = 1 + usize::from(has_message);
            pair.transfers[i].push_back(Transfer { seed: self.seed, source, missing, sink: None });
        }
    }

    /// Takes what an end has done; false when its queue pair has failed.
    fn take(&mut self, pair: &mut Pair, i: usize) -> bool {
        let Pair { ends, transfers } = pair;
        ends[i].messages.clear();
        let done = std::mem::take(&mut ends[i].done);
        for done in done {
            if done.outcome.is_err() {
                return false;
            }
            let transfer = transfers[i].front_mut().unwrap();
            transfer.missing -= 1;
            if let Work::Read { sink, .. } = done.work {
                transfer.sink = Some(sink);
            }
            if transfer.missing == 0 {
                let transfer = transfers[i].pop_front().unwrap();
                self.check(transfer);
            }
        }
        true
    }

    fn check(&mut self, Transfer { seed, source, sink, .. }: Transfer) {
        assert_eq!(wrong_from(seed, &source), None, "the source is as it was");
        let buffer = Arc::into_inner(sink.unwrap()).unwrap().into_buffer();
        match wrong_from(seed, &buffer[..source.len()]) {
            None => self.whole += 1,
            Some(at) => self.cut_off.push(format!("{at} of {}", source.len())),
        }
    }
}

#[tokio::test]
async fn a_read_that_completes_is_whole_whatever_is_lost() {
    let seconds = std::env::var("FARCALL_LOSSY_SECONDS").ok().and_then(|text| text.parse().ok());
    let (Some(seconds), Some(ports)) = (seconds, hardware_ports()) else {
        return println!("skipped: FARCALL_LOSSY_SECONDS does not say for how long");
    };
    let until = Instant::now() + Duration::from_secs(seconds);
    let mut bench = Bench::new(ports);
    let mut pairs: Vec<_> = (0..PAIRS).map(|_| bench.pair()).collect();
    let mut failed = 0;
    while Instant::now() < until {
        for pair in &mut pairs {
            let mut is_alive = true;
            for i in 0..2 {
                bench.read(pair, i);
                pair.ends[i].drive();
                is_alive &= bench.take(pair, i);
            }
            if !is_alive {
                failed += 1;
                *pair = bench.pair();
            }
        }
        tokio::task::yield_now().await;
    }
    println!("{} READs were whole, {failed} queue pairs failed", bench.whole);
    let cut_off = &bench.cut_off;
    assert!(cut_off.is_empty(), "{} READs were cut off, after {cut_off:?}", cut_off.len());
}
