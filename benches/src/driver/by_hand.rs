//! One server or one client, started by a person.

use std::time::Duration;

use anyhow::{Result, ensure};
use clap::{Args, Subcommand};

use crate::subjects::{Farcall, FarcallOptions};
use crate::worker::{
    Fleet, Load, LoadOutcome, Operation, Span, Subject as _, allow_descriptors, block_on,
};

/// A process that a person starts.
#[derive(Debug, Subcommand)]
pub enum HandCommand {
    /// Serves until it is killed, or for the given time.
    Server {
        /// Address to listen on, for example auto://10.0.0.1:7000.
        address: String,
        /// Time to serve, in seconds.
        #[arg(long, default_value_t = 600)]
        seconds: u64,
        /// Runtime of the process.
        #[command(flatten)]
        runtime: Runtime,
    },
    /// Calls a server, and prints one line: transports, operation, size, calls in flight, calls,
    /// p50 and p99 in microseconds, calls a second, and MB/s of payload.
    Client(HandLoad),
}

/// The runtime of a process.
#[derive(Debug, Args)]
pub struct Runtime {
    /// Threads of the runtime; 0 runs everything on the main thread.
    #[arg(long, default_value_t = 0)]
    threads: usize,
    /// Print the state of lanes and paths, too: a server each second, a client at its end.
    #[arg(long)]
    state: bool,
    #[command(flatten)]
    farcall: FarcallOptions,
}

/// The load of a client.
#[derive(Debug, Args)]
pub struct HandLoad {
    /// The server to call.
    address: String,
    #[arg(long, value_enum, default_value_t = Operation::Echo)]
    operation: Operation,
    /// Bytes of payload.
    #[arg(long, default_value_t = 64)]
    size: usize,
    /// Calls in flight.
    #[arg(long, default_value_t = 1)]
    in_flight: usize,
    /// Connections that they are spread over.
    #[arg(long, default_value_t = 1)]
    connections: usize,
    /// Calls that are measured.
    #[arg(long, default_value_t = 10_000)]
    calls: u64,
    /// Time to measure instead, in milliseconds.
    #[arg(long, conflicts_with = "calls")]
    millis: Option<u64>,
    /// Calls before those, which are not.
    #[arg(long, default_value_t = 1_000)]
    warm_up: u64,
    #[command(flatten)]
    runtime: Runtime,
}

impl HandCommand {
    /// Does it.
    ///
    /// # Errors
    ///
    /// Returns an error if it cannot serve, connect or call.
    pub fn run(&self) -> Result<()> {
        allow_descriptors()?;
        match self {
            Self::Server { address, seconds, runtime } => block_on(runtime.threads, async {
                let subject = Farcall::new(&runtime.farcall);
                let address = subject.serve(address).await?;
                println!("listening on {address}");
                let end = tokio::time::sleep(Duration::from_secs(*seconds));
                match runtime.state {
                    false => end.await,
                    true => drop(tokio::time::timeout_at(end.deadline(), show(&subject)).await),
                }
                Ok(())
            }),
            Self::Client(load) => block_on(load.runtime.threads, client(load)),
        }
    }
}

/// Prints the state of a server each second.
async fn show(subject: &Farcall) {
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        println!("state: {}", subject.state(&[]));
    }
}

async fn client(hand: &HandLoad) -> Result<()> {
    ensure!(hand.calls > 0, "--calls must be at least 1");
    let subject = Farcall::new(&hand.runtime.farcall);
    let fleet = Fleet::connect(subject, &hand.address, hand.connections, None).await?;
    let load = Load::new(hand.operation, hand.size, Span::Calls(hand.warm_up));
    let load = load.with_in_flight(hand.in_flight);
    if hand.warm_up > 0 {
        fleet.run(&load).await?;
    }
    let span = hand.millis.map_or(Span::Calls(hand.calls), Span::Millis);
    let outcome = fleet.run(&Load { span, ..load }).await?;
    let counts = fleet.counts();
    let transports: Vec<&str> =
        counts.keys().filter_map(|name| name.strip_prefix("over ")).collect();
    let transport = if transports.is_empty() { "gone".to_owned() } else { transports.join("+") };
    print(&transport, &load, &outcome);
    for (name, count) in &counts {
        if let Some(reason) = name.strip_prefix("declined: ") {
            println!("not on RDMA, {count} connections: {reason}");
        }
    }
    if hand.runtime.state {
        println!("state: {}", fleet.state());
    }
    Ok(())
}

fn print(transport: &str, load: &Load, outcome: &LoadOutcome) {
    let rate = outcome.count as f64 / outcome.seconds;
    println!(
        "{transport} {:?} {} B, {} in flight: {} calls, p50 {:.1} us, p99 {:.1} us, {rate:.0} \
         calls/s, {:.1} MB/s, {:.2} us of CPU a call here",
        load.operation,
        load.size,
        load.in_flight,
        outcome.count,
        outcome.p50_us,
        outcome.p99_us,
        rate * load.size as f64 / 1e6,
        outcome.spent.cpu_us() as f64 / outcome.count as f64,
    );
}
