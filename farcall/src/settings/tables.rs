//! The tables of the file, key by key.

use std::time::Duration;

use rpc_core::settings::check_memory;

use super::balance::BalanceTable;
use super::checks::{any, period, proxy_networks, some, timeout, web_origins};
use super::compression::{CompressionTable, ServerMethodTable};
use super::methods::{MethodTable, RetryBudgetTable};
use super::rdma::RdmaTable;
use super::table::{Named, table};
use super::value::{CountOrOff, Period, PeriodOrOff, Requirement, Size, Size32, SocketMode};
use crate::config::check_socket_mode;
use crate::{Address, Backoff, ConnectBackoff, Keepalive, Limits, ReplayLimits};

/// Delays beside which each of a pair is checked alone. Both are checked together when they are
/// known.
const SHORT: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(24 * 3600);
const CONNECT: ConnectBackoff = ConnectBackoff::new();
const PATH: Backoff = Backoff::new();

table! {
    /// What one side of a connection accepts from the other.
    LimitsTable {
        /// The longest message, in bytes of its encoding.
        max_message_len: Size = "\"4 MiB\"", Live,
            |it| Limits::default().with_max_message_len(it.0).check();
        /// The metadata of one request or response, trailers included.
        max_metadata_len: Size32 = "\"16 KiB\"", Live,
            |it| Limits::default().with_max_metadata_len(it.0).check();
        /// Calls in flight on one connection.
        max_calls: u32 = "1024", Live, |it| Limits::default().with_max_calls(*it).check();
        /// Bytes of large messages that are received at a time. Senders wait with more.
        max_receiving_bytes: Size = "\"256 MiB\"", Live,
            |it| Limits::default().with_max_receiving_bytes(it.0).check();
        /// Messages of one stream on their way or waiting to be read.
        max_stream_messages: u32 = "256", Live,
            |it| Limits::default().with_max_stream_messages(*it).check();
        /// Bytes of one stream on their way or waiting to be read.
        max_stream_bytes: Size32 = "\"256 KiB\"", Live,
            |it| Limits::default().with_max_stream_bytes(it.0).check();
    } tables {}
}

table! {
    /// How a peer that is gone is found.
    KeepaliveTable {
        /// Without it, finding out is left to the operating system, which may take hours.
        enabled: bool = "true", Live, any;
        /// How long nothing may come in before a ping asks for something. At grpc:// the default is
        /// 5m, and a channel pings during calls alone.
        interval: Period = "\"10s\"", Live, |it| Keepalive::default().with_interval(it.0).check();
        /// How long nothing may come in after a ping before the connection ends.
        timeout: Period = "\"20s\"", Live, |it| Keepalive::default().with_timeout(it.0).check();
    } tables {}
}

table! {
    /// How soon a channel connects again to a server that it cannot reach.
    ConnectBackoffTable {
        /// From the beginning of a first attempt that failed to the next one.
        initial_delay: Period = "\"1s\"", AtStart,
            |it| CONNECT.with_max_delay(LONG).with_initial_delay(it.0).check();
        /// Delays grow up to this, chance included. News from the resolver resets them.
        max_delay: Period = "\"10s\"", AtStart,
            |it| CONNECT.with_initial_delay(SHORT).with_max_delay(it.0).check();
        /// The factor from one delay to the next.
        multiplier: f64 = "1.6", AtStart,
            |it| ConnectBackoff::default().with_multiplier(*it).check();
        /// Each delay is longer or shorter by up to this part of it, at random.
        jitter: f64 = "0.2", AtStart, |it| ConnectBackoff::default().with_jitter(*it).check();
    } tables {}
}

table! {
    /// How soon RDMA is tried again after it failed under a channel.
    PathBackoffTable {
        /// The first delay, to which chance adds up to as much again.
        initial_delay: Period = "\"200ms\"", AtStart,
            |it| PATH.with_max_delay(LONG).with_initial_delay(it.0).check();
        /// Delays double up to this.
        max_delay: Period = "\"60s\"", AtStart,
            |it| PATH.with_initial_delay(SHORT).with_max_delay(it.0).check();
        /// For how long RDMA has to work before its next failure counts as a first one.
        healthy_after: Period = "\"30s\"", AtStart,
            |it| Backoff::default().with_healthy_after(it.0).check();
    } tables {}
}

table! {
    /// How many idempotent calls a channel makes once more after their connection ended.
    ReplaysTable {
        /// At once at most; 0 switches replays off.
        max_burst: u32 = "1024", AtStart, |it| ReplayLimits::default().with_max_burst(*it).check();
        /// How many of them come back in a second.
        per_second: u32 = "100", AtStart, |it| ReplayLimits::default().with_per_second(*it).check();
    } tables {}
}

