//! A server that shows its state to operators.

use farcall::server::Admin;
use farcall::{Channel, Explain, Identity, Request, Server};
use farcall_examples::hello::HelloRequest;
use farcall_examples::hello::greeter_rpc::{GreeterService, GreeterStub};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{MyGreeter, hello};

/// Returns what `curl` prints of a page.
async fn curl(address: &str, path: &str) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect(address.trim_start_matches("tcp://")).await?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\naccept: */*\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut page = String::new();
    stream.read_to_string(&mut page).await?;
    Ok(page)
}

#[tokio::test]
async fn state_has_the_calls_of_each_method() -> anyhow::Result<()> {
    struct Handle;
    impl Handle {
        fn render(&self) -> String {
            "up 1\n".to_owned()
        }
    }
    let handle = Handle;
    let admin = Admin::loopback().metrics(move || handle.render());
    let server = Server::builder().admin(admin).add_service(GreeterService::new(MyGreeter));
    let listener = server.bind("tcp://127.0.0.1:0").await?;
    let address = listener.local_address().to_string();
    tokio::spawn(listener.serve());
    let stub = GreeterStub::new(Channel::connect(&address).await?);
    stub.say_hello(hello("operator")).await?;
    let page = curl(&address, "/debug/farcall").await?;
    assert!(page.contains("/hello.Greeter/SayHello"), "{page}");
    assert!(curl(&address, "/metrics").await?.ends_with("up 1\n"));
    Ok(())
}

#[tokio::test]
async fn call_is_explained() -> anyhow::Result<()> {
    let server = Server::builder().add_service(GreeterService::new(MyGreeter));
    let listener = server.bind("tcp://127.0.0.1:0").await?;
    let address = listener.local_address().to_string();
    tokio::spawn(listener.serve());
    let stub = GreeterStub::new(Channel::connect(&address).await?);
    let explain = Explain::new();
    let mut request = Request::new(HelloRequest { name: "you".into() });
    request.extensions_mut().insert(explain.clone());
    let reply = stub.say_hello(request).await;
    println!("{}", explain.explanation());
    reply?;
    assert_eq!(explain.explanation().attempts, 1);
    Ok(())
}

#[tokio::test]
async fn identities_are_allowed_by_a_rule() -> anyhow::Result<()> {
    let rules = |identity: &Identity, method: &str| {
        !method.starts_with("/farcall.admin.")
            || identity.has_name("spiffe://example.org/operators")
    };
    let server = Server::builder().authorize(rules).admin(Admin::loopback());
    let server = server.add_service(GreeterService::new(MyGreeter));
    drop(server.bind("inproc://topics-operating").await?);
    Ok(())
}
