//! The accept loop: its errors, its limits, and the connections that it serves.

use std::collections::VecDeque;

use futures::future::BoxFuture;
use tokio::sync::Notify;

use super::*;
use crate::Server;
use crate::limits::log::captured::CapturedLog;
use crate::server::ServerParts;

fn server() -> Server {
    ServerParts::default().build(ServerSettings::default())
}

/// Fails as it is begun, and then has no connection.
#[derive(Debug)]
struct Failing {
    errors: VecDeque<io::Error>,
    is_through: Arc<Notify>,
}

impl Listen for Failing {
    fn accept(&mut self) -> BoxFuture<'_, io::Result<Option<Box<dyn Bootstrap>>>> {
        Box::pin(async {
            match self.errors.pop_front() {
                Some(error) => Err(error),
                None => {
                    self.is_through.notify_one();
                    std::future::pending().await
                }
            }
        })
    }
}

/// A listener that has ended.
#[derive(Debug)]
struct Ended;

impl Listen for Ended {
    fn accept(&mut self) -> BoxFuture<'_, io::Result<Option<Box<dyn Bootstrap>>>> {
        Box::pin(std::future::ready(Ok(None)))
    }
}

#[tokio::test]
async fn a_server_without_connections_ends_with_its_listener() {
    server().serve(Ended).await.unwrap();
}

/// A program that tells its watchers, and gives them time, loses no client meanwhile.
#[tokio::test]
async fn a_server_accepts_until_what_comes_before_its_drain_is_done() {
    let (begun, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (tell, wait) = (Arc::clone(&begun), Arc::clone(&go_on));
    let server = ServerParts::default()
        .on_drain(async move { tell.notify_one() })
        .on_drain(async move { wait.notified().await })
        .build(ServerSettings::default());
    let is_through = Arc::new(Notify::new());
    let listener = Failing { errors: VecDeque::new(), is_through: Arc::clone(&is_through) };
    let serving = tokio::spawn({
        let server = server.clone();
        async move { server.serve_until(listener, std::future::ready(())).await }
    });
    begun.notified().await;
    is_through.notified().await;
    assert!(!serving.is_finished());
    go_on.notify_one();
    serving.await.unwrap().unwrap();
    // A second listener finds it done.
    let listener = Failing { errors: VecDeque::new(), is_through };
    server.serve_until(listener, std::future::ready(())).await.unwrap();
}

/// Returns the time that a server takes for accepts that fail so.
async fn time_for(errors: impl IntoIterator<Item: Into<io::Error>>) -> Duration {
    let is_through = Arc::new(Notify::new());
    let errors = errors.into_iter().map(Into::into).collect();
    let listener = Failing { errors, is_through: Arc::clone(&is_through) };
    let (server, start) = (server(), Instant::now());
    tokio::select! {
        result = server.serve(listener) => panic!("the server has ended: {result:?}"),
        () = is_through.notified() => start.elapsed(),
    }
}

#[tokio::test(start_paused = true)]
async fn aborted_connections_delay_no_accept() {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, NotConnected, OutOfMemory};
    let of_one = [NotConnected, ConnectionAborted, ConnectionReset];
    assert_eq!(time_for(of_one.into_iter().cycle().take(1000)).await, Duration::ZERO);
    assert!(time_for([OutOfMemory, OutOfMemory]).await >= 2 * ACCEPT_PAUSE);
}

/// Out of descriptors for minutes: a line for each accept would be twenty a second.
#[tokio::test(start_paused = true)]
async fn accepts_that_fail_have_few_lines_and_a_count() {
    const EMFILE: i32 = 24;
    const ACCEPTS: u32 = 10_000;
    let log = CapturedLog::start();
    let took = time_for((0..ACCEPTS).map(|_| io::Error::from_raw_os_error(EMFILE))).await;
    assert!(took >= ACCEPTS * ACCEPT_PAUSE, "it does not spin: {took:?}");
    let lines = log.take_lines();
    let left_out = |line: &String| {
        let (_, count) = line.split_once("left_out=")?;
        count.parse::<u64>().ok()
    };
    let left_out = lines.iter().filter_map(left_out).sum::<u64>();
    assert!(lines[0].contains("cannot accept a connection"), "{lines:#?}");
    // The last line has the count alone.
    assert_eq!(left_out + lines.len() as u64 - 1, u64::from(ACCEPTS), "{lines:#?}");
    assert!(lines.len() <= 65, "six a minute: {lines:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_shuts_down_waits_for_no_silent_socket() {
    let (drain, start) = (CancellationToken::new(), Instant::now());
    let silent = std::future::pending::<()>();
    let (ended, ()) = tokio::join!(until_drained(silent, &drain), async { drain.cancel() });
    assert_eq!((ended, start.elapsed()), (None, DRAIN_HANDSHAKE_TIMEOUT));
    let slow = tokio::time::sleep(DRAIN_HANDSHAKE_TIMEOUT / 2);
    assert_eq!(until_drained(slow, &drain).await, Some(()), "it is told to go elsewhere");
}
