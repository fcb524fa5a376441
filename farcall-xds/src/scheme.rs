//! `xds://`: addresses of services that a control plane knows, and the channel to it.

use std::io;
use std::time::Duration;

use farcall::balance::Endpoint;
use farcall::resolve::{CustomAddress, CustomScheme, Refresh, Resolve, ResolveError};
use farcall::{Address, AddressError, Backoff, Channel, ChannelBuilder};
use futures::future::BoxFuture;
use tokio::net::UnixStream;

use crate::bootstrap::{XdsBootstrap, XdsControlPlane, XdsCredentials};
use crate::resolver::Xds;

/// Returns the scheme `xds:///name`, for the servers that a control plane assigns to a service.
///
/// gRPC's bootstrap file ([`XdsBootstrap`]) names the control plane. `xds://host:port/name` uses
/// the one at `host:port`, without TLS. [`Xds`] takes a channel to the control plane with its own
/// settings, and a node.
#[must_use]
pub fn scheme() -> CustomScheme {
    CustomScheme::new("xds", resolver).with_service_name(service_name)
}

/// Parses an address into the control plane, if it names one, and the service's name at the control
/// plane.
fn parse(address: &CustomAddress) -> Result<(Option<String>, &str), String> {
    let scheme = address.to_string();
    let scheme = scheme.split("://").next().unwrap_or("xds");
    let Some((authority, name)) = address.rest.split_once('/') else {
        return Err(format!(
            "{scheme}:// is followed by a slash and the name, or by the host and port of the \
             control plane before them: write {scheme}:///{}",
            address.rest
        ));
    };
    if name.is_empty() || name.contains(char::is_whitespace) {
        return Err(format!("{scheme}:/// needs a name, such as {scheme}:///inventory:7000"));
    }
    if authority.is_empty() {
        return Ok((None, name));
    }
    match format!("grpc://{authority}").parse() {
        Ok(Address::Grpc(authority)) => Ok((Some(authority), name)),
        Ok(_) => Err("xds:// takes one control plane's host and port".to_owned()),
        Err(error) => Err(format!("the host and port of the control plane: {error}")),
    }
}

fn service_name(address: &CustomAddress) -> Option<String> {
    parse(address).ok().map(|(_, name)| name.to_owned())
}

fn resolver(address: &CustomAddress) -> Result<Box<dyn Resolve>, AddressError> {
    let target = address.to_string();
    let parsed = parse(address).map_err(|reason| AddressError::new(target.clone(), reason));
    let (authority, name) = parsed?;
    let resolver = match authority {
        Some(authority) => {
            let channel = builder(Address::Grpc(authority)).connect_lazy();
            Ok(Xds::new(channel, name, address.scheme))
        }
        None => by_bootstrap(name, address),
    };
    Ok(match resolver {
        Ok(resolver) => Box::new(resolver.named(target)),
        Err(error) => Box::new(Failed { name: target, error }),
    })
}

/// Builds the resolver of a service whose control plane comes from the bootstrap file.
fn by_bootstrap(name: &str, address: &CustomAddress) -> Result<Xds, ResolveError> {
    let bootstrap = XdsBootstrap::from_env()?;
    let channel = channel_to(bootstrap.control_plane())?;
    let listener = bootstrap.listener_of(name);
    let resolver = Xds::new(channel, name, address.scheme);
    Ok(resolver.with_listener(listener).with_node(bootstrap.node().clone()))
}

/// A resolver that always fails, for a control plane that cannot be reached.
struct Failed {
    name: String,
    error: ResolveError,
}

impl Resolve for Failed {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn next<'a>(
        &'a mut self,
        _refresh: &'a Refresh,
    ) -> BoxFuture<'a, Result<Vec<Endpoint>, ResolveError>> {
        Box::pin(std::future::ready(Err(self.error.clone())))
    }
}

/// Returns a builder for a channel to a control plane. Its backoff is short, because the resolver's
/// own delays come on top: servers are known within seconds of the control plane's return.
fn builder(address: Address) -> ChannelBuilder {
    let backoff = Backoff::default().with_max_delay(Duration::from_secs(5));
    ChannelBuilder::new(address).connect_backoff(backoff)
}

