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

async fn connect_info(address: &str) -> (String, String) {
    let builder = Server::builder().add_service(Addresses);
    let builder = builder.peer_extensions(farcall::tonic_connect_info);
    let listener = builder.bind(address).await.expect("it works");
    let address = listener.local_address().to_string();
    let serving = tokio::spawn(listener.serve());
    let channel = Channel::connect(&address).await.expect("it works");
    let connect_info: Response<String> =
        unary(&channel, &SERVICE.methods[0], Request::new(())).await.expect("it works");
    let ours = channel.endpoints().into_iter().find_map(|it| it.info).expect("it works").addresses;
    serving.abort();
    (connect_info.into_inner(), format!("{:?} {:?}", ours.local, ours.peer))
}

#[tokio::test]
async fn tonics_accessors_give_the_connections_addresses() {
    let (connect_info, expected) = connect_info("tcp://127.0.0.1:0").await;
    assert_eq!(connect_info, expected);
    assert!(connect_info.contains("127.0.0.1"), "{connect_info}");
}

#[tokio::test]
async fn a_unix_socket_tells_who_the_client_is() {
    let name = format!("@farcall-connect-info-{}", std::process::id());
    let (connect_info, _) = connect_info(&format!("unix://{name}")).await;
    let pid = i32::try_from(std::process::id()).unwrap();
    assert_eq!(connect_info, format!("None None, unnamed: true, pid: {:?}", Some(pid)));
}

#[tokio::test]
async fn a_connection_inside_the_process_has_none() {
    let (connect_info, _) = connect_info("inproc://tonic-connect-info").await;
    assert_eq!(connect_info, "None None");
}
