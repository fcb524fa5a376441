//! tonic's own accessors find the connection of a call.

use farcall::client::unary;
use farcall::codegen::{HandlerFuture, ServerCall};
use farcall::{
    CallKind, Channel, Idempotency, MethodDescriptor, Request, Response, Server, Service,
    ServiceDescriptor,
};

use tonic::transport::server::UdsConnectInfo;

static SERVICE: ServiceDescriptor = ServiceDescriptor {
    name: "t.Addresses",
    methods: &[MethodDescriptor::new("/t.Addresses/Tell", CallKind::Unary, Idempotency::Unknown)],
};

/// Answers with the addresses that tonic's accessors give.
struct Addresses;

impl Service for Addresses {
    fn descriptor(&self) -> &'static ServiceDescriptor {
        &SERVICE
    }

    fn call(&self, _: usize, call: ServerCall) -> HandlerFuture {
        call.unary(|request: Request<()>| async move {
            let addresses = format!("{:?} {:?}", request.remote_addr(), request.local_addr());
            let Some(unix) = request.extensions().get::<UdsConnectInfo>() else {
                return Ok(Response::new(addresses));
            };
            let is_unnamed = unix.peer_addr.as_ref().is_some_and(|peer| peer.is_unnamed());
            let pid = unix.peer_cred.and_then(|credentials| credentials.pid());
            Ok(Response::new(format!("{addresses}, unnamed: {is_unnamed}, pid: {pid:?}")))
        })
    }
}

async fn told(address: &str) -> (String, String) {
    let builder = Server::builder().add_service(Addresses);
    let builder = builder.peer_extensions(farcall::tonic_connect_info);
    let listener = builder.bind(address).await.expect("it works");
    let address = listener.local_address().to_string();
    let serving = tokio::spawn(listener.serve());
    let channel = Channel::connect(&address).await.expect("it works");
    let told: Response<String> =
        unary(&channel, &SERVICE.methods[0], Request::new(())).await.expect("it works");
    let ours = channel.endpoints().into_iter().find_map(|it| it.info).expect("it works").addresses;
    serving.abort();
    (told.into_inner(), format!("{:?} {:?}", ours.local, ours.peer))
}

#[tokio::test]
async fn tonics_accessors_give_the_connections_addresses() {
    let (told, expected) = told("tcp://127.0.0.1:0").await;
    assert_eq!(told, expected);
    assert!(told.contains("127.0.0.1"), "{told}");
}

#[tokio::test]
async fn a_unix_socket_tells_who_the_client_is() {
    let name = format!("@farcall-connect-info-{}", std::process::id());
    let (told, _) = told(&format!("unix://{name}")).await;
    let pid = i32::try_from(std::process::id()).unwrap();
    assert_eq!(told, format!("None None, unnamed: true, pid: {:?}", Some(pid)));
}

#[tokio::test]
async fn a_connection_inside_the_process_has_none() {
    let (told, _) = told("inproc://tonic-connect-info").await;
    assert_eq!(told, "None None");
}
