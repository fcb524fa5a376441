//! A server whose metrics Prometheus scrapes: `metrics auto://0.0.0.0:7000 127.0.0.1:9464`.
#![forbid(unsafe_code)]

use std::time::Duration;

use farcall::metrics::Observer;
use farcall::{Request, Response, Server, Status};
use farcall_examples::hello::greeter_rpc::GreeterService;
use farcall_examples::hello::greeter_server::Greeter;
use farcall_examples::hello::{HelloReply, HelloRequest};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// Interval at which the exporter sorts its values into buckets. It keeps each of them until then.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);

/// Longest request of a scraper, in bytes, and the time that it may take.
const REQUEST_LEN_MAX: u64 = 16 << 10;
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

struct MyGreeter;

#[farcall::async_trait]
impl Greeter for MyGreeter {
    async fn say_hello(
        &self,
        request: Request<HelloRequest>,
    ) -> Result<Response<HelloReply>, Status> {
        let message = format!("Hello, {}!", request.into_inner().name);
        Ok(Response::new(HelloReply { message }))
    }
}

/// Installs the recorder of an exporter, with the buckets of gRPC's proposal A66.
fn install() -> Result<PrometheusHandle, BuildError> {
    let mut builder = PrometheusBuilder::new().with_recommended_naming(true);
    for metric in farcall::metrics::all() {
        if let Some(buckets) = metric.buckets() {
            let name = Matcher::Full(metric.name.to_owned());
            builder = builder.set_buckets_for_metric(name, buckets)?;
        }
    }
    builder.install_recorder()
}

/// Answers one scrape. What farcall counts anyway is read just before.
async fn answer(stream: TcpStream, exporter: &PrometheusHandle, observer: &mut Observer) {
    let mut stream = BufReader::new(stream.take(REQUEST_LEN_MAX));
    let read = async {
        let mut line = String::new();
        // The headers end with an empty line.
        while stream.read_line(&mut line).await.is_ok_and(|len| len > 2) {
            line.clear();
        }
    };
    if tokio::time::timeout(REQUEST_TIMEOUT, read).await.is_err() {
        return;
    }
    observer.observe();
    let text = exporter.render();
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/plain; version=0.0.4\r\ncontent-length: {}\r\n\
         connection: close\r\n\r\n",
        text.len()
    );
    let mut stream = stream.into_inner().into_inner();
    // A scraper that has gone comes again.
    let _ = stream.write_all((head + &text).as_bytes()).await;
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or("auto://127.0.0.1:7000".to_owned());
    let scraped = arguments.next().unwrap_or("127.0.0.1:9464".to_owned());

    let exporter = install()?;
    farcall::metrics::enable();
    let server = Server::builder().add_service(GreeterService::new(MyGreeter)).build();
    let mut observer = Observer::new().server("greeter", &server);

    let (listener, pages) = (server.bind(address).await?, TcpListener::bind(scraped).await?);
    println!("serving {}", listener.local_address());
    println!("metrics at http://{}/metrics", pages.local_addr()?);
    let scraping = tokio::spawn(async move {
        let mut upkeep = tokio::time::interval(UPKEEP_INTERVAL);
        loop {
            tokio::select! {
                _ = upkeep.tick() => exporter.run_upkeep(),
                // One at a time: a scraper that says nothing holds up the next one alone.
                Ok((stream, _)) = pages.accept() => answer(stream, &exporter, &mut observer).await,
            }
        }
    });
    let served = listener.serve().await;
    scraping.abort();
    Ok(served?)
}
