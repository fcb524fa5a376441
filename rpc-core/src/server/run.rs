//! The accept loop, and the life of each connection.

use std::io;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use slab::Slab;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::builder::Shared;
use super::peer_limit::CONNECTIONS_FLOOR;
use super::rules::Rules;
use super::{Listen, ServerConnection, ServerSetup, life};
use crate::connect::{Accepted, Bootstrap, ConnectionInfo, HandshakeError, accept};
use crate::limited_log;

/// The pause after an accept that failed, for example for want of descriptors: long enough not
/// to spin, short enough not to be noticed once descriptors are free again.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How long a handshake may go on when its server shuts down: some round trips of a long way. A
/// socket that says nothing would keep the server for as long as `handshake_timeout`.
const DRAIN_HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(1);

/// The open connections of a server.
#[derive(Debug, Default)]
pub(super) struct Connections {
    open: Mutex<Slab<Arc<dyn ServerConnection>>>,
}

impl Connections {
    fn lock(&self) -> MutexGuard<'_, Slab<Arc<dyn ServerConnection>>> {
        // A slab is consistent between any two statements.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn infos(&self) -> Vec<ConnectionInfo> {
        self.lock().iter().map(|(_, connection)| connection.info()).collect()
    }
}

/// An entry in the list of connections; dropped, the connection is closed and the entry goes.
struct Registered<'a> {
    connections: &'a Connections,
    key: usize,
    connection: Arc<dyn ServerConnection>,
}

impl<'a> Registered<'a> {
    /// Starts a connection once it is in the list, so that no client that was served over it can
    /// miss it there.
    fn start(connections: &'a Connections, connection: Arc<dyn ServerConnection>) -> Self {
        let key = connections.lock().insert(Arc::clone(&connection));
        let this = Self { connections, key, connection };
        this.connection.start();
        this
    }
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        self.connection.close();
        self.connections.lock().remove(self.key);
    }
}

