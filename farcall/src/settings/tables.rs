//! The tables of the file, key by key, where no type of the program declares them.

use std::time::Duration;

use rpc_core::overlays::{
    ChannelSettingsOverlay, CompressionOverlay, KeepaliveOverlay, LimitsOverlay,
};
use rpc_core::settings::{COMPUTED, Checked, NO_TIME, check_memory, define_overlay};

use super::checks::{PERIOD, SERVED, TIMEOUT, proxy_networks, web_origins};
use super::compression::ServerMethodTable;
use super::methods::{MethodTable, RetryBudgetTable};
use super::rdma::RdmaTable;
use super::table::{Joined, Named};
use super::value::{Requirement, SocketMode};
use crate::Address;
use crate::config::check_socket_mode;

define_overlay! {
    /// TLS to a server. The table is an error where calls do not go over TCP, and where farcall is
    /// built without its feature `tls`.
    pub(super) TargetTlsTable {
        /// Whether connections have TLS; they have where another key of this table is set.
        enabled: bool as Plain = "false", Start, .., "";
        /// The file with the authorities that the server's certificate is checked with, in PEM.
        ca: String as Plain = "\"tls/ca.pem\"", Live, .., "";
        /// Whether the authorities that the operating system trusts count too; they do without a
        /// `ca`. This needs farcall's feature `tls-platform-verifier`.
        platform_roots: bool as Plain = "false", Live, .., "";
        /// The name that the server's certificate has to be for; the host of the address unless it
        /// is set.
        server_name: String as Plain = "\"inventory.example\"", Live, .., "";
        /// The file with the certificate that the server is shown if it asks for one, in PEM.
        cert: String as Plain = "\"tls/client.pem\"", Live, .., "";
        /// The file with its private key.
        key: String as Plain = "\"tls/client.key\"", Live, .., "";
        /// The rule for a server that agrees on no protocol in the TLS handshake (ALPN). "required"
        /// refuses it; "optional" accepts it, for a load balancer that ends TLS.
        alpn: Requirement as Plain = "\"required\"", Live, .., "";
    } tables {}
}

define_overlay! {
    /// TLS of a server. The table is an error where it does not listen on TCP, and where farcall
    /// is built without its feature `tls`.
    pub(super) ServerTlsTable {
        /// Whether connections have TLS; they have where another key of this table is set.
        enabled: bool as Plain = "false", Start, .., "";
        /// The file with the server's certificate and those of intermediate authorities, in PEM.
        cert: String as Plain = "\"tls/server.pem\"", Live, .., "";
        /// The file with its private key.
        key: String as Plain = "\"tls/server.key\"", Live, .., "";
        /// The file with the authorities that clients' certificates are checked with; without it
        /// clients are asked for none.
        client_ca: String as Plain = "\"tls/ca.pem\"", Live, .., "";
        /// Whether a certificate is "required" of every client, or "optional".
        client_certs: Requirement as Plain = "\"required\"", Live, .., "";
        /// The rule for clients that agree on no protocol in the TLS handshake (ALPN). "required"
        /// leaves them HTTP/1 alone; "optional" accepts them, for a load balancer that ends TLS.
        alpn: Requirement as Plain = "\"required\"", Live, .., "";
    } tables {}
}

define_overlay! {
    /// A target: a server that this program calls, by a name of its own choice.
    pub(super) TargetPlace {
        /// Where the server is. Its scheme decides what calls travel over: auto://host:port is RDMA
        /// when both sides can and TCP otherwise, rdma:// is RDMA or an error, tcp://,
        /// unix:///path, inproc://name. Servers of gRPC are at grpc://host:port, and with TLS at
        /// grpcs://host:port; all those of a name are at dns+grpc:///name:port.
        address: Address as Plain = "\"auto://127.0.0.1:7000\"", Live, .., "";
    } tables {
        tls: TargetTlsTable = "tls", Live;
    }
}

define_overlay! {
    /// The rules for the calls of a target.
    pub(super) TargetCalls {} tables {
        methods: Named<MethodTable> = "methods.\"/shop.Catalog/Get\"", Live;
        retry_budget: RetryBudgetTable = "retry_budget", Live;
    }
}

/// A target: its place, the settings of its channels, and the rules for its calls.
pub(super) type TargetTable = Joined<TargetPlace, Joined<ChannelSettingsOverlay, TargetCalls>>;

impl TargetTable {
    pub(super) const fn place(&self) -> &TargetPlace {
        &self.0
    }

    pub(super) const fn settings(&self) -> &ChannelSettingsOverlay {
        &self.1.0
    }

    pub(super) const fn calls(&self) -> &TargetCalls {
        &self.1.1
    }
}

define_overlay! {
    /// The PROXY protocol, by which a load balancer says who its clients are. The table is an error
    /// where the server does not listen on TCP.
    pub(super) ProxyProtocolTable {
        /// The networks that connections of load balancers come from, as "10.0.0.0/24". Each such
        /// connection has to begin with a PROXY header, of version 1 or 2.
        from: Vec<String> as Plain = "[]", Start,
            Checked(|it: &Vec<String>| proxy_networks(it)), "";
    } tables {}
}

