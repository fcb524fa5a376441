//! Metrics of calls, connections, memory and RDMA, for any exporter. Feature `metrics`.
//!
//! farcall writes to the facade [`metrics`](https://docs.rs/metrics), and the program installs the
//! recorder of its exporter. [`enable`] then describes every metric and begins to count calls.
//! Their names are those of gRPC's proposal A66. An [`Observer`] shows what farcall counts anyway:
//! connections by path, memory, lanes of RDMA devices, certificates. The page
//! `docs/book/src/metrics.md` of the repository lists all of them.
//!
//! # Examples
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use farcall::Server;
//! use farcall::metrics::Observer;
//!
//! # async fn example(service: impl farcall::Service) -> Result<(), Box<dyn std::error::Error>> {
//! // After the recorder of an exporter was installed.
//! farcall::metrics::enable();
//! let server = Server::builder().add_service(service).build();
//! let observer = Observer::new().server("orders", &server);
//! tokio::spawn(observer.run(Duration::from_secs(5)));
//! server.bind("auto://0.0.0.0:7000").await?.serve().await?;
//! # Ok(())
//! # }
//! ```

#[cfg(all(target_os = "linux", any(feature = "rdma", feature = "sim")))]
mod devices;
mod list;
mod observer;
mod samples;

pub use observer::Observer;
pub use rpc_core::metrics::{Metric, MetricKind, MetricUnit};

#[cfg(feature = "settings")]
pub(crate) use self::list::reloaded;

/// Describes every metric to the recorder, and counts calls from now on. Call it once, after the
/// recorder was installed and before the first call: handles that are made without a recorder
/// count nothing.
///
/// The handles are kept. An exporter that removes idle series loses them for good.
pub fn enable() {
    rpc_core::metrics::enable(all());
}

/// Returns the declaration of every metric, in the order of the page that lists them.
///
/// # Examples
///
/// A bound of each bucket for an exporter to Prometheus, in place of quantiles:
///
/// ```
/// for metric in farcall::metrics::all() {
///     if let Some(buckets) = metric.buckets() {
///         // builder.set_buckets_for_metric(Matcher::Full(metric.name.to_owned()), buckets)
///         println!("{}: {} buckets", metric.name, buckets.len());
///     }
/// }
/// ```
#[must_use]
pub fn all() -> Vec<Metric> {
    list::all()
}