table! {
    /// TLS to a server. The table is an error where calls do not go over TCP, and where farcall is
    /// built without its feature `tls`.
    TargetTlsTable {
        /// Whether connections have TLS; they have where another key of this table is set.
        enabled: bool = "false", AtStart, any;
        /// The file with the authorities that the server's certificate is checked with, in PEM.
        ca: String = "\"tls/ca.pem\"", Live, any;
        /// Whether the authorities that the operating system trusts count too; they do without a
        /// `ca`. This needs farcall's feature `tls-platform-verifier`.
        platform_roots: bool = "false", Live, any;
        /// The name that the server's certificate has to be for; the host of the address unless it
        /// is set.
        server_name: String = "\"inventory.example\"", Live, any;
        /// The file with the certificate that the server is shown if it asks for one, in PEM.
        cert: String = "\"tls/client.pem\"", Live, any;
        /// The file with its private key.
        key: String = "\"tls/client.key\"", Live, any;
        /// The rule for a server that agrees on no protocol in the TLS handshake (ALPN). "required"
        /// refuses it; "optional" accepts it, for a load balancer that ends TLS.
        alpn: Requirement = "\"required\"", Live, any;
    } tables {}
}

table! {
    /// TLS of a server. The table is an error where it does not listen on TCP, and where farcall
    /// is built without its feature `tls`.
    ServerTlsTable {
        /// Whether connections have TLS; they have where another key of this table is set.
        enabled: bool = "false", AtStart, any;
        /// The file with the server's certificate and those of intermediate authorities, in PEM.
        cert: String = "\"tls/server.pem\"", Live, any;
        /// The file with its private key.
        key: String = "\"tls/server.key\"", Live, any;
        /// The file with the authorities that clients' certificates are checked with; without it
        /// clients are asked for none.
        client_ca: String = "\"tls/ca.pem\"", Live, any;
        /// Whether a certificate is "required" of every client, or "optional".
        client_certs: Requirement = "\"required\"", Live, any;
        /// The rule for clients that agree on no protocol in the TLS handshake (ALPN). "required"
        /// leaves them HTTP/1 alone; "optional" accepts them, for a load balancer that ends TLS.
        alpn: Requirement = "\"required\"", Live, any;
    } tables {}
}

table! {
    /// A target: a server that this program calls, by a name of its own choice.
    TargetTable {
        /// Where the server is. Its scheme decides what calls travel over: auto://host:port is RDMA
        /// when both sides can and TCP otherwise, rdma:// is RDMA or an error, tcp://,
        /// unix:///path, inproc://name. Servers of gRPC are at grpc://host:port, and with TLS at
        /// grpcs://host:port; all those of a name are at dns+grpc:///name:port.
        address: Address = "\"auto://127.0.0.1:7000\"", Live, any;
        /// For calls that set no timeout themselves. A stream ends then, too.
        timeout: PeriodOrOff = "\"off\"", Live, |it| it.0.map_or(Ok(()), timeout);
        /// For unary calls in its place. Streams have none by this.
        unary_timeout: PeriodOrOff = "\"off\"", Live, |it| it.0.map_or(Ok(()), timeout);
        /// Whether calls wait while the server cannot be reached; else they fail at once.
        wait_for_ready: bool = "false", Live, any;
        /// How long opening a connection may take, RDMA included.
        handshake_timeout: Period = "\"10s\"", AtStart, |it| timeout(it.0);
        /// How long the server may take nothing of what waits for it before the connection ends.
        progress_timeout: PeriodOrOff = "\"60s\"", AtStart, |it| it.0.map_or(Ok(()), timeout);
        /// Whether each call that fails has a line in the log.
        log_failed_calls: bool = "true", AtStart, any;
        /// Whether connections that leave the host have to be encrypted: they need `tls` then, and
        /// RDMA, which is not encrypted, is not used.
        require_encryption: bool = "false", AtStart, any;
    } tables {
        tls: TargetTlsTable = "tls", Live;
        limits: LimitsTable = "limits", AtStart;
        compression: CompressionTable = "compression", AtStart;
        keepalive: KeepaliveTable = "keepalive", AtStart;
        connect_backoff: ConnectBackoffTable = "connect_backoff", AtStart;
        path_backoff: PathBackoffTable = "path_backoff", AtStart;
        replays: ReplaysTable = "replays", AtStart;
        balance: BalanceTable = "balance", AtStart;
        methods: Named<MethodTable> = "methods.\"/shop.Catalog/Get\"", Live;
        retry_budget: RetryBudgetTable = "retry_budget", Live;
    }
}

table! {
    /// The PROXY protocol, by which a load balancer says who its clients are. The table is an error
    /// where the server does not listen on TCP.
    ProxyProtocolTable {
        /// The networks that connections of load balancers come from, as "10.0.0.0/24". Each such
        /// connection has to begin with a PROXY header, of version 1 or 2.
        from: Vec<String> = "[]", AtStart, |it| proxy_networks(it);
    } tables {}
}

