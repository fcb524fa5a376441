//! `farcall proxy`: gRPC clients in front, a target at any address behind.
//!
//! The server has one method, which answers the calls of all paths. Messages pass as their
//! encoding. Whether a side streams is known to the target alone, so that the proxy needs no schema
//! and passes on methods that the target gets later.

use std::sync::Arc;

use farcall::metadata::MetadataMap;
use farcall::server::{ANY_METHOD_PATH, CALLED_PATH_KEY, HandlerFuture, ServerCall};
use farcall::tls::{ServerTls, ServerTlsConfig};
use farcall::{
    Address, AddressError, CallKind, Channel, Extensions, Idempotency, LateTrailers, Method,
    MethodDescriptor, Request, Response, Server, ServerBuilder, Service, ServiceDescriptor, Status,
    Streaming, client,
};
use futures::Stream;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

use crate::args::{Global, ProxyArgs};
use crate::failure::Failure;
use crate::method::Raw;
use crate::output::Output;
use crate::target;

/// Services that answer clients by their address. To the target, the proxy's clients are the proxy,
/// which may be an operator where its clients are none.
const FOR_OPERATORS: [&str; 2] = ["/farcall.admin.", "/grpc.channelz."];

static ANY_SERVICE: ServiceDescriptor = ServiceDescriptor { name: "*", methods: &ANY_METHODS };

static ANY_METHODS: [MethodDescriptor; 1] =
    [MethodDescriptor::new(ANY_METHOD_PATH, CallKind::Streaming, Idempotency::Unknown)];

/// The service that passes calls on.
struct Proxy(Arc<Target>);

/// The target, and what each call to it has.
struct Target {
    channel: Channel,
    headers: Global,
}

pub(crate) async fn run(global: &Global, args: &ProxyArgs, output: &Output) -> Result<(), Failure> {
    log_to_standard_error(global.verbose);
    let builder = target::builder(global, &args.target)?;
    let builder = match global.timeout {
        Some(timeout) => builder.timeout(timeout),
        None => builder,
    };
    // Lazily: a target that is down now may be up for the first call.
    let channel = target::lazy(builder, global, &args.target);
    let target = Target { channel, headers: global.clone() };
    let address = match args.listen.contains("://") || args.listen.starts_with("unix") {
        true => args.listen.clone(),
        false => format!("tcp://{}", args.listen),
    };
    let address: Address =
        address.parse().map_err(|error: AddressError| Failure::usage(error.to_string()))?;
    let listener = server(global, args)?.add_service(Proxy(Arc::new(target))).bind(address).await;
    let listener = listener.map_err(|error| Failure::connect(error.to_string()))?;
    output.line(&format!("listening at {} for {}", listener.local_address(), args.target))?;
    let served = listener.serve().with_graceful_shutdown(stop_signal()).await;
    served.map_err(|error| Failure::connect(error.to_string()))
}

/// Returns the builder of the server in front.
fn server(global: &Global, args: &ProxyArgs) -> Result<ServerBuilder, Failure> {
    // The channel logs calls that fail, with their paths.
    let server = Server::builder().log_failed_calls(false);
    let mut server = server.drain_timeout(args.drain_timeout);
    if let Some(len) = global.max_message_len {
        server = server.max_message_len(len);
    }
    if let (Some(cert), Some(key)) = (&args.listen_cert, &args.listen_key) {
        let config = ServerTlsConfig::new(cert.as_path(), key.as_path());
        let tls = ServerTls::new(config).map_err(|error| Failure::usage(error.to_string()))?;
        server = server.tls(&tls);
    }
    Ok(server)
}

/// Writes farcall's log lines to the standard error: warnings, and more with `-v`.
fn log_to_standard_error(verbosity: u8) {
    let level = match verbosity {
        0 => "farcall=warn",
        1 => "farcall=info",
        _ => "farcall=debug",
    };
    let log = tracing_subscriber::fmt().with_env_filter(EnvFilter::new(level));
    // It fails if there is a subscriber already, which then has the lines.
    let _ = log.with_writer(std::io::stderr).with_ansi(false).try_init();
}

/// Waits for Ctrl-C, or for SIGTERM, as service managers send it.
async fn stop_signal() {
    let terminate = async {
        match signal(SignalKind::terminate()) {
            Ok(mut terminate) => drop(terminate.recv().await),
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        () = terminate => {}
        _ = tokio::signal::ctrl_c() => {}
    }
}

impl Service for Proxy {
    fn descriptor(&self) -> &'static ServiceDescriptor {
        &ANY_SERVICE
    }

    fn call(&self, _: usize, call: ServerCall) -> HandlerFuture {
        let target = Arc::clone(&self.0);
        call.streaming(|request| async move { target.forward(request).await })
    }
}

impl Target {
    /// Makes the call that `request` is. The client's deadline holds for it, too: it is that of the
    /// handler that this runs in.
    async fn forward(
        &self,
        request: Request<Streaming<Raw>>,
    ) -> Result<Response<impl Stream<Item = Result<Raw, Status>> + Send + use<>>, Status> {
        let (mut metadata, _, messages) = request.into_parts();
        let method = called(&mut metadata)?;
        self.headers.add_headers(&mut metadata);
        let request = Request::from_parts(metadata, Extensions::default(), messages);
        let response = client::untyped(&self.channel, method, request).await?;
        let (metadata, messages, _) = response.into_parts();
        let trailers = LateTrailers::default();
        let mut extensions = Extensions::default();
        extensions.insert(trailers.clone());
        Ok(Response::from_parts(metadata, trailers.follow(messages), extensions))
    }
}

/// Takes the method of a call out of its metadata.
fn called(metadata: &mut MetadataMap) -> Result<Method, Status> {
    let path = metadata.remove(CALLED_PATH_KEY);
    let path = path.as_ref().and_then(|path| path.to_str().ok());
    let path = path.ok_or_else(|| Status::unimplemented("the call names no method"))?;
    if FOR_OPERATORS.iter().any(|prefix| path.starts_with(prefix)) {
        let message = format!("the proxy does not pass on {path}: ask the target itself");
        return Err(Status::unimplemented(message));
    }
    Method::by_path(path)
}
