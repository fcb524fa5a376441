//! The accept loop, and the life of each connection.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::connect::{Accepted, Bootstrap, Fallback, HandshakeError, Opening, accept, identify};
use crate::limited_log;
use crate::limits::log::LogLimit;
use crate::limits::memory::MemoryShare;
use crate::limits::peer_key::PeerKey;
use crate::limits::quota::Charge;
use crate::server::peer_limit::CONNECTIONS_FLOOR;
use crate::server::serve::connections::Registered;
use crate::server::serve::gateway::gateway;
use crate::server::serve::life;
use crate::server::serve::relief::relieve;
use crate::server::serve::rules::Rules;
use crate::server::serve::shared::Shared;
use crate::server::serve::slots::{Slot, Slots};
use crate::server::{Listen, Offers, ServerConnection, ServerSession, ServerSettings, ServerSetup};
use crate::transport::Addresses;

/// The pause after an accept that failed, for example for want of descriptors: long enough not
/// to spin, short enough not to be noticed once descriptors are free again.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How long a handshake may go on when its server shuts down: some round trips of a long way. A
/// socket that says nothing would keep the server for as long as `handshake_timeout`.
const DRAIN_HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(1);

/// Logs that a client that asked for RDMA has none. Where one side has no device at all, that is no
/// fault, and said once a process.
fn log_without_path(log: &LogLimit, addresses: &Addresses, fallback: &Fallback) {
    static IS_TOLD: AtomicBool = AtomicBool::new(false);
    let Fallback { reason, .. } = fallback;
    if !fallback.is_without_device {
        limited_log!(
            target: "farcall::path",
            log, WARN, "a client is connected over TCP, without RDMA", %addresses, %reason
        );
    } else if !IS_TOLD.swap(true, Ordering::Relaxed) {
        limited_log!(
            target: "farcall::path",
            log, INFO, "a client is connected over TCP, without RDMA", %addresses, %reason
        );
    }
}

/// Accepts until `shutdown`, and until what comes before a drain is done; then drains. Makes room
/// in the server's memory meanwhile.
pub(in crate::server) async fn serve(
    shared: Arc<Shared>,
    listener: impl Listen,
    shutdown: impl Future<Output = ()> + Send,
) -> io::Result<()> {
    // No task of its own: it would keep the server alive beyond this future.
    let relieved = Arc::clone(&shared);
    tokio::select! {
        result = accept_until(shared, listener, shutdown) => result,
        never = relieve(&relieved) => match never {},
    }
}

async fn begin_drain(shared: &Shared, draining: &CancellationToken) {
    let calls = shared.calls_limit.total();
    limited_log!(target: "farcall::server", shared.log, INFO, "a drain begins", calls);
    draining.cancel();
    shared.before_drain.run().await;
}

async fn accept_until(
    shared: Arc<Shared>,
    mut listener: impl Listen,
    shutdown: impl Future<Output = ()> + Send,
) -> io::Result<()> {
    let (offers, mut settings_changed) = (listener.offers(), shared.settings.subscribe());
    let draining = CancellationToken::new();
    let mut rules = rules_of(&shared, &offers, &draining);
    let tasks = TaskTracker::new();
    // Dropped with this future, so that cancelling it closes every connection.
    let stop = CancellationToken::new();
    let abort = stop.clone().drop_guard();
    let drain = CancellationToken::new();
    let (slots, mut limit_changed) = (Arc::default(), shared.settings.subscribe());
    let mut shutdown = pin!(async {
        shutdown.await;
        begin_drain(&shared, &draining).await;
    });
    let result = loop {
        // A listener that never has to wait, and fails, or has refused clients only, would keep
        // the thread to itself.
        tokio::task::consume_budget().await;
        let accepted = tokio::select! {
            // A server that is shut down accepts none that waits already.
            biased;
            () = &mut shutdown => break Ok(()),
            accepted = next(&shared, &mut listener, &slots, &mut limit_changed) => accepted,
        };
        match accepted {
            Ok(Some((bootstrap, slot))) => {
                // Its peer is known only now, or behind a proxy's header. Dropped, the connection
                // is closed.
                let permit = admit(&shared, &*bootstrap);
                if permit.is_none() && !bootstrap.is_proxied() {
                    continue;
                }
                // The server, which this task shares, has the sender.
                if settings_changed.has_changed().unwrap_or(false) {
                    settings_changed.mark_unchanged();
                    rules = rules_of(&shared, &offers, &draining);
                }
                let (shared, rules) = (Arc::clone(&shared), Arc::clone(&rules));
                let connection = live(shared, rules, bootstrap, permit, drain.clone());
                let stop = stop.clone();
                tasks.spawn(async move {
                    tokio::select! {
                        () = stop.cancelled() => {}
                        () = connection => {}
                    }
                    drop(slot);
                });
            }
            Ok(None) => {
                // A listener may have one stream only, which is served for as long as it lasts.
                tasks.close();
                tokio::select! {
                    () = &mut shutdown => {}
                    () = tasks.wait() => {}
                }
                break Ok(());
            }
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => break Err(error),
            // The connection ended in the backlog. Any client can cause that, so that it neither
            // delays the next accept nor writes a line into the log.
            Err(error) if is_of_one_connection(&error) => {
                tracing::debug!(
                    target: "farcall::server", %error, "a connection ended before it was accepted"
                );
            }
            Err(error) => {
                limited_log!(
                    target: "farcall::server",
                    shared.log, WARN, "cannot accept a connection", %error
                );
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    };
    drop(listener);
    drain.cancel();
    tasks.close();
    tasks.wait().await;
    drop(abort);
    result
}

/// The rules of this moment, for connections that come from now on.
fn rules_of(shared: &Shared, offers: &Offers, draining: &CancellationToken) -> Arc<Rules> {
    let draining = draining.clone();
    Arc::new(Rules { draining, ..Rules::new(shared, offers) })
}

/// Whether an accept failed for a reason that is gone with the connection: also errors of the
/// network that were pending on it, which Linux reports to `accept`.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{
        ConnectionAborted, ConnectionReset, HostUnreachable, NetworkDown, NetworkUnreachable,
        NotConnected,
    };
    matches!(
        error.kind(),
        ConnectionAborted
            | ConnectionReset
            | HostUnreachable
            | NetworkDown
            | NetworkUnreachable
            | NotConnected
    )
}