/// Builds the channel to the control plane of a bootstrap file.
fn channel_to(control_plane: &XdsControlPlane) -> Result<Channel, ResolveError> {
    match control_plane {
        XdsControlPlane::Tcp { authority, credentials: XdsCredentials::Insecure } => {
            Ok(builder(Address::Grpc(authority.clone())).connect_lazy())
        }
        XdsControlPlane::Tcp { authority, credentials: XdsCredentials::Tls { ca, cert } } => {
            over_tls(authority, ca.as_deref(), cert.as_ref())
        }
        // The agent runs on the same host, and uses TLS to the control plane.
        XdsControlPlane::Unix { path } => {
            let path = path.clone();
            let open = move || {
                let path = path.clone();
                async move {
                    // An abstract name begins with a zero byte.
                    let abstract_name = path.strip_prefix('@').map(|name| format!("\0{name}"));
                    let stream = UnixStream::connect(abstract_name.as_ref().unwrap_or(&path)).await;
                    stream.map_err(|error| {
                        io::Error::new(error.kind(), format!("unix://{path}: {error}"))
                    })
                }
            };
            Ok(builder(Address::Grpc("localhost".to_owned())).connect_with_connector(open))
        }
    }
}

#[cfg(feature = "tls")]
fn over_tls(
    authority: &str,
    ca: Option<&str>,
    cert: Option<&(String, String)>,
) -> Result<Channel, ResolveError> {
    use farcall::tls::{ClientTls, ClientTlsConfig};

    let mut config = ClientTlsConfig::default();
    if let Some(ca) = ca {
        config = config.with_ca(ca);
    }
    if let Some((cert, key)) = cert {
        config = config.with_cert(cert.as_str(), key.as_str());
    }
    let tls = ClientTls::new(config).map_err(|error| {
        ResolveError::new(format!("TLS to the control plane {authority}: {error}"))
    })?;
    Ok(builder(Address::Grpcs(authority.to_owned())).tls(&tls).connect_lazy())
}

#[cfg(not(feature = "tls"))]
fn over_tls(
    authority: &str,
    _: Option<&str>,
    _: Option<&(String, String)>,
) -> Result<Channel, ResolveError> {
    let problem =
        "its credentials are tls, but this program was built without farcall-xds's feature";
    Err(ResolveError::new(format!("the control plane {authority}: {problem} `tls`")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn custom(text: &str) -> CustomAddress {
        let Ok(Address::Custom(address)) = text.parse() else { panic!("{text} is custom") };
        address
    }

    #[test]
    fn addresses_name_a_control_plane_and_a_service() {
        for (text, authority, name) in [
            ("xds:///inventory.shop:7000", None, "inventory.shop:7000"),
            ("xds+tcp://127.0.0.1:18000/inventory", Some("127.0.0.1:18000"), "inventory"),
            ("xds+grpcs:///shop/inventory:v2", None, "shop/inventory:v2"),
        ] {
            let address = custom(text);
            assert_eq!(parse(&address), Ok((authority.map(str::to_owned), name)));
            assert_eq!(service_name(&address).as_deref(), Some(name));
        }
    }

    #[test]
    fn invalid_addresses_are_refused_with_a_reason() {
        for (text, reason) in [
            ("xds://inventory", "before them: write xds:///inventory"),
            ("xds+rdma:///", "needs a name, such as xds+rdma:///inventory:7000"),
            ("xds:///a b", "needs a name, such as xds:///inventory:7000"),
            ("xds://control-plane/inventory", "port is missing"),
            ("xds://a:1,b:1/inventory", "xds:// takes one control plane's host and port"),
        ] {
            let error = resolver(&custom(text)).err().unwrap().to_string();
            let expected = format!("`{text}` is not an address: ");
            assert!(error.starts_with(&expected) && error.contains(reason), "{error}");
        }
    }
}

#[cfg(feature = "tls")]
#[cfg(test)]
mod tls_tests {
    use std::path::PathBuf;

    use farcall_testkit::certificates::{Authority as Issuer, Leaf, Wanted};

    use super::*;
    use farcall::client::unary;
    use farcall::codegen::{HandlerFuture, ServerCall};
    use farcall::tls::{Pem, ServerTls, ServerTlsConfig};
    use farcall::{
        CallKind, Code, Idempotency, MethodDescriptor, Request, Response, Server, Service,
        ServiceDescriptor, Status,
    };

    static SERVICE: ServiceDescriptor = ServiceDescriptor { name: "t.Echo", methods: &[ECHO] };

    const ECHO: MethodDescriptor =
        MethodDescriptor::new("/t.Echo/Echo", CallKind::Unary, Idempotency::Idempotent);

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

    /// An authority with its certificate in a file. The file is deleted on drop.
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

    /// Calls a control plane whose certificate must come from this authority.
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
    async fn the_bootstraps_authorities_verify_the_control_plane() {
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
    fn unreadable_files_are_named() {
        let missing = "/nonexistent/ca.pem";
        let error = over_tls("control.test:443", Some(missing), None).unwrap_err().to_string();
        let parts = ["TLS to the control plane control.test:443: ", missing];
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    }
}
