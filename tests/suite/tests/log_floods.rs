//! Peers that make a server log: however many they are, the log has few lines, and their counts
//! are right. What is left to be said when a server goes is said then.

mod log;

use std::time::Duration;

use farcall::ServerBuilder;
use farcall::{ServeError, Server};
use farcall_suite::Failure;
use farcall_suite::raw_peer::{RawPeer, hello_bytes};
use log::Log;
use rpc_transport_tcp::TcpListener;
use tokio::task::JoinHandle;

/// Hostile connections, one after the other.
const CONNECTIONS: u64 = 10_000;

/// The lines that a kind may have in a flood of seconds: ten at once, one every ten seconds, and
/// the count.
const LINES_MAX: usize = 20;

/// Long enough for a limit to have room again.
const LATER: Duration = Duration::from_secs(100);

/// A server, and its address.
async fn serve(
    rules: impl FnOnce(ServerBuilder) -> ServerBuilder,
) -> Result<(JoinHandle<Result<(), ServeError>>, String), Failure> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?.to_string();
    let server = rules(Server::builder()).build();
    Ok((tokio::spawn(server.serve_incoming(listener)), address))
}

/// Ends a server with all its connections.
async fn stop(server: JoinHandle<Result<(), ServeError>>) {
    server.abort();
    assert!(server.await.is_err_and(|error| error.is_cancelled()));
}

/// The values of a field, where lines have it.
fn values(lines: &[String], field: &str) -> Vec<u64> {
    let value = |line: &String| {
        let (_, rest) = line.split_once(&format!(" {field}="))?;
        rest.split(' ').next()?.parse().ok()
    };
    lines.iter().filter_map(value).collect()
}

/// Counts the events that lines report: themselves, and those suppressed before them.
fn events(lines: &[String]) -> u64 {
    let themselves = lines
        .iter()
        .filter(|line| {
            !line.contains(
                "suppressed repeated \
                                                                lines",
            )
        })
        .count();
    values(lines, "left_out").iter().sum::<u64>() + themselves as u64
}

/// Each breaks the protocol before it is known.
#[tokio::test]
async fn handshakes_that_fail_have_few_lines_and_a_count() -> Result<(), Failure> {
    let (log, _capturing) = Log::capture();
    let (server, address) = serve(|rules| rules).await?;
    for _ in 0..CONNECTIONS {
        let mut peer = RawPeer::connect(&address).await?;
        peer.send(b"SSH-2.0-OpenSSH_9.2\r\n").await?;
        peer.closed().await;
    }
    stop(server).await;
    let lines = log.take_lines();
    assert!(lines.len() <= LINES_MAX, "{} lines, and {LINES_MAX} at most", lines.len());
    assert_eq!(events(&lines), CONNECTIONS, "{lines:#?}");
    Ok(())
}

/// Each is beyond what its address may have.
#[tokio::test]
async fn refused_connections_have_few_lines_and_a_count() -> Result<(), Failure> {
    let (log, _capturing) = Log::capture();
    let (server, address) = serve(|rules| rules.max_connections_per_peer(1)).await?;
    let mut only = RawPeer::connect(&address).await?;
    only.greet().await?;
    for _ in 0..CONNECTIONS {
        RawPeer::connect(&address).await?.closed().await;
    }
    drop(only);
    // With what is taken next, the limit has room again.
    tokio::time::pause();
    tokio::time::sleep(LATER).await;
    let mut next = RawPeer::connect(&address).await?;
    next.greet().await?;
    stop(server).await;
    let lines = log.take_lines();
    let about: Vec<String> =
        lines.into_iter().filter(|line| line.contains("the limit on connections")).collect();
    assert!(about.len() <= LINES_MAX, "{} lines, and {LINES_MAX} at most", about.len());
    assert_eq!(values(&about, "refused_count").last(), Some(&CONNECTIONS), "{about:#?}");
    Ok(())
}

/// Each says a good Hello, and then what no client may say.
#[tokio::test]
async fn violations_have_few_lines_and_a_count() -> Result<(), Failure> {
    let (log, _capturing) = Log::capture();
    let (server, address) = serve(|rules| rules).await?;
    const CONNECTIONS: u64 = 500;
    for _ in 0..CONNECTIONS {
        let mut peer = RawPeer::connect(&address).await?;
        peer.send(&[hello_bytes(Vec::new()), vec![255; 64]].concat()).await?;
        peer.closed().await;
    }
    stop(server).await;
    let lines = log.take_lines();
    assert!(lines.len() <= LINES_MAX, "{} lines, and {LINES_MAX} at most", lines.len());
    assert_eq!(events(&lines), CONNECTIONS, "{lines:#?}");
    Ok(())
}