async fn next(
    shared: &Shared,
    listener: &mut impl Listen,
    slots: &Arc<Slots>,
    limit_changed: &mut watch::Receiver<Arc<ServerSettings>>,
) -> io::Result<Option<(Box<dyn Bootstrap>, Slot)>> {
    let take = |changed: &mut watch::Receiver<Arc<ServerSettings>>| {
        slots.try_take(changed.borrow_and_update().max_connections)
    };
    let mut slot = take(limit_changed);
    if slot.is_none() {
        shared.connections_limit.limit.refused(None);
    }
    // Past the limit, clients wait in the operating system's backlog.
    let slot = loop {
        if let Some(slot) = slot {
            break slot;
        }
        tokio::select! {
            // Neither wakeup is lost: `freed` keeps a notification, and `take` has marked the limit
            // that it used as seen. `changed` cannot fail and spin, since `shared` has the sender.
            () = slots.freed() => {}
            _ = limit_changed.changed() => {}
        }
        slot = take(limit_changed);
    };
    Ok(listener.accept().await?.map(|bootstrap| (bootstrap, slot)))
}

/// A connection's part of what its client's address may have.
type Permit = Charge<PeerKey>;

/// Takes the permit of a connection. None where the peer has as many connections as it may, and
/// while only the proxy in front of it is known.
fn admit(shared: &Shared, bootstrap: &dyn Bootstrap) -> Option<Permit> {
    if bootstrap.is_proxied() {
        return None;
    }
    shared.connections_limit.share(&bootstrap.addresses(), CONNECTIONS_FLOOR).try_take(1).ok()
}

/// One connection, from its handshake to its end.
async fn live(
    shared: Arc<Shared>,
    rules: Arc<Rules>,
    bootstrap: Box<dyn Bootstrap>,
    permit: Option<Permit>,
    drain: CancellationToken,
) {
    // In memory of its own, which goes with it: an idle connection holds only what follows.
    let joined = open(&shared, &rules, bootstrap, permit);
    let handshake = Box::pin(until_drained(joined, &drain));
    let Some(Some((connection, memory, _permit))) = handshake.await else { return };
    let registered = Registered::start(&shared.connections, connection, memory);
    life::live(&*registered.connection, &rules.life, &shared.log, &drain).await;
}

/// Runs all that comes before a connection under one bound of time: the header of its proxy, which
/// tells the holder of its permit and its memory, and the handshake.
async fn open(
    shared: &Shared,
    rules: &Rules,
    mut bootstrap: Box<dyn Bootstrap>,
    permit: Option<Permit>,
) -> Option<(Arc<dyn ServerConnection>, MemoryShare, Permit)> {
    let deadline = Instant::now() + rules.handshake_timeout;
    let permit = match permit {
        Some(permit) => permit,
        None => {
            // Until the header is read, its memory is the proxy's.
            let addresses = bootstrap.addresses();
            let memory = shared.memory.connection(&addresses);
            let identified = timeout_at(deadline, identify(&mut *bootstrap, &memory)).await;
            let Ok(Ok(())) = identified else {
                log_refusal(shared, rules, &addresses, identified.ok().and_then(Result::err));
                return None;
            };
            admit(shared, &*bootstrap)?
        }
    };
    let memory = shared.memory.connection(&bootstrap.addresses());
    let connection = join(shared, rules, bootstrap, memory.clone(), deadline).await?;
    Some((connection, memory, permit))
}

