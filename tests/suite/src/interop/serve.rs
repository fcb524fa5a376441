//! Servers for clients of gRPC that are not of this process.

use std::error::Error;
use std::path::Path;

use farcall::server::Admin;
use farcall::tls::{AlpnPolicy, ServerTls};
use farcall::{Limits, Server, ServerBuilder};
use tonic_reflection::pb::{v1, v1alpha};
use tonic_reflection::server::Builder;

use crate::certificates::Pems;
use crate::interop::Interop;
use crate::interop::handlers::Handlers;
use crate::interop_proto::test_service_rpc::TestServiceService;
use crate::proto::handlers_rpc::HandlersService;
use crate::proto::probe_rpc::ProbeService;
use crate::{INTEROP_DESCRIPTOR_SET, Probe};

/// Longer than the messages of 5 MiB that clients send, and short enough to be exceeded.
const MESSAGE_LEN_MAX: u64 = 16 << 20;

/// The ways to reach a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Plain,
    Tls,
    MutualTls,
    Unix,
    /// Behind a load balancer that sends the PROXY header.
    Proxied,
    /// The same with TLS that agrees on no protocol.
    ProxiedTls,
}

/// Binds a server for each way: without TLS, with it, and with certificates of clients; at a Unix
/// socket; behind a load balancer that sends the PROXY header, without TLS and with TLS without
/// ALPN.
///
/// Writes to `folder` what clients, load balancers and other servers need: `ca.pem`, `client.pem`
/// and `client.key`, `server.pem`, `server.key` and `both.pem` with the two, and `descriptors.bin`.
/// Pages of `web_origins` have leave to call.
///
/// # Errors
///
/// Returns an error if a file cannot be written, or the operating system refuses a port.
pub async fn interop_servers(
    folder: &Path,
    web_origins: &[String],
) -> Result<Vec<farcall::Listener>, Box<dyn Error + Send + Sync>> {
    let pems = Pems::make()?;
    for (name, text) in [
        ("ca.pem", &pems.ca),
        ("client.pem", &pems.client.cert),
        ("client.key", &pems.client.key),
        ("server.pem", &pems.server.cert),
        ("server.key", &pems.server.key),
        ("both.pem", &format!("{}{}", pems.server.cert, pems.server.key)),
    ] {
        std::fs::write(folder.join(name), text)?;
    }
    std::fs::write(folder.join("descriptors.bin"), INTEROP_DESCRIPTOR_SET)?;
    let mut listeners = Vec::new();
    for way in [Way::Plain, Way::Tls, Way::MutualTls, Way::Unix, Way::Proxied, Way::ProxiedTls] {
        let tls = match way {
            Way::Plain | Way::Unix | Way::Proxied => None,
            Way::Tls => Some(ServerTls::new(pems.server_config())?),
            Way::MutualTls => Some(pems.mutual_server()?),
            Way::ProxiedTls => {
                Some(ServerTls::new(pems.server_config().with_alpn(AlpnPolicy::Optional))?)
            }
        };
        let services = services().grpc_web_origins(web_origins);
        let builder = tls.iter().fold(services, ServerBuilder::tls);
        let builder = match way {
            Way::Proxied | Way::ProxiedTls => builder.proxy_protocol(["127.0.0.1"]),
            _ => builder,
        };
        let address = match way {
            Way::Unix => format!("unix://{}", folder.join("socket").display()),
            _ => "tcp://127.0.0.1:0".to_owned(),
        };
        listeners.push(builder.bind(address).await?);
    }
    Ok(listeners)
}

/// The interoperability tests' service and the suite's, with one that tells what becomes of their
/// handlers, health and reflection.
fn services() -> ServerBuilder {
    let health_set = tonic_health::pb::FILE_DESCRIPTOR_SET;
    let described = || {
        Builder::configure()
            .register_encoded_file_descriptor_set(farcall_probe::DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(INTEROP_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(health_set)
    };
    let (probe, watch) = Probe::new();
    let interop = Interop::beside(&probe);
    let (_reporter, health) = tonic_health::server::health_reporter();
    let builder = Server::builder()
        .admin(Admin::loopback())
        .limits(Limits::default().with_max_message_len(MESSAGE_LEN_MAX))
        .add_service(TestServiceService::new(interop))
        .add_service(ProbeService::new(probe))
        .add_service(HandlersService::new(Handlers::new(watch)))
        .add_grpc_service(health, health_set);
    match (described().build_v1(), described().build_v1alpha()) {
        (Ok(now), Ok(before)) => builder
            .add_grpc_service(now, v1::FILE_DESCRIPTOR_SET)
            .add_grpc_service(before, v1alpha::FILE_DESCRIPTOR_SET),
        // Clients find out: they have no descriptors then.
        _ => builder,
    }
}