define_overlay! {
    /// A server of this program, by a name of its own choice.
    pub(super) ServerTable {
        /// Where it listens. At auto:// and rdma:// it offers RDMA to clients that ask for it.
        address: Address as Plain = "\"auto://0.0.0.0:7000\"", Start, .., "";
        /// How long calls in flight may take when the server shuts down.
        drain_timeout: Duration as Plain = "\"30s\"", Live, PERIOD, COMPUTED;
        /// How long handlers of unary calls may take; streams have none by this.
        unary_timeout: Option<Duration> as OrOff = "\"off\"", Live, TIMEOUT, NO_TIME;
        /// After how long without a call a connection ends.
        idle_timeout: Option<Duration> as OrOff = "\"off\"", Live, TIMEOUT, NO_TIME;
        /// After how long a connection ends in any case, so that clients spread over new servers.
        max_connection_age: Option<Duration> as OrOff = "\"off\"", Live, PERIOD, COMPUTED;
        /// How long calls may go on after that.
        max_connection_age_grace: Option<Duration> as OrOff = "\"off\"", Live, PERIOD, COMPUTED;
        /// Calls of all connections that run at a time.
        max_calls: u32 as Plain = "65536", Live, 1.., SERVED;
        /// Calls from one address at a time; "off" is a share of those that are free.
        max_calls_per_peer: Option<u64> as CountOrOff = "\"off\"", Live, 1.., SERVED;
        /// Connections at a time.
        max_connections: u32 as Plain = "10000", Live, 1.., SERVED;
        /// Connections from one address at a time; "off" is a share of those that are free.
        max_connections_per_peer: Option<u64> as CountOrOff = "\"off\"", Live, 1.., SERVED;
        /// Memory that clients can make the server keep; a quarter of what the process may use
        /// unless it is set.
        max_memory: u64 as Size = "\"1 GiB\"", Live,
            Checked(|it: &u64| check_memory("max_memory", *it)), "";
        /// Maximum time to open a connection, RDMA included, and to wait for the next part of
        /// the message of a gRPC call.
        handshake_timeout: Duration as Plain = "\"10s\"", Live, TIMEOUT, NO_TIME;
        /// How long a client may take nothing of what waits for it before the connection ends.
        progress_timeout: Option<Duration> as OrOff = "\"60s\"", Live, TIMEOUT, NO_TIME;
        /// Whether the server fails to start at rdma:// where RDMA is impossible. Otherwise it
        /// says so in the log, and serves clients that stay on TCP.
        rdma_required: bool as Plain = "true", Start, .., "";
        /// Whether each call that fails has a line in the log.
        log_failed_calls: bool as Plain = "true", Live, .., "";
        /// Whether every call has a line in the log when it ends.
        access_log: bool as Plain = "false", Live, .., "";
        /// Whether connections from other hosts have to be encrypted: they need `tls` then, and
        /// RDMA, which is not encrypted, is refused.
        require_encryption: bool as Plain = "false", Start, .., "";
        /// The permissions of the file of a Unix socket, in octal digits; what the umask leaves
        /// unless it is set. Only a server at unix:///path has such a file.
        socket_mode: SocketMode as Plain = "\"0660\"", Start,
            Checked(|it: &SocketMode| check_socket_mode(it.0)), "";
        /// The user and the group that the file belongs to, as "app", ":www-data" or
        /// "app:www-data", by name or by number; those of the process unless it is set.
        socket_owner: String as Plain = "\":www-data\"", Start, .., "";
        /// The origins whose pages may call by grpc-web, as "https://app.example", or "*" for all.
        /// This needs farcall's feature `grpc`.
        grpc_web_origins: Vec<String> as Plain = "[]", Start,
            Checked(|it: &Vec<String>| web_origins(it)), "";
    } tables {
        tls: ServerTlsTable = "tls", Live;
        proxy_protocol: ProxyProtocolTable = "proxy_protocol", Start;
        limits: LimitsOverlay = "limits", Live;
        compression: CompressionOverlay = "compression", Live;
        methods: Named<ServerMethodTable> = "methods.\"/shop.Catalog/Get\"", Live;
        keepalive: KeepaliveOverlay = "keepalive", Live;
    }
}

define_overlay! {
    /// What the program writes into its log.
    pub(super) LogTable {
        /// Which lines, as a filter of tracing-subscriber's `EnvFilter`. farcall hands it to the
        /// program, which applies it and decides what it is unless it is set.
        filter: String as Plain = "\"info\"", Live, .., "";
    } tables {}
}

define_overlay! {
    /// What servers and targets have that say nothing else.
    pub(super) DefaultsTable {} tables {
        server: ServerTable = "server", Live;
        target: TargetTable = "target", Live;
    }
}

define_overlay! {
    /// The whole file.
    pub(super) Root {} tables {
        targets: Named<TargetTable> = "targets.inventory", Live;
        servers: Named<ServerTable> = "servers.orders", Live;
        defaults: DefaultsTable = "", Live;
        rdma: RdmaTable = "rdma", Start;
        log: LogTable = "log", Live;
    }
}
