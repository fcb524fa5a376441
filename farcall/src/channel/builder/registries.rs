//! Resolvers that ask over a channel of their own: etcd, and the control planes of xDS.

#[cfg(any(feature = "etcd", feature = "xds"))]
use std::time::Duration;

#[cfg(feature = "xds")]
use rpc_core::client::Subchannel;
#[cfg(feature = "xds")]
use rpc_transport_grpc::{GrpcConnector, Scheme};
#[cfg(feature = "xds")]
use rpc_transport_tcp::UnixConnector;

use super::ChannelBuilder;
use crate::Address;
#[cfg(feature = "xds")]
use crate::Channel;
#[cfg(any(feature = "etcd", feature = "xds"))]
use crate::ConnectBackoff;
use crate::channel::resolvers::{resolver_of, unresolvable};
use crate::resolve::{EtcdName, Resolve, ResolveError, XdsName};
#[cfg(feature = "xds")]
use crate::resolve::{Xds, XdsBootstrap, XdsControlPlane, XdsCredentials};

impl ChannelBuilder {
    /// What tells the servers of `address`.
    pub(super) fn resolver_of(address: &Address) -> Box<dyn Resolve> {
        match address {
            Address::Etcd(name) => registered(name),
            Address::Xds(name) => {
                controlled(name).unwrap_or_else(|error| unresolvable(name.to_string(), error))
            }
            other => resolver_of(other),
        }
    }
}

/// The settings of a channel to what is asked: the default ones, but for the backoff. The
/// resolver's own pauses come on top, and servers are known again within seconds of its return.
#[cfg(any(feature = "etcd", feature = "xds"))]
fn asked_at(address: Address) -> ChannelBuilder {
    let backoff = ConnectBackoff::new().with_max_delay(Duration::from_secs(5));
    ChannelBuilder::new(address).connect_backoff(backoff)
}

/// The servers that are registered with etcd. [`Etcd`](crate::resolve::Etcd) takes a channel with
/// other settings.
#[cfg(feature = "etcd")]
fn registered(name: &EtcdName) -> Box<dyn Resolve> {
    let etcd = asked_at(Address::Grpc(name.endpoint.clone())).connect_lazy();
    let resolver = crate::resolve::Etcd::new(etcd, name.prefix.clone(), name.scheme);
    Box::new(resolver.named(name.to_string()))
}

#[cfg(not(feature = "etcd"))]
fn registered(name: &EtcdName) -> Box<dyn Resolve> {
    let error = ResolveError::new("this program was built without farcall's feature `etcd`");
    unresolvable(name.to_string(), error)
}

/// The servers that a control plane tells: the one of the address, or that of the bootstrap file.
/// [`Xds`] takes a channel with other settings.
#[cfg(feature = "xds")]
fn controlled(name: &XdsName) -> Result<Box<dyn Resolve>, ResolveError> {
    let resolver = match &name.control_plane {
        Some(authority) => {
            let channel = asked_at(Address::Grpc(authority.clone())).connect_lazy();
            Xds::new(channel, name.name.clone(), name.scheme)
        }
        None => {
            let bootstrap = XdsBootstrap::from_env()?;
            let channel = channel_to(bootstrap.control_plane())?;
            let listener = bootstrap.listener_of(&name.name);
            let resolver = Xds::new(channel, name.name.clone(), name.scheme);
            resolver.with_listener(listener).with_node(bootstrap.node().clone())
        }
    };
    Ok(Box::new(resolver.named(name.to_string())))
}

#[cfg(not(feature = "xds"))]
fn controlled(_: &XdsName) -> Result<Box<dyn Resolve>, ResolveError> {
    Err(ResolveError::new("this program was built without farcall's feature `xds`"))
}

/// The channel to the control plane of a bootstrap file.
#[cfg(feature = "xds")]
fn channel_to(control_plane: &XdsControlPlane) -> Result<Channel, ResolveError> {
    match control_plane {
        XdsControlPlane::Tcp { authority, credentials: XdsCredentials::Insecure } => {
            Ok(asked_at(Address::Grpc(authority.clone())).connect_lazy())
        }
        XdsControlPlane::Tcp { authority, credentials: XdsCredentials::Tls { ca, cert } } => {
            over_tls(authority, ca.as_deref(), cert.as_ref())
        }
        // A user's own host: the agent beside the program, which has TLS to the control plane.
        XdsControlPlane::Unix { path } => {
            let builder = asked_at(Address::Grpc("localhost".to_owned()));
            let (rules, made) = builder.prepare();
            let streams = UnixConnector::new(path.clone(), rules.clone());
            let connector = GrpcConnector::new(Scheme::Plain, "localhost", streams, rules);
            let connector = connector.with_name(format!("unix://{path}"));
            Ok(made.finish(Subchannel::new(connector)))
        }
    }
}