/// Accepts until `shutdown`, then drains.
pub(super) async fn serve(
    shared: Arc<Shared>,
    mut listener: impl Listen,
    shutdown: impl Future<Output = ()> + Send,
) -> io::Result<()> {
    let rules = Arc::new(Rules::new(&shared, listener.settings()));
    let tasks = TaskTracker::new();
    // Dropped with this future, so that cancelling it closes every connection.
    let stop = CancellationToken::new();
    let abort = stop.clone().drop_guard();
    let drain = CancellationToken::new();
    let slots = Arc::new(Semaphore::new(shared.max_connections.min(Semaphore::MAX_PERMITS)));
    let mut shutdown = pin!(shutdown);
    let result = loop {
        // A listener that never has to wait, and fails, or has refused clients only, would keep
        // the thread to itself.
        tokio::task::consume_budget().await;
        let accepted = tokio::select! {
            () = &mut shutdown => break Ok(()),
            accepted = next(&shared, &mut listener, &slots) => accepted,
        };
        match accepted {
            Ok(Some((bootstrap, slot))) => {
                // Its peer is known only now. Dropped, the connection is closed.
                let share =
                    shared.connections_limit.share(&bootstrap.addresses(), CONNECTIONS_FLOOR);
                let Ok(permit) = share.try_take(1) else { continue };
                let (shared, rules) = (Arc::clone(&shared), Arc::clone(&rules));
                let connection = live(shared, rules, bootstrap, drain.clone());
                let stop = stop.clone();
                tasks.spawn(async move {
                    tokio::select! {
                        () = stop.cancelled() => {}
                        () = connection => {}
                    }
                    drop((slot, permit));
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
            // It ended while it waited, which anybody can have it do: no reason for others to wait,
            // or for a line in the log.
            Err(error) if is_of_one_connection(&error) => {
                tracing::debug!(%error, "a connection ended before it was accepted");
            }
            Err(error) => {
                limited_log!(shared.log, WARN, "cannot accept a connection", %error);
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
    slots: &Arc<Semaphore>,
) -> io::Result<Option<(Box<dyn Bootstrap>, OwnedSemaphorePermit)>> {
    // Past the limit, clients wait in the operating system's backlog.
    let slot = match Arc::clone(slots).try_acquire_owned() {
        Ok(slot) => Ok(slot),
        Err(_) => {
            shared.connections_limit.limit.refused(None);
            Arc::clone(slots).acquire_owned().await
        }
    };
    let slot = slot.map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
    Ok(listener.accept().await?.map(|bootstrap| (bootstrap, slot)))
}

/// One connection, from its handshake to its end.
async fn live(
    shared: Arc<Shared>,
    rules: Arc<Rules>,
    bootstrap: Box<dyn Bootstrap>,
    drain: CancellationToken,
) {
    // Without room for what its Hello may hold, it is closed before it has said anything.
    let Ok(memory) = shared.memory.handshake() else { return };
    // In memory of its own, which goes with it: an idle connection holds only what follows.
    let handshake = Box::pin(until_drained(join(&shared, &rules, bootstrap), &drain));
    let Some(Some(connection)) = handshake.await else { return };
    drop(memory);
    let registered = Registered::start(&shared.connections, connection);
    life::live(&*registered.connection, &rules.life, &shared.log, &drain).await;
}

/// Runs a handshake, which a server that shuts down does not wait for, but for the moment that a
/// client needs who is in the middle of it, and is told to go elsewhere.
async fn until_drained<T>(
    handshake: impl Future<Output = T>,
    drain: &CancellationToken,
) -> Option<T> {
    let late = async {
        drain.cancelled().await;
        tokio::time::sleep(DRAIN_HANDSHAKE_TIMEOUT).await;
    };
    tokio::select! {
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
) -> Option<Arc<dyn ServerConnection>> {
    let addresses = bootstrap.addresses();
    let handshake = accept(bootstrap, &rules.handshake);
    let accepted = match tokio::time::timeout(rules.handshake_timeout, handshake).await {
        Ok(Ok(accepted)) => accepted,
        Ok(Err(error @ HandshakeError::Silent)) => {
            tracing::debug!(%addresses, %error, "a connection ended before its handshake");
            return None;
        }
        Ok(Err(error)) => {
            limited_log!(
                shared.log, WARN, "refused a connection in its handshake", %addresses, %error
            );
            return None;
        }
        Err(_) => {
            let timeout = rules.handshake_timeout;
            limited_log!(
                shared.log, WARN, "refused a connection: no handshake in time", %addresses, ?timeout
            );
            return None;
        }
    };
    let Accepted { link, hello, fallback, is_upgraded } = accepted;
    if let Some(reason) = &fallback {
        limited_log!(
            shared.log, WARN, "accepted without the better path", %addresses, %reason
        );
    }
    let limits = rules.handshake.limits;
    // Any address may have the calls of one connection, because a client keeps to what the server
    // told it in the handshake, and expects no refusal then.
    let calls = shared.calls_limit.share(&addresses, limits.max_calls.into());
    let memory = shared.memory.connection(&addresses);
    let setup = ServerSetup {
        limits,
        peer_limits: hello.limits(),
        addresses,
        fallback,
        is_upgraded,
        router: Arc::clone(&shared.router),
        calls,
        memory,
        log: shared.log.clone(),
    };
    Some(link.open_server(setup))
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Weak;

    use futures::future::BoxFuture;
    use tokio::sync::Notify;
    use tokio::time::Instant;

    use super::*;
    use crate::Server;
    use crate::calls::keepalive::Traffic;
    use crate::calls::lifetime::CallCounts;
    use crate::calls::progress::Flows;
    use crate::captured_log::CapturedLog;
    use crate::transport::{Addresses, CloseReason, TransportStats};

    /// A connection that looks for itself in the list when it is started.
    #[derive(Debug)]
    struct Curious {
        connections: Weak<Connections>,
        found: Mutex<Vec<usize>>,
    }

    impl ServerConnection for Curious {
        fn start(&self) {
            let count = self.connections.upgrade().unwrap().lock().len();
            self.found.lock().unwrap().push(count);
        }

        fn closed(&self) -> BoxFuture<'_, ()> {
            Box::pin(std::future::pending())
        }

        fn drained(&self) -> BoxFuture<'_, ()> {
            Box::pin(std::future::pending())
        }

        fn go_away(&self) {}

        fn ping(&self, _: u64) {}

        fn traffic(&self) -> Traffic {
            Traffic::default()
        }

        fn has_unread(&self) -> bool {
            false
        }

        fn flows(&self) -> Flows {
            Flows::default()
        }

        fn calls(&self) -> CallCounts {
            CallCounts::default()
        }

        fn is_flushed(&self) -> bool {
            true
        }

        fn abort(&self, _: CloseReason) {}

        fn close(&self) {}

        fn info(&self) -> ConnectionInfo {
            ConnectionInfo {
                transport: "curious",
                addresses: Addresses::default(),
                is_upgraded: false,
                fallback: None,
                calls_in_flight: 0,
                stats: TransportStats::default(),
            }
        }
    }

    /// Started before that, it may serve a client which then does not find it.
    #[test]
    fn a_connection_is_in_the_list_before_it_receives() {
        let connections = Arc::new(Connections::default());
        let (list, found) = (Arc::downgrade(&connections), Mutex::default());
        let curious = Arc::new(Curious { connections: list, found });
        let registered = Registered::start(&connections, Arc::clone(&curious) as _);
        assert_eq!(*curious.found.lock().unwrap(), [1]);
        drop(registered);
        assert_eq!(connections.lock().len(), 0);
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
        Server::builder().build().serve(Ended).await.unwrap();
    }

    /// How long a server takes for accepts that fail so.
    async fn time_for(errors: impl IntoIterator<Item: Into<io::Error>>) -> Duration {
        let is_through = Arc::new(Notify::new());
        let errors = errors.into_iter().map(Into::into).collect();
        let listener = Failing { errors, is_through: Arc::clone(&is_through) };
        let (server, start) = (Server::builder().build(), Instant::now());
        tokio::select! {
            result = server.serve(listener) => panic!("the server has ended: {result:?}"),
            () = is_through.notified() => start.elapsed(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn connections_that_end_before_they_are_accepted_delay_no_other() {
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
        assert_eq!(left_out + lines.len() as u64 - 1, ACCEPTS.into(), "{lines:#?}");
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
