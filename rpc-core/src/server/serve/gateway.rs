//! Connections of other protocols: a session like any other, behind a link inside the process.

use std::sync::Arc;

use super::life::Rules;
use super::shared::Shared;
use crate::client::{CallRules, ClientSetup, Established, OneConnection, Session};
use crate::connect::Replayed;
use crate::memory::MemoryShare;
use crate::server::{
    Admission, Gateway, OtherProtocol, ServerConnection, ServerSession, ServerSetup,
};
use crate::transport::inproc::InprocTransport;
use crate::wire::hello::Hello;
use crate::{Channel, Limits, Negotiated};

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