#[cfg(all(feature = "xds", feature = "tls"))]
fn over_tls(
    authority: &str,
    ca: Option<&str>,
    cert: Option<&(String, String)>,
) -> Result<Channel, ResolveError> {
    use crate::tls::{ClientTls, ClientTlsConfig};

    let mut config = ClientTlsConfig::default();
    if let Some(ca) = ca {
        config = config.with_ca(ca);
    }
    if let Some((cert, key)) = cert {
        config = config.with_cert(cert.as_str(), key.as_str());
    }
    let tls = ClientTls::new(config).map_err(|error| {
        ResolveError::new(format!("the TLS to the control plane {authority}: {error}"))
    })?;
    Ok(asked_at(Address::Grpcs(authority.to_owned())).tls(&tls).connect_lazy())
}

#[cfg(all(feature = "xds", not(feature = "tls")))]
fn over_tls(
    authority: &str,
    _: Option<&str>,
    _: Option<&(String, String)>,
) -> Result<Channel, ResolveError> {
    let words = "its credentials are tls, and this program was built without farcall's feature";
    Err(ResolveError::new(format!("the control plane {authority}: {words} `tls`")))
}

#[cfg(all(feature = "xds", feature = "tls"))]
#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use farcall_testkit::certificates::{Authority as Issuer, Leaf, Wanted};

    use super::*;
    use crate::client::unary;
    use crate::codegen::{HandlerFuture, ServerCall};
    use crate::tls::{Pem, ServerTls, ServerTlsConfig};
    use crate::{
        CallKind, Code, Detach, Idempotency, MethodDescriptor, Request, Response, Server, Service,
        ServiceDescriptor, Status,
    };

    static SERVICE: ServiceDescriptor = ServiceDescriptor { name: "t.Echo", methods: &[ECHO] };

    const ECHO: MethodDescriptor = MethodDescriptor {
        path: "/t.Echo/Echo",
        kind: CallKind::Unary,
        idempotency: Idempotency::Idempotent,
        detach: Detach::NONE,
    };

    static METHOD: MethodDescriptor = ECHO;

    struct Echo;

    impl Service for Echo {
        fn descriptor(&self) -> &'static ServiceDescriptor {
            &SERVICE
        }

        fn call(&self, _: usize, call: ServerCall) -> HandlerFuture {
            call.unary(async |request: Request<u64>| Ok(Response::new(request.into_inner())))
        }
    }

    /// An authority with its certificate in a file, which is deleted with it.
    struct Authority {
        issuer: Issuer,
        file: PathBuf,
    }

    impl Authority {
        fn new(name: &str) -> Self {
            let issuer = Issuer::new(name).unwrap();
            let name = format!("farcall-xds-{name}-{}.pem", std::process::id());
            let file = std::env::temp_dir().join(name);
            std::fs::write(&file, issuer.pem()).unwrap();
            Self { issuer, file }
        }

        fn server_tls(&self) -> ServerTls {
            let Leaf { cert, key } = self.issuer.issue(Wanted::named("localhost")).unwrap();
            let (cert, key) = (Pem::bytes(cert), Pem::bytes(key));
            ServerTls::new(ServerTlsConfig::new(cert, key)).unwrap()
        }
    }

    impl Drop for Authority {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.file);
        }
    }

    /// Calls a control plane whose certificate has to be of this authority.
    async fn call(authority: &str, trusted: &Authority) -> Result<u64, Status> {
        let credentials = format!(
            r#"{{ "type": "tls", "config": {{ "ca_certificate_file": "{}" }} }}"#,
            trusted.file.display()
        );
        let text = format!(
            r#"{{ "xds_servers": [
                {{ "server_uri": "{authority}", "channel_creds": [{credentials}] }}
            ] }}"#
        );
        let bootstrap = XdsBootstrap::from_json("bootstrap.json", &text).unwrap();
        let channel = channel_to(bootstrap.control_plane()).unwrap();
        let called = unary(&channel, &METHOD, Request::new(7_u64));
        let bound = Duration::from_secs(60);
        let ended = tokio::time::timeout(bound, called).await.expect("it ends in time");
        ended.map(Response::into_inner)
    }

    #[tokio::test]
    async fn a_control_plane_with_tls_is_checked_with_the_authorities_of_the_bootstrap_file() {
        let (ours, other) = (Authority::new("ours"), Authority::new("other"));
        let builder = Server::builder().add_service(Echo).tls(&ours.server_tls());
        let listener = builder.bind("tcp://127.0.0.1:0").await.unwrap();
        let address = listener.local_address().to_string();
        let port = address.rsplit(':').next().unwrap();
        let authority = format!("localhost:{port}");
        tokio::spawn(listener.serve());
        assert_eq!(call(&authority, &ours).await.unwrap(), 7);
        let status = call(&authority, &other).await.unwrap_err();
        assert_eq!(status.code(), Code::Unavailable);
        assert!(status.message().contains("certificate"), "{}", status.message());
    }

    #[test]
    fn files_that_cannot_be_read_are_named() {
        let missing = "/nonexistent/ca.pem";
        let error = over_tls("control.test:443", Some(missing), None).unwrap_err().to_string();
        let words = ["the TLS to the control plane control.test:443: ", missing];
        assert!(words.iter().all(|words| error.contains(words)), "{error}");
    }
}
