//! Layers around all services, one service, and some methods, on servers and on clients.

use std::time::Duration;

use futures::StreamExt;
use rpc_core::client::{Caller, ClientCall, unary};
use rpc_core::layer::for_methods;
use rpc_core::metadata::MetadataMap;
use rpc_core::server::{
    ServerParts, ServerRequest, Service, intercepted, layered, layered_methods,
};
use rpc_core::{Code, Request, Response, Status};
use tower::ServiceBuilder;
use tower::layer::util::{Identity, Stack};
use tower::limit::ConcurrencyLimitLayer;
use tower::timeout::TimeoutLayer;
use tower::util::MapRequestLayer;

use crate::numbers::{Numbers, NumbersStub, OTHERS, Others, SERVICE, STEP, at_once, collect};
use crate::serving::Serving;

fn numbers() -> Numbers {
    Numbers::new().0
}

/// Adds a name to those of the layers that a call has passed.
fn pass(name: &str, metadata: &mut MetadataMap) {
    let passed = metadata.get("x-layers").map(|passed| passed.to_str().unwrap().to_owned());
    let passed = passed.map_or_else(|| name.to_owned(), |passed| format!("{passed} {name}"));
    metadata.insert("x-layers", passed.parse().unwrap());
}

fn on_server(
    name: &'static str,
) -> MapRequestLayer<impl FnMut(ServerRequest) -> ServerRequest + Clone> {
    MapRequestLayer::new(move |mut request: ServerRequest| {
        pass(name, request.metadata_mut());
        request
    })
}

fn on_client(name: &'static str) -> MapRequestLayer<impl FnMut(ClientCall) -> ClientCall + Clone> {
    MapRequestLayer::new(move |mut call: ClientCall| {
        pass(name, call.metadata_mut());
        call
    })
}

/// The layers that a call has passed on its way to the handler.
fn passed(answer: Result<Response<u64>, Status>) -> String {
    let answer = answer.unwrap();
    assert_eq!(*answer.get_ref(), 8);
    let passed = answer.metadata().get("x-layers");
    passed.map_or_else(String::new, |passed| passed.to_str().unwrap().to_owned())
}

async fn double(stub: &NumbersStub<impl Caller>) -> String {
    passed(stub.double_request(Request::new(4)).await)
}

fn serve(service: impl Service) -> Serving {
    Serving::start(ServerParts::default().add_service(service))
}

/// A layer that changes nothing.
fn nothing() -> Stack<TimeoutLayer, Identity> {
    Stack::new(TimeoutLayer::new(Duration::from_secs(3600)), Identity::new())
}

/// Calls of every kind, which end well.
async fn check_every_kind(stub: &NumbersStub<impl Caller>) {
    assert_eq!(stub.double(4).await.unwrap(), 8);
    let mut messages = stub.count(2).await.unwrap();
    assert_eq!(collect(&mut messages).await.0, [0, 1]);
    let trailers = messages.trailers().await.unwrap().unwrap();
    assert_eq!(trailers.get("x-end").unwrap(), "yes");
    assert_eq!(stub.sum(at_once(0..5)).await.unwrap(), 10);
    assert_eq!(collect(stub.sums(at_once(1..4)).await.unwrap()).await.0, [1, 3, 6]);
}

#[tokio::test]
async fn a_layer_of_one_service_leaves_the_others_alone() {
    let server = ServerParts::default()
        .add_service(layered(numbers(), on_server("numbers")))
        .add_service(Others(numbers()));
    let serving = Serving::start(server);
    let channel = serving.channel();
    assert_eq!(double(&NumbersStub(channel.clone())).await, "numbers");
    assert_eq!(passed(unary(&channel, &OTHERS.methods[0], Request::new(4_u64)).await), "");
}

#[tokio::test(start_paused = true)]
async fn layers_of_servers_services_and_methods_nest() {
    let service = layered_methods(numbers(), ["Double"], on_server("method")).unwrap();
    let service = layered(service, on_server("service"));
    let service = intercepted(service, |mut request: Request<()>| {
        pass("interceptor", request.metadata_mut());
        Ok(request)
    });
    let service = layered(service, on_server("outermost"));
    let server = ServerParts::default().add_service(service).layer(on_server("server"));
    let serving = Serving::start(server);
    let stub = NumbersStub(serving.channel());
    assert_eq!(double(&stub).await, "server outermost interceptor service method");
    check_every_kind(&stub).await;
}

