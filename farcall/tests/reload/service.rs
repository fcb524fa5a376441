//! A service that says which server it is, and one call that waits until it is told to answer.

use std::sync::Arc;
use std::time::Duration;

use farcall::client::unary;
use farcall::codegen::{HandlerFuture, ServerCall};
use farcall::{
    CallKind, Caller, Idempotency, MethodDescriptor, Request, Response, Server, Service,
    ServiceDescriptor, Status,
};
use tokio::sync::Semaphore;

/// No wait of these tests is longer.
const LIMIT: Duration = Duration::from_secs(30);

static SERVICE: ServiceDescriptor = ServiceDescriptor {
    name: "t.Named",
    methods: &[method("/t.Named/Name"), method("/t.Named/Wait")],
};

const fn method(path: &'static str) -> MethodDescriptor {
    let (kind, idempotency) = (CallKind::Unary, Idempotency::Unknown);
    MethodDescriptor::new(path, kind, idempotency)
}

/// The service of the server with that name.
#[derive(Clone)]
pub(crate) struct Named {
    name: &'static str,
    /// Calls that wait and have begun.
    pub(crate) waiting: Arc<Semaphore>,
    /// Calls that may answer.
    pub(crate) answers: Arc<Semaphore>,
}

impl Named {
    pub(crate) fn new(name: &'static str) -> Self {
        let [waiting, answers] = [(); 2].map(|()| Arc::new(Semaphore::new(0)));
        Self { name, waiting, answers }
    }

    /// Waits until one more call waits for its answer; a test that waits in vain fails.
    pub(crate) async fn has_begun(&self) {
        let begun = tokio::time::timeout(LIMIT, self.waiting.acquire()).await;
        begun.expect("a call begins").unwrap().forget();
    }
}

impl Service for Named {
    fn descriptor(&self) -> &'static ServiceDescriptor {
        &SERVICE
    }

    fn call(&self, method: usize, call: ServerCall) -> HandlerFuture {
        let this = self.clone();
        call.unary(async move |_: Request<()>| {
            if method == 1 {
                this.waiting.add_permits(1);
                this.answers.acquire().await.unwrap().forget();
            }
            Ok(Response::new(this.name.to_owned()))
        })
    }
}

/// A server at a port of loopback, of no settings. Returns its port.
pub(crate) async fn serve(service: Named) -> u16 {
    let listener = Server::builder().add_service(service).bind("tcp://127.0.0.1:0").await.unwrap();
    let address = listener.local_address().to_string();
    tokio::spawn(listener.serve());
    address.rsplit(':').next().unwrap().parse().unwrap()
}

/// Returns the name of the server that answers.
pub(crate) async fn name(channel: &impl Caller) -> Result<String, Status> {
    Ok(unary::<_, String>(channel, &SERVICE.methods[0], Request::new(())).await?.into_inner())
}

/// Returns the name of the server that answers once it is allowed to.
pub(crate) async fn wait(channel: &impl Caller) -> Result<String, Status> {
    Ok(unary::<_, String>(channel, &SERVICE.methods[1], Request::new(())).await?.into_inner())
}
