//! One address of the demo, from start to end.

use anyhow::{Context, Result, ensure};

use crate::network_counters::NetworkCounters;
use crate::pair::Pair;
use crate::row::Speeds;
use crate::workload::workload;

/// The amount of work.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// The lengths of values, in bytes.
    pub(crate) value_lens: Vec<usize>,
    /// The most rounds of a put and a range with one length.
    pub(crate) rounds_max: u64,
    /// The worth of its times and rates.
    pub(crate) speeds: Speeds,
}

/// Maximum sum of the lengths of one size of values, in bytes. It keeps a large one from taking
/// longer than many small ones.
const MOVED_BYTES_MAX: u64 = 128 << 20;

impl Plan {
    fn round_count(&self, value_len: usize) -> u64 {
        let affordable = MOVED_BYTES_MAX / (value_len.max(1) as u64);
        affordable.max(2).min(self.rounds_max)
    }
}

/// Serves and calls `address`, and prints a row for each length, and where the bytes went when
/// they went by RDMA.
///
/// # Errors
///
/// Returns an error if a call fails, a byte differs, or an `rdma://` address is not served by RDMA.
///
/// # Cancel safety
///
/// Cancelled, the server ends with the runtime.
pub(crate) async fn run(address: &str, plan: &Plan) -> Result<()> {
    let pair = Pair::start(address).await.with_context(|| address.to_owned())?;
    let transport = pair.info()?.transport;
    let (scheme, _) = address.split_once("://").context("an address without a scheme")?;
    ensure!(scheme != "rdma" || transport == "rdma", "{address} is served by {transport}");
    let before = NetworkCounters::read();
    let mut value_bytes = 0;
    for &value_len in &plan.value_lens {
        let round_count = plan.round_count(value_len);
        let row = workload(&pair, value_len, round_count).await;
        let row = row.with_context(|| address.to_owned())?;
        println!("{}", row.line(scheme, plan.speeds));
        value_bytes += 2 * round_count * value_len as u64;
    }
    if transport == "rdma" {
        println!("          {value_bytes} bytes of values; {}", NetworkCounters::read() - before);
    }
    pair.stop().await
}
