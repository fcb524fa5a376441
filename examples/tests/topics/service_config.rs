//! gRPC's service config, which operators of other clients may have already.

use farcall::{Channel, Code, Server};
use farcall_examples::hello::greeter_rpc::{GreeterService, GreeterStub};
use farcall_service_config::ServiceConfig;

use super::{MyGreeter, hello};

/// A limit that the greeting does not fit.
const CONFIG: &str = r#"{"methodConfig": [
    {"name": [{}], "timeout": "2s"},
    {"name": [{"service": "hello.Greeter", "method": "SayHello"}], "maxRequestMessageBytes": 16}
]}"#;

#[tokio::test]
async fn a_service_config_applies_to_its_methods() -> anyhow::Result<()> {
    let server = Server::builder().add_service(GreeterService::new(MyGreeter));
    let listener = server.bind("tcp://127.0.0.1:0").await?;
    let builder = Channel::builder(listener.local_address())?;
    tokio::spawn(listener.serve());
    let channel = ServiceConfig::from_json(CONFIG)?.apply(builder).connect_lazy();
    let stub = GreeterStub::new(channel);
    stub.say_hello(hello("short")).await?;
    let refused = stub.say_hello(hello("a name that is too long for the config")).await;
    assert_eq!(refused.err().map(|status| status.code()), Some(Code::ResourceExhausted));
    Ok(())
}