/// Runs the handshake. During shutdown it gets `DRAIN_HANDSHAKE_TIMEOUT` to finish, so that the
/// client can still receive GOAWAY. `None` when it did not.
async fn until_drained<T>(
    handshake: impl Future<Output = T>,
    drain: &CancellationToken,
) -> Option<T> {
    let late = async {
        drain.cancelled().await;
        tokio::time::sleep(DRAIN_HANDSHAKE_TIMEOUT).await;
    };
    tokio::select! {
        // A handshake that is done counts, even if its time is over in the same poll.
        biased;
        joined = handshake => Some(joined),
        () = late => None,
    }
}

/// Makes a connection of a socket; none when its peer does not do its part.
async fn join(
    shared: &Shared,
    rules: &Rules,
    bootstrap: Box<dyn Bootstrap>,
    memory: MemoryShare,
    deadline: Instant,
) -> Option<Arc<dyn ServerConnection>> {
    let addresses = bootstrap.addresses();
    let handshake = accept(bootstrap, &rules.handshake, &memory);
    let accepted = match timeout_at(deadline, handshake).await {
        Ok(Ok(Opening::Farcall(accepted))) => *accepted,
        Ok(Ok(Opening::Other { protocol, stream })) => {
            return Some(gateway(shared, rules, &*protocol, stream, memory));
        }
        failed => {
            log_refusal(shared, rules, &addresses, failed.ok().and_then(Result::err));
            return None;
        }
    };
    let Accepted { transport, addresses, hello, fallback, is_upgraded, compression } = accepted;
    // A client that offers nothing logs its reason itself.
    let reportable = fallback.as_ref().filter(|_| hello.fallback().is_none());
    if let Some(fallback) = reportable {
        log_without_path(&shared.log, &addresses, fallback);
    }
    let limits = rules.handshake.limits;
    // Any address may have the calls of one connection, because a client keeps to what the server
    // told it in the handshake, and expects no refusal then.
    let calls = shared.calls_limit.share(&addresses, limits.max_calls.into());
    let setup = ServerSetup {
        limits,
        peer_limits: hello.limits(),
        compression,
        addresses,
        fallback,
        is_upgraded,
        router: Arc::clone(&shared.router),
        calls,
        memory,
        log: shared.log.clone(),
        compress_from: Arc::clone(&rules.compress_from),
    };
    Some(ServerSession::new(transport, setup))
}

/// Logs why a connection came to nothing: by `error`, or without one because its time was over.
fn log_refusal(
    shared: &Shared,
    rules: &Rules,
    addresses: &Addresses,
    error: Option<HandshakeError>,
) {
    match error {
        Some(error @ HandshakeError::Silent) => {
            tracing::debug!(
                target: "farcall::server",
                %addresses, %error, "a connection ended before its handshake"
            );
        }
        // The limit has said so in the log, with a count.
        Some(error @ HandshakeError::NoMemory(_)) => {
            tracing::debug!(target: "farcall::server", %addresses, %error, "refused a connection");
        }
        // The peer or its link has gone, as a cable that is pulled or a program that ends: no fault
        // of either side.
        Some(HandshakeError::Io(error)) => {
            limited_log!(
                target: "farcall::server",
                shared.log, INFO, "a client went away in its handshake", %addresses, %error
            );
        }
        Some(error) => {
            limited_log!(
                target: "farcall::server",
                shared.log, WARN, "refused a connection in its handshake", %addresses, %error
            );
        }
        None => {
            let timeout = rules.handshake_timeout;
            limited_log!(
                target: "farcall::server",
                shared.log, INFO, "a client did not end its handshake in time", %addresses, ?timeout
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use crate::Server;
    use crate::limits::captured_log::CapturedLog;
    use crate::server::ServerParts;
    use futures::future::BoxFuture;
    use tokio::sync::Notify;

    fn server() -> Server {
        ServerParts::default().build(ServerSettings::default())
    }

    /// Fails as it is told, and then has no connection.
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

    /// Has ended.
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
        let (told, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (tell, wait) = (Arc::clone(&told), Arc::clone(&go_on));
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
        told.notified().await;
        is_through.notified().await;
        assert!(!serving.is_finished());
        go_on.notify_one();
        serving.await.unwrap().unwrap();
        // A second listener finds it done.
        let listener = Failing { errors: VecDeque::new(), is_through };
        server.serve_until(listener, std::future::ready(())).await.unwrap();
    }

    /// How long a server takes for accepts that fail so.
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
    async fn connections_that_end_before_they_are_accepted_delay_no_accept() {
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
}