table! {
    /// A server of this program, by a name of its own choice.
    ServerTable {
        /// Where it listens. At auto:// and rdma:// it offers RDMA to clients that ask for it.
        address: Address = "\"auto://0.0.0.0:7000\"", AtStart, any;
        /// How long calls in flight may take when the server shuts down.
        drain_timeout: Period = "\"30s\"", Live, |it| period(it.0);
        /// How long handlers of unary calls may take; streams have none by this.
        unary_timeout: PeriodOrOff = "\"off\"", Live, |it| it.0.map_or(Ok(()), timeout);
        /// After how long without a call a connection ends.
        idle_timeout: PeriodOrOff = "\"off\"", Live, |it| it.0.map_or(Ok(()), timeout);
        /// After how long a connection ends in any case, so that clients spread over new servers.
        max_connection_age: PeriodOrOff = "\"off\"", Live, |it| it.0.map_or(Ok(()), period);
        /// How long calls may go on after that.
        max_connection_age_grace: PeriodOrOff = "\"off\"", Live, |it| it.0.map_or(Ok(()), period);
        /// Calls of all connections that run at a time.
        max_calls: u32 = "65536", Live, |it| some(*it);
        /// Calls from one address at a time; "off" is a share of those that are free.
        max_calls_per_peer: CountOrOff = "\"off\"", Live, |it| it.0.map_or(Ok(()), some);
        /// Connections at a time.
        max_connections: u32 = "10000", Live, |it| some(*it);
        /// Connections from one address at a time; "off" is a share of those that are free.
        max_connections_per_peer: CountOrOff = "\"off\"", Live, |it| it.0.map_or(Ok(()), some);
        /// Memory that clients can make the server keep; a quarter of what the process may use
        /// unless it is set.
        max_memory: Size = "\"1 GiB\"", Live, |it| check_memory("max_memory", it.0);
        /// Maximum time to open a connection, RDMA included, and to wait for the next part of
        /// the message of a gRPC call.
        handshake_timeout: Period = "\"10s\"", Live, |it| timeout(it.0);
        /// How long a client may take nothing of what waits for it before the connection ends.
        progress_timeout: PeriodOrOff = "\"60s\"", Live, |it| it.0.map_or(Ok(()), timeout);
        /// Whether the server fails to start at rdma:// where RDMA is impossible. Otherwise it
        /// says so in the log, and serves clients that stay on TCP.
        rdma_required: bool = "true", AtStart, any;
        /// Whether each call that fails has a line in the log.
        log_failed_calls: bool = "true", Live, any;
        /// Whether every call has a line in the log when it ends.
        access_log: bool = "false", Live, any;
        /// Whether connections from other hosts have to be encrypted: they need `tls` then, and
        /// RDMA, which is not encrypted, is refused.
        require_encryption: bool = "false", AtStart, any;
        /// The permissions of the file of a Unix socket, in octal digits; what the umask leaves
        /// unless it is set. Only a server at unix:///path has such a file.
        socket_mode: SocketMode = "\"0660\"", AtStart, |it| check_socket_mode(it.0);
        /// The user and the group that the file belongs to, as "app", ":www-data" or
        /// "app:www-data", by name or by number; those of the process unless it is set.
        socket_owner: String = "\":www-data\"", AtStart, any;
        /// The origins whose pages may call by grpc-web, as "https://app.example", or "*" for all.
        /// This needs farcall's feature `grpc`.
        grpc_web_origins: Vec<String> = "[]", AtStart, |it| web_origins(it);
    } tables {
        tls: ServerTlsTable = "tls", Live;
        proxy_protocol: ProxyProtocolTable = "proxy_protocol", AtStart;
        limits: LimitsTable = "limits", Live;
        compression: CompressionTable = "compression", Live;
        methods: Named<ServerMethodTable> = "methods.\"/shop.Catalog/Get\"", Live;
        keepalive: KeepaliveTable = "keepalive", Live;
    }
}

table! {
    /// What the program writes into its log.
    LogTable {
        /// Which lines, as a filter of tracing-subscriber's `EnvFilter`. farcall hands it to the
        /// program, which applies it and decides what it is unless it is set.
        filter: String = "\"info\"", Live, any;
    } tables {}
}

table! {
    /// What servers and targets have that say nothing else.
    DefaultsTable {} tables {
        server: ServerTable = "server", Live;
        target: TargetTable = "target", Live;
    }
}

table! {
    /// The whole file.
    Root {} tables {
        targets: Named<TargetTable> = "targets.inventory", Live;
        servers: Named<ServerTable> = "servers.orders", Live;
        defaults: DefaultsTable = "", Live;
        rdma: RdmaTable = "rdma", AtStart;
        log: LogTable = "log", Live;
    }
}
