//! The tables of the file, key by key, where no type of the program declares them.

use rpc_core::overlays::{ChannelSettingsOverlay, RetryBudgetOverlay};
use rpc_core::settings::{Named, define_overlay};

use super::methods::MethodTable;
use super::rdma::RdmaTable;
use super::value::Requirement;
use crate::Address;
use crate::server::settings::ServerOverlay;

define_overlay! {
    /// TLS to a server. The table is an error where calls do not go over TCP, and where farcall is
    /// built without its feature `tls`.
    pub(super) TargetTlsTable of ClientTls {
        /// Switches TLS on. Any other key of this table does, too.
        enabled: bool as Plain = "false", Start, .., "";
        /// The file with the authorities that the server's certificate is checked with, in PEM.
        ca: String as Plain = "\"tls/ca.pem\"", Live, .., "";
        /// Trusts the operating system's certificate authorities, too. Without a `ca` they are
        /// trusted anyway. This needs farcall's feature `tls-platform-verifier`.
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
    pub(super) ServerTlsTable of ServerTls {
        /// Switches TLS on. Any other key of this table does, too.
        enabled: bool as Plain = "false", Start, .., "";
        /// The file with the server's certificate and those of intermediate authorities, in PEM.
        cert: String as Plain = "\"tls/server.pem\"", Live, .., "";
        /// The file with its private key.
        key: String as Plain = "\"tls/server.key\"", Live, .., "";
        /// The file with the authorities that clients' certificates are checked with; without it
        /// clients are asked for none.
        client_ca: String as Plain = "\"tls/ca.pem\"", Live, .., "";
        /// Certificates of clients: "required" or "optional".
        client_certs: Requirement as Plain = "\"required\"", Live, .., "";
        /// The rule for clients that agree on no protocol in the TLS handshake (ALPN). "required"
        /// leaves them HTTP/1 alone; "optional" accepts them, for a load balancer that ends TLS.
        alpn: Requirement as Plain = "\"required\"", Live, .., "";
    } tables {}
}

define_overlay! {
    /// A target: a server that this program calls, by a name of its own choice.
    pub(super) TargetTable of ChannelBuilder {
        /// Address of the server. Its scheme decides the path of calls: auto://host:port is RDMA
        /// when both sides can and TCP otherwise, rdma:// is RDMA or an error, tcp://,
        /// unix:///path, inproc://name. gRPC servers are at grpc://host:port, and with TLS at
        /// grpcs://host:port; all those of a name are at dns+grpc:///name:port.
        address: Address as Plain = "\"auto://127.0.0.1:7000\"", Live, .., "";
    } tables {
        tls: TargetTlsTable = "tls", Live;
        methods: Named<MethodTable> = "methods.\"/shop.Catalog/Get\"", Live;
        retry_budget: RetryBudgetOverlay = "retry_budget", Live;
    } flat {
        settings: ChannelSettingsOverlay;
    }
}

define_overlay! {
    /// A server of this program, by a name of its own choice.
    pub(super) ServerTable of ServerBuilder {
        /// Address to listen on. At auto:// and rdma:// the server offers RDMA to clients that ask
        /// for it.
        address: Address as Plain = "\"auto://0.0.0.0:7000\"", Start, .., "";
    } tables {
        tls: ServerTlsTable = "tls", Live;
    } flat {
        settings: ServerOverlay;
    }
}

define_overlay! {
    /// The program's log.
    pub(super) LogTable of Settings {
        /// Filter of the lines, as in tracing-subscriber's `EnvFilter`. farcall hands it to the
        /// program, which applies it and has a default of its own.
        filter: String as Plain = "\"info\"", Live, .., "";
    } tables {}
}

define_overlay! {
    /// Defaults of servers and targets.
    pub(super) DefaultsTable of Settings {} tables {
        server: ServerTable = "server", Live;
        target: TargetTable = "target", Live;
    }
}

define_overlay! {
    /// The whole file.
    pub(super) Root of Settings {} tables {
        targets: Named<TargetTable> = "targets.inventory", Live;
        servers: Named<ServerTable> = "servers.orders", Live;
        defaults: DefaultsTable = "", Live;
        rdma: RdmaTable = "rdma", Start;
        log: LogTable = "log", Live;
    }
}
