//! Export of traces by OTLP. Feature `otel`.
//!
//! [`TraceLayer`](crate::layer::TraceLayer) gives calls their spans, and [`Otlp`] sends spans to a
//! collector: those of calls, and those of the program. With its layer in the subscriber, a call
//! carries the ids of its span, so that the spans of several processes make one trace.
//!
//! # Examples
//!
//! ```no_run
//! use farcall::layer::TraceLayer;
//! use farcall::otel::Otlp;
//! use farcall::{Channel, Server};
//! use tracing_subscriber::layer::SubscriberExt;
//! use tracing_subscriber::util::SubscriberInitExt;
//!
//! # async fn example(service: impl farcall::Service) -> Result<(), Box<dyn std::error::Error>> {
//! let otlp = Otlp::new("orders")?;
//! tracing_subscriber::registry().with(otlp.layer()).init();
//! // One trace in a hundred, and every trace that a caller has sampled.
//! let traces = TraceLayer::sampled(0.01);
//! let stock = Channel::connect("auto://10.0.0.2:7000").await?.layer(traces);
//! # drop(stock);
//! let server = Server::builder().add_service(service).layer(traces).build();
//! server.bind("auto://0.0.0.0:7000").await?.serve().await?;
//! otlp.shutdown().await?;
//! # Ok(())
//! # }
//! ```

use std::borrow::Cow;

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use thiserror::Error;
use tracing::Subscriber;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::registry::LookupSpan;

/// An exporter of spans to a collector, by OTLP over gRPC.
///
/// Spans are sent in batches, by a thread of its own: 512 at once, after 5 seconds at the latest.
/// At most 2,048 wait; further ones are dropped. The variables of OpenTelemetry's SDK change that
/// (`OTEL_BSP_*`), and name the sampler (`OTEL_TRACES_SAMPLER`), further attributes
/// (`OTEL_RESOURCE_ATTRIBUTES`) and headers (`OTEL_EXPORTER_OTLP_HEADERS`).
///
/// Call [`shutdown`](Self::shutdown) before the runtime ends, or the spans that wait are lost.
#[derive(Debug, Clone)]
pub struct Otlp {
    provider: SdkTracerProvider,
}

/// The name of the spans' instrumentation scope.
const SCOPE: &str = "farcall";

impl Otlp {
    /// Exports to the collector that `OTEL_EXPORTER_OTLP_ENDPOINT` names, by default
    /// `http://localhost:4317`. `service` is the `service.name` of the spans, unless
    /// `OTEL_SERVICE_NAME` is set.
    ///
    /// It connects when there is something to send, in the runtime where this is called.
    ///
    /// # Errors
    ///
    /// [`OtlpError`]: the endpoint is not a URL, or a variable has a value that is not valid.
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime.
    pub fn new(service: impl Into<Cow<'static, str>>) -> Result<Self, OtlpError> {
        Self::build(service.into(), SpanExporter::builder().with_tonic().build())
    }

    /// Exports to the collector at `endpoint`, such as `http://10.0.0.9:4317`.
    ///
    /// # Errors
    ///
    /// [`OtlpError`]: the endpoint is not a URL, or a variable has a value that is not valid.
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime.
    pub fn to(
        service: impl Into<Cow<'static, str>>,
        endpoint: impl Into<String>,
    ) -> Result<Self, OtlpError> {
        let exporter = SpanExporter::builder().with_tonic().with_endpoint(endpoint).build();
        Self::build(service.into(), exporter)
    }

    fn build(
        service: Cow<'static, str>,
        exporter: Result<SpanExporter, opentelemetry_otlp::ExporterBuildError>,
    ) -> Result<Self, OtlpError> {
        let exporter = exporter.map_err(|error| OtlpError(Box::new(error)))?;
        let named = std::env::var_os("OTEL_SERVICE_NAME").is_some_and(|name| !name.is_empty());
        let resource = Resource::builder();
        let resource = if named { resource } else { resource.with_service_name(service) };
        let provider = SdkTracerProvider::builder();
        let provider = provider.with_resource(resource.build()).with_batch_exporter(exporter);
        Ok(Self { provider: provider.build() })
    }

    /// Returns the layer for a subscriber of `tracing-subscriber`.
    ///
    /// It exports spans of INFO and above that the subscriber's filters let pass. Below are those
    /// of HTTP/2, which each export would cause anew.
    pub fn layer<S>(&self) -> impl Layer<S> + Send + Sync + 'static
    where
        S: Subscriber + for<'span> LookupSpan<'span> + Send + Sync,
    {
        let layer = tracing_opentelemetry::layer().with_tracer(self.provider.tracer(SCOPE));
        layer.with_filter(LevelFilter::INFO)
    }

    /// Sends the spans that wait, within 5 seconds, and exports no others.
    ///
    /// # Errors
    ///
    /// [`OtlpError`]: the collector has not taken all of them.
    ///
    /// # Cancel safety
    ///
    /// A dropped future leaves the spans to a thread, which goes on to send them.
    pub async fn shutdown(self) -> Result<(), OtlpError> {
        let shutdown = tokio::task::spawn_blocking(move || {
            // First, because the SDK's shutdown discards the result of the export that it makes.
            let flushed = self.provider.force_flush();
            self.provider.shutdown().and(flushed)
        });
        match shutdown.await {
            Ok(ended) => ended.map_err(|error| OtlpError(Box::new(error))),
            Err(error) => Err(OtlpError(Box::new(error))),
        }
    }
}

/// A failure to export traces.
#[derive(Error)]
#[error("traces cannot be exported by OTLP: {0}")]
pub struct OtlpError(#[source] Box<dyn std::error::Error + Send + Sync>);

rpc_core::readable_debug!(OtlpError);
