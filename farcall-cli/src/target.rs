//! Targets: addresses and names of a settings file, and the channels to them.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use farcall::balance::{Connectivity, EndpointStatus};
use farcall::tls::{ClientTls, ClientTlsConfig};
use farcall::{Address, Channel, ChannelBuilder, Path, Settings};
use tokio::net::UnixStream;

use crate::args::Global;
use crate::failure::Failure;

/// Bound on a connection if the flags set none.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Interval between looks at the servers of a channel.
const SETTLE_INTERVAL: Duration = Duration::from_millis(5);

/// A connected channel, and how long connecting took.
pub(crate) struct Connected {
    pub(crate) channel: Channel,
    pub(crate) took: Duration,
}

/// Connects to `target` with the settings of the flags.
pub(crate) async fn connect(global: &Global, target: &str) -> Result<Connected, Failure> {
    let builder = builder(global, target)?;
    let limit = connect_limit(global);
    let start = Instant::now();
    let connecting = async {
        match socket(global, target) {
            Some(path) => Ok(at_socket(builder, path)),
            None => builder.connect().await,
        }
    };
    let channel = match tokio::time::timeout(limit, connecting).await {
        Ok(connected) => connected.map_err(|error| Failure::connect(error.to_string()))?,
        Err(_) => {
            let limit = humantime::format_duration(limit);
            let message = format!("cannot connect to {target} within {limit} (--connect-timeout)");
            return Err(Failure::connect(message));
        }
    };
    Ok(Connected { channel, took: start.elapsed() })
}

/// Returns a channel to `target` that connects at its first call.
pub(crate) fn lazy(builder: ChannelBuilder, global: &Global, target: &str) -> Channel {
    match socket(global, target) {
        Some(path) => at_socket(builder, path),
        None => builder.connect_lazy(),
    }
}

/// Returns the path of the Unix socket that `--unix` makes of a target, with gRPC's prefixes.
fn socket(global: &Global, target: &str) -> Option<String> {
    let path = target.strip_prefix("unix:").unwrap_or(target);
    global.unix.then(|| path.strip_prefix("//").unwrap_or(path).to_owned())
}

/// Returns a channel over connections to the socket at `path`.
fn at_socket(builder: ChannelBuilder, path: String) -> Channel {
    let path = Arc::<str>::from(path);
    builder.connect_with_connector(move || {
        let path = Arc::clone(&path);
        async move {
            let opened = UnixStream::connect(&*path).await;
            opened.map_err(|error| io::Error::new(error.kind(), format!("{path}: {error}")))
        }
    })
}

/// Connects to every server of `target`. Returns the address of each, and a channel to it alone.
pub(crate) async fn servers(
    global: &Global,
    target: &str,
) -> Result<Vec<(String, Channel)>, Failure> {
    let tls = builder(global, target)?.tls_handle().cloned();
    let Connected { channel, .. } = connect(global, target).await?;
    let endpoints = settled(&channel, connect_limit(global)).await;
    let addresses: Vec<_> = endpoints.iter().map(|it| it.endpoint.address.to_string()).collect();
    let [_, _, ..] = addresses.as_slice() else {
        let address = addresses.into_iter().next().unwrap_or_else(|| target.to_owned());
        return Ok(vec![(address, channel)]);
    };
    let mut servers = Vec::new();
    for address in addresses {
        let builder = addressed(global, &address)?;
        let builder = match (&tls, global.max_message_len) {
            (Some(tls), Some(len)) => builder.tls(tls).max_message_len(len),
            (Some(tls), None) => builder.tls(tls),
            (None, Some(len)) => builder.max_message_len(len),
            (None, None) => builder,
        };
        servers.push((address, builder.connect_lazy()));
    }
    Ok(servers)
}

/// Returns the bound on a connection.
pub(crate) fn connect_limit(global: &Global) -> Duration {
    global.connect_timeout.or(global.timeout).unwrap_or(CONNECT_TIMEOUT)
}