/// The layer that ends a stream has to know how many frames went out before, wherever it stands.
#[tokio::test(start_paused = true)]
async fn each_of_nested_layers_can_end_a_stream() {
    let timeout = || TimeoutLayer::new(STEP * 5 / 2);
    let all = [
        ServerParts::default().add_service(layered(numbers(), timeout())),
        ServerParts::default().add_service(layered(layered(numbers(), timeout()), nothing())),
        ServerParts::default().add_service(layered(layered(numbers(), nothing()), timeout())),
        ServerParts::default().add_service(layered(numbers(), timeout())).layer(nothing()),
        ServerParts::default().add_service(layered(numbers(), nothing())).layer(timeout()),
    ];
    for server in all {
        let serving = Serving::start(server);
        let stub = NumbersStub(serving.channel());
        let (messages, status) = collect(stub.count(10).await.unwrap()).await;
        assert_eq!(messages, [0, 1]);
        assert_eq!(status.unwrap().code(), Code::DeadlineExceeded);
        let status = stub.wait().await.unwrap_err();
        assert_eq!(status.code(), Code::DeadlineExceeded);
        check_every_kind(&stub).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_layer_of_one_service_may_refuse_calls_of_every_kind() {
    let refuse = ServiceBuilder::new().filter_async(|_: ServerRequest| async {
        Err::<ServerRequest, _>(Status::permission_denied("no"))
    });
    let serving = serve(layered(layered(numbers(), refuse), nothing()));
    let stub = NumbersStub(serving.channel());
    let statuses = [
        stub.double(4).await.unwrap_err(),
        stub.count(3).await.unwrap_err(),
        stub.sum(at_once(0..5)).await.unwrap_err(),
        stub.sums(at_once(0..5)).await.unwrap_err(),
    ];
    assert_eq!(statuses.map(|status| status.code()), [Code::PermissionDenied; 4]);
}

#[tokio::test(start_paused = true)]
async fn a_layer_of_one_method_leaves_the_others_alone() {
    let timeout = || TimeoutLayer::new(STEP * 5 / 2);
    let named = ["/test.Numbers/Wait"];
    let by_service = layered_methods(numbers(), named, timeout()).unwrap();
    let by_layer = layered(numbers(), for_methods(&SERVICE, named, timeout()).unwrap());
    for serving in [serve(by_service), serve(by_layer)] {
        let stub = NumbersStub(serving.channel());
        assert_eq!(stub.wait().await.unwrap_err().code(), Code::DeadlineExceeded);
        assert_eq!(collect(stub.count(10).await.unwrap()).await.0.len(), 10);
        check_every_kind(&stub).await;
    }
    let serving = serve(numbers());
    let stub =
        NumbersStub(serving.channel().layer(for_methods(&SERVICE, named, timeout()).unwrap()));
    assert_eq!(stub.wait().await.unwrap_err().code(), Code::DeadlineExceeded);
    assert_eq!(collect(stub.count(10).await.unwrap()).await.0.len(), 10);
    check_every_kind(&stub).await;
}

#[tokio::test]
async fn a_method_of_a_client_has_its_own_layers() {
    let serving = serve(numbers());
    let layers = ServiceBuilder::new()
        .layer(on_client("all"))
        .layer(for_methods(&SERVICE, ["Double"], on_client("double")).unwrap())
        .layer(for_methods(&SERVICE, ["Sum", "Wait"], on_client("sum")).unwrap());
    let stub = NumbersStub(serving.channel().layer(layers));
    assert_eq!(double(&stub).await, "all double");
}

/// A limit that is reached by calls of one method holds up no call of another.
#[tokio::test]
async fn a_limit_on_one_method_is_not_a_limit_on_all() {
    let limit = || for_methods(&SERVICE, ["Wait"], ConcurrencyLimitLayer::new(1)).unwrap();
    let on_server = serve(layered(numbers(), limit()));
    let on_client = serve(numbers());
    check_limit(&NumbersStub(on_server.channel())).await;
    check_limit(&NumbersStub(on_client.channel().layer(limit()))).await;
}

async fn check_limit(stub: &NumbersStub<impl Caller>) {
    let (mut first, mut second) = (Box::pin(stub.wait()), Box::pin(stub.wait()));
    for _ in 0..3 {
        assert!(futures::poll!(&mut first).is_pending());
        assert!(futures::poll!(&mut second).is_pending());
        assert_eq!(stub.double(4).await.unwrap(), 8);
    }
}

#[tokio::test]
async fn an_unknown_method_of_a_layer_is_refused() {
    let error = layered_methods(numbers(), ["Double", "Triple"], nothing()).unwrap_err();
    let message = "the service test.Numbers has no method \"Triple\", but [\"Double\", \"Wait\", \
                 \"Count\", \"Sum\", \"Sums\"]";
    assert_eq!(error.to_string(), message);
    assert_eq!(error, for_methods(&SERVICE, ["Triple"], nothing()).unwrap_err());
}

/// A layer sees a stream's outcome, also from outside of other layers.
#[tokio::test(start_paused = true)]
async fn outer_layers_see_what_became_of_a_stream() {
    let (seen, mut outcomes) = tokio::sync::mpsc::unbounded_channel();
    let outer =
        tower::util::MapResponseLayer::new(move |response: rpc_core::server::ServerResponse| {
            seen.send((
                response.is_streamed(),
                response.extensions().get::<rpc_core::Trailers>().is_some(),
            ))
            .unwrap();
            response
        });
    let serving = serve(layered(layered(numbers(), nothing()), outer));
    let stub = NumbersStub(serving.channel());
    let messages: Vec<_> = stub.count(2).await.unwrap().collect().await;
    assert_eq!(messages.len(), 2);
    assert_eq!(outcomes.recv().await, Some((true, true)));
    stub.double(4).await.unwrap();
    assert_eq!(outcomes.recv().await, Some((false, false)));
}
