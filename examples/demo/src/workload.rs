//! The client's work with one size of values: puts, ranges and deletes, every byte checked.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use bytes::Bytes;
use farcall::Request;
use farcall_testkit::calls::{payload, same_bytes};
use hdrhistogram::Histogram;

use farcall_examples::prefix_end;
use farcall_examples::proto::etcdserverpb::kv_rpc::KvStub;
use farcall_examples::proto::etcdserverpb::{DeleteRangeRequest, PutRequest, RangeRequest};

use crate::pair::Pair;
use crate::path::path;
use crate::row::Row;

/// A call that takes longer has hung: 64 MiB at 1 MB/s take 64 s.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Two keys, so that a value is also replaced, and never more than two are in memory.
const KEYS: [&str; 2] = ["demo/one", "demo/two"];
const PREFIX: &str = "demo/";

/// Puts a pseudo-random value and reads it back, `round_count` times, and deletes what is left.
///
/// # Errors
///
/// Returns an error if a call fails, or a byte differs.
///
/// # Cancel safety
///
/// Cancelled, some keys may be left.
pub(crate) async fn workload(pair: &Pair, value_len: usize, round_count: u64) -> Result<Row> {
    let stub = KvStub::new(pair.channel()).with_timeout(TIMEOUT);
    let before = pair.stats()?;
    let mut latency = Histogram::new(3)?;
    let mut elapsed = Duration::ZERO;
    let mut time = |since: Instant| {
        let took = since.elapsed();
        elapsed += took;
        latency.record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX))
    };
    for (round, key) in (0..round_count).zip(KEYS.into_iter().cycle()) {
        let value = value(value_len, round);
        let put = PutRequest { key: key.into(), value: value.clone(), ..Default::default() };
        let began = Instant::now();
        stub.put(put).await.with_context(|| format!("putting {value_len} bytes"))?;
        time(began)?;
        let range = RangeRequest { key: key.into(), ..Default::default() };
        let began = Instant::now();
        let found = stub.range(range).await;
        time(began)?;
        let found = found.with_context(|| format!("reading {value_len} bytes"))?.into_inner();
        ensure!(found.count == 1 && found.kvs.len() == 1, "{key}: {} values", found.count);
        // The whole value, byte for byte.
        same_bytes(&found.kvs[0].value, &value)
            .map_err(|difference| anyhow!("{key}, round {round}: {difference}"))?;
    }
    delete(&stub, round_count).await?;
    let (after, info) = (pair.stats()?, pair.info()?);
    let counted = farcall::TransportStats {
        large_sent: after.large_sent - before.large_sent,
        large_received: after.large_received - before.large_received,
        ..after
    };
    Ok(Row {
        transport: info.transport,
        value_len,
        path: path(info.transport, &counted, round_count),
        call_count: 2 * round_count + 2,
        latency,
        elapsed,
        copied_bytes: after.copied_bytes - before.copied_bytes,
        fallback: info.fallback,
    })
}

async fn delete(stub: &KvStub, round_count: u64) -> Result<()> {
    let (key, range_end) = (Bytes::from_static(PREFIX.as_bytes()), prefix_end(PREFIX.as_bytes()));
    let request =
        DeleteRangeRequest { key: key.clone(), range_end: range_end.clone(), prev_kv: false };
    let deleted = stub.delete_range(Request::new(request)).await?.into_inner().deleted;
    let expected = round_count.min(KEYS.len() as u64);
    ensure!(deleted.unsigned_abs() == expected, "{deleted} keys deleted instead of {expected}");
    let left = RangeRequest { key, range_end, count_only: true, ..Default::default() };
    let left = stub.range(left).await?.into_inner().count;
    ensure!(left == 0, "{left} keys are left");
    Ok(())
}

/// The value of a round: the same in every run, different in every round.
fn value(len: usize, round: u64) -> Bytes {
    payload(round ^ (len as u64) << 20, len)
}