/// Returns the builder of a channel to `target`, with the settings of the flags.
pub(crate) fn builder(global: &Global, target: &str) -> Result<ChannelBuilder, Failure> {
    if global.insecure {
        let message = "farcall verifies every certificate: there is no --insecure. Trust the \
                       server's own certificate with --ca FILE, or use --plaintext without TLS";
        return Err(Failure::usage(message));
    }
    let builder = match target.strip_prefix('@') {
        Some(name) => named(global, name)?,
        None => addressed(global, target)?,
    };
    let builder = match tls(global, &builder)? {
        Some(tls) => builder.tls(&tls),
        None => builder,
    };
    Ok(match global.max_message_len {
        Some(len) => builder.max_message_len(len),
        None => builder,
    })
}

/// Returns the target of that name in the settings file.
fn named(global: &Global, name: &str) -> Result<ChannelBuilder, Failure> {
    let builder = settings(global)?.channel_builder(name);
    builder.map_err(|error| Failure::usage(error.to_string()))
}

/// Reads the settings file.
pub(crate) fn settings(global: &Global) -> Result<Settings, Failure> {
    let settings = Settings::load(&global.config);
    let settings = settings.map_err(|error| {
        let hint = if global.config.exists() { "" } else { ": --config names another file" };
        Failure::usage(format!("{error}{hint}"))
    })?;
    Ok(settings.with_scheme(farcall_etcd::scheme()).with_scheme(farcall_xds::scheme()))
}

fn addressed(global: &Global, target: &str) -> Result<ChannelBuilder, Failure> {
    if global.unix {
        // The authority of the calls, as gRPC's clients have it.
        let builder = Channel::builder("grpc://localhost:80");
        return builder.map_err(|error| Failure::usage(error.to_string()));
    }
    let text = match target.contains("://") || target.starts_with("unix") {
        true => target.to_owned(),
        false if global.plaintext => format!("grpc://{target}"),
        false if global.grpcurl_order => format!("grpcs://{target}"),
        false => format!("auto://{target}"),
    };
    let builder = Channel::builder(text).map_err(|error| Failure::usage(error.to_string()))?;
    if global.plaintext && matches!(builder.address(), Address::Grpcs(_)) {
        return Err(Failure::usage(format!("--plaintext conflicts with {target}, which uses TLS")));
    }
    Ok(builder.scheme(farcall_etcd::scheme()).scheme(farcall_xds::scheme()))
}

/// Returns the TLS of the flags, or of a `grpcs://` address that has none yet.
fn tls(global: &Global, builder: &ChannelBuilder) -> Result<Option<ClientTls>, Failure> {
    let address = builder.address();
    let needs_tls = matches!(address, Address::Grpcs(_)) && builder.tls_handle().is_none();
    let has_flags = global.ca.is_some() || global.cert.is_some() || global.server_name.is_some();
    if !has_flags && !needs_tls {
        return Ok(None);
    }
    if matches!(address, Address::Grpc(_)) {
        // As grpcurl does, whose `-authority` is of use without TLS, too.
        let message = "--ca and --cert need TLS: use grpcs://, not grpc:// or --plaintext";
        let has_files = global.ca.is_some() || global.cert.is_some();
        return if has_files { Err(Failure::usage(message)) } else { Ok(None) };
    }
    let mut config = ClientTlsConfig::default();
    if let Some(ca) = &global.ca {
        config = config.with_ca(ca.as_path());
    }
    if let (Some(cert), Some(key)) = (&global.cert, &global.key) {
        config = config.with_cert(cert.as_path(), key.as_path());
    }
    if let Some(name) = &global.server_name {
        config = config.with_server_name(name);
    }
    ClientTls::new(config).map(Some).map_err(|error| Failure::usage(error.to_string()))
}

/// Returns why calls take `path`, in a few words.
pub(crate) fn reason(path: &Path) -> String {
    match path {
        Path::Upgraded { .. } => "both sides offered RDMA".into(),
        Path::Direct { transport } => format!("the address asks for {transport}"),
        path => path.reason().unwrap_or("not connected").to_owned(),
    }
}

/// Waits until every server has been connected to, or has failed, for at most `limit`.
pub(crate) async fn settled(channel: &Channel, limit: Duration) -> Vec<EndpointStatus> {
    let deadline = Instant::now() + limit;
    loop {
        let servers = channel.endpoints();
        let is_connecting =
            servers.iter().any(|server| server.connectivity == Connectivity::Connecting);
        if !is_connecting || Instant::now() >= deadline {
            return servers;
        }
        // A channel tells of its best server alone.
        tokio::time::sleep(SETTLE_INTERVAL).await;
    }
}
