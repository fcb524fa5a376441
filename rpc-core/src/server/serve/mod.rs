//! Serving: the accept loop, the connections of a server, how long each lives, and what they share.

pub(in crate::server) mod cores;
pub(in crate::server) mod life;
pub(in crate::server) mod limits;
pub(in crate::server) mod shared;

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use self::cores::Places;
use self::life::Rules;
use self::limits::{CONNECTIONS_FLOOR, Slot, Slots};
use self::shared::{Registered, Shared, relieve};
use crate::client::{CallRules, ClientSetup, Established, OneConnection, Session};
use crate::connect::{Bootstrap, Fallback, HandshakeError, Replayed};
use crate::limits::log::LogLimit;
use crate::limits::memory::MemoryShare;
use crate::limits::quota::{Charge, PeerKey};
use crate::server::handshake::identify;
use crate::server::{
    Accepted, Admission, Gateway, Listen, Offers, Opening, OtherProtocol, ServerConnection,
    ServerSession, ServerSettings, ServerSetup, accept,
};
use crate::transport::Addresses;
use crate::transport::inproc::InprocTransport;
use crate::wire::hello::Hello;
use crate::{Channel, Limits, Negotiated, limited_log};

/// The pause after an accept that failed, for example for want of descriptors: long enough not
/// to spin, short enough not to be noticed once descriptors are free again.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Time for a handshake to finish when its server shuts down: some round trips of a long way. A
/// silent socket would otherwise keep the server for `handshake_timeout`.
const DRAIN_HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(1);

/// A connection's part of what its client's address may have.
type Permit = Charge<PeerKey>;

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
    // Made once for all connections until the settings change: each holds a count of it.
    let mut rules = rules_of(&shared, &offers, &draining);
    let mut drain_timeout = rules.life.drain_timeout;
    // Before the first accept, so that clients of a server that cannot start are refused.
    let cores = shared.settings.borrow().cores;
    let places = Places::new(&shared.cores, cores).await?;
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
                    drain_timeout = drain_timeout.max(rules.life.drain_timeout);
                }
                let (log, shared, rules) = (&shared.log, Arc::clone(&shared), Arc::clone(&rules));
                let (stop, drain) = (stop.clone(), drain.clone());
                places.spawn(bootstrap, log, async move |bootstrap| {
                    tokio::select! {
                        () = stop.cancelled() => {}
                        () = live(shared, rules, bootstrap, permit, drain) => {}
                    }
                    // Here, with the task: the accept loop may be waiting for it.
                    drop(slot);
                });
            }
            Ok(None) => {
                // A listener may have one stream only, which is served for as long as it lasts.
                tokio::select! {
                    () = &mut shutdown => {}
                    () = places.closed() => {}
                }
                break Ok(());
            }
            // The listener can never accept again. Its connections are drained as at a shutdown.
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
    // First: clients that come now are refused by the system, and try elsewhere.
    drop(listener);
    // Before the wait, so that all connections drain at the same time.
    drain.cancel();
    places.end(drain_timeout, &shared.log).await;
    // After the wait: dropped with this future instead, it stops the connections that are left.
    drop(abort);
    result
}

/// The rules of this moment, for connections that come from now on.
fn rules_of(shared: &Shared, offers: &Offers, draining: &CancellationToken) -> Arc<Rules> {
    let draining = draining.clone();
    Arc::new(Rules { draining, ..Rules::new(shared, offers) })
}

/// Returns true if an accept failed for a reason that is gone with the connection. Linux reports
/// pending network errors of a connection to `accept`, too.
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
        // Counted for the log once a wait, and not once a client: those in the backlog are not
        // known.
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
    // Registered before it starts: its first call may ask for the list of connections.
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
    // One deadline for the proxy's header and the handshake: two would be twice the time.
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
            // Only now is its peer known, whose share this takes.
            admit(shared, &*bootstrap)?
        }
    };
    // Asked again behind a proxy's header, which has changed the addresses.
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
                shared.log, INFO, "a client disconnected during its handshake", %addresses, %error
            );
        }
        Some(error) => {
            limited_log!(
                target: "farcall::server",
                shared.log, WARN, "refused a connection during its handshake", %addresses, %error
            );
        }
        None => {
            let timeout = rules.handshake_timeout;
            limited_log!(
                target: "farcall::server",
                shared.log, INFO, "a client's handshake took too long", %addresses, ?timeout
            );
        }
    }
}

#[cfg(test)]
mod tests;

/// Makes a connection of a client that speaks `protocol`.
pub(in crate::server) fn gateway(
    shared: &Shared,
    rules: &Rules,
    protocol: &dyn OtherProtocol,
    stream: Replayed,
    memory: MemoryShare,
) -> Arc<dyn ServerConnection> {
    let (limits, addresses) = (rules.handshake.limits, stream.addresses());
    // What the client takes, it tells its own protocol. Bytes on their way inside a process are
    // bytes that a message has anyway.
    let accepted = Limits {
        max_message_len: u32::MAX.into(),
        max_receiving_bytes: u64::MAX,
        ..Limits::default()
    };
    let (near, far) = InprocTransport::direct_pair(protocol.name());
    let session = ServerSession::new(
        Box::new(far),
        ServerSetup {
            limits,
            peer_limits: accepted.announced_by_client(),
            compression: Negotiated::default(),
            addresses: addresses.clone(),
            fallback: None,
            is_upgraded: false,
            router: Arc::clone(&shared.router),
            calls: shared.calls_limit.share(&addresses, limits.max_calls.into()),
            memory: memory.clone(),
            log: shared.log.clone(),
            compress_from: Arc::default(),
        },
    );
    let admission = Admission::new(Arc::clone(&session));
    let mut hello = Hello::new(&limits.announced_by_server());
    hello.methods.clone_from(&rules.handshake.methods);
    hello.method_kinds.clone_from(&rules.handshake.method_kinds);
    let name: Arc<str> = protocol.name().into();
    let client = Session::start(
        Box::new(near),
        ClientSetup {
            limits: accepted,
            // The two ends are in one process. The client behind them is watched by its protocol.
            keepalive: crate::Keepalive::off(),
            progress_timeout: None,
            compression: Negotiated::default(),
            peer: hello,
            server: Arc::clone(&name),
            addresses,
            fallback: None,
            is_upgraded: false,
        },
    );
    // The session logs calls that fail.
    let channel = Channel::new(OneConnection::new(name, Established::Session(client)))
        .with_rules(CallRules { log_failures: false, ..CallRules::DEFAULT });
    protocol.serve(Gateway {
        stream,
        channel,
        session,
        methods: Arc::new(shared.router.by_path()),
        admission,
        memory,
        log: shared.log.clone(),
        limits,
        handshake_timeout: rules.handshake_timeout,
        draining: rules.draining.clone(),
    })
}
