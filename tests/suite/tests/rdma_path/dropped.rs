//! Calls that are dropped while a device reads their payload, beside calls that are not.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use farcall::Rdma;
use farcall_suite::Failure;
use farcall_suite::OneServer as _;
use farcall_suite::proto::probe_rpc::ProbeStub;

use crate::rig::{
    Rig, Serving, connect, devices, download, echo, is_idle, lane, slow, until, upload, within,
};

const ROUNDS: usize = 200;
const SEED: u64 = 7;

/// Longer than everything that the neighbours have on their way together.
const LEN_MIN: usize = 256 << 10;
const LEN_MAX: usize = 2 << 20;

/// The neighbours' longest payload, which takes a READ too.
const NEIGHBOUR_LEN_MAX: usize = 16 << 10;
const NEIGHBOURS: u64 = 3;

/// Turns of the runtime, at most, after which a call is dropped.
const TURNS_MAX: usize = 400;

/// At least so many calls have to be hit while their payload is read. Half of them wait for that
/// moment, and only those that end in their last turns miss it.
const HIT_MIN: usize = ROUNDS / 4;

pub(crate) fn two_hundred_calls(rig: &Rig) -> Result<(), Failure> {
    rig.run(async {
        let server = rig.serve(slow()).await?;
        let client = devices(slow());
        let channel = connect(&server.authority, &client).await?;
        let stub = ProbeStub::new(channel.clone());
        let addresses = channel.info().expect("it is connected").addresses;
        let stop = Arc::new(AtomicBool::new(false));
        let neighbours: Vec<_> = (0..NEIGHBOURS)
            .map(|number| tokio::spawn(neighbour(stub.clone(), number, Arc::clone(&stop))))
            .collect();
        let mut dice = fastrand::Rng::with_seed(SEED);
        let mut hits = 0;
        for round in 0..ROUNDS {
            let hit = drop_one(&stub, &server, &client, round, &mut dice);
            hits += usize::from(within("a round", hit).await?);
        }
        stop.store(true, Ordering::Relaxed);
        let mut calls = 0;
        for neighbour in neighbours {
            calls += within("the neighbour's last call", neighbour).await??;
        }
        println!("{hits} of {ROUNDS} calls were dropped while read, beside {calls} that were not");
        assert!(calls >= NEIGHBOURS, "the neighbours came through");
        assert!(hits >= HIT_MIN, "only {hits} of {ROUNDS} calls were hit (seed {SEED})");
        let settled = || is_idle(&lane(&client), 1) && is_idle(&server.lane(), 1);
        until("memory that is back", settled).await;
        check_survival(&server, &stub, calls).await?;
        let info = channel.info().expect("it is connected");
        assert_eq!((info.addresses, info.transport), (addresses, "rdma"), "the same connection");
        let received = info.stats.small_received + info.stats.large_received;
        assert!(received >= calls, "its counters went on: {:?}", info.stats);
        Ok(())
    })
}

/// The connection is whole: it has carried everything, and carries more.
async fn check_survival(server: &Serving, stub: &ProbeStub, calls: u64) -> Result<(), Failure> {
    let stats = server.connection().stats;
    assert!(stats.small_received + stats.large_received >= calls, "{stats:?}");
    let payload = within("a download", download(stub, 99, 4 << 20)).await?;
    assert!(payload == farcall_suite::payload(99, 4 << 20), "the payload has changed");
    within("an upload", echo(stub, 98, 4 << 20)).await
}

/// Calls until it is stopped, and checks every byte; gives the number of calls.
async fn neighbour(stub: ProbeStub, number: u64, stop: Arc<AtomicBool>) -> Result<u64, Failure> {
    let mut dice = fastrand::Rng::with_seed(SEED + 1 + number);
    let mut calls = 0;
    while !stop.load(Ordering::Relaxed) {
        echo(&stub, dice.u64(..), dice.usize(1..=NEIGHBOUR_LEN_MAX)).await?;
        calls += 1;
    }
    Ok(calls)
}

/// Starts a call and drops it; true when a device was reading its payload then.
async fn drop_one(
    stub: &ProbeStub,
    server: &Serving,
    client: &Rdma,
    round: usize,
    dice: &mut fastrand::Rng,
) -> Result<bool, Failure> {
    let (is_download, waits) = (round.is_multiple_of(2), round % 4 < 2);
    let (len, turns) = (dice.usize(LEN_MIN..LEN_MAX), dice.usize(..TURNS_MAX));
    let is_read = || {
        let lane = if is_download { lane(client) } else { server.lane() };
        lane.sink_bytes_in_use >= len as u64
    };
    let call = async {
        match is_download {
            true => download(stub, round as u64, len).await.map(drop),
            false => upload(stub, len).await,
        }
    };
    let was_read = Cell::new(false);
    let moment = async {
        if waits {
            until("a READ of the payload", is_read).await;
        }
        for _ in 0..turns {
            tokio::task::yield_now().await;
        }
        was_read.set(is_read());
    };
    tokio::select! {
        biased;
        result = call => result.map(|()| false),
        () = moment => Ok(was_read.get()),
    }
}
