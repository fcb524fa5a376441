//! A scheme of addresses of the program's own: where the servers of `rack://7` are is the program's
//! knowledge. The crates `farcall-etcd` and `farcall-xds` have such schemes.

use farcall::balance::Endpoint;
use farcall::resolve::{CustomAddress, CustomScheme, StaticEndpoints};
use farcall::{AddressError, Channel, Server, Settings};
use farcall_examples::hello::greeter_rpc::{GreeterService, GreeterStub};

use super::{MyGreeter, hello};

/// Two servers, and the scheme by which they are found.
async fn rack() -> anyhow::Result<CustomScheme> {
    let mut servers = Vec::new();
    for _ in 0..2 {
        let server = Server::builder().add_service(GreeterService::new(MyGreeter));
        let listener = server.bind("tcp://127.0.0.1:0").await?;
        servers.push(listener.local_address().to_string());
        tokio::spawn(listener.serve());
    }
    let find = move |address: &CustomAddress| match address.rest.as_str() {
        "7" => Ok(StaticEndpoints::new(servers.iter().cloned().map(Endpoint::new))),
        _ => Err(AddressError::new(address.to_string(), "there is no such rack")),
    };
    Ok(CustomScheme::new("rack", find))
}

#[tokio::test]
async fn servers_are_found_by_a_scheme_of_the_program() -> anyhow::Result<()> {
    let rack = rack().await?;
    let channel = Channel::builder("rack://7")?.scheme(rack.clone()).connect().await?;
    GreeterStub::new(channel.clone()).say_hello(hello("rack")).await?;
    assert_eq!(channel.endpoints().len(), 2);

    // As a file has it, which is loaded from its path.
    let file = "[targets.greeter]\naddress = \"rack://7\"\n";
    let settings = Settings::parse("farcall.toml", file)?.with_scheme(rack);
    let stub = GreeterStub::new(settings.channel("greeter")?);
    stub.say_hello(hello("file")).await?;
    Ok(())
}

/// Neither is there: the error of a call says of which one the servers were asked.
#[tokio::test]
async fn etcd_and_xds_are_schemes_of_crates() -> anyhow::Result<()> {
    for (address, scheme) in [
        ("etcd://127.0.0.1:1/services/greeter", farcall_etcd::scheme()),
        ("xds://127.0.0.1:1/greeter", farcall_xds::scheme()),
    ] {
        let channel = Channel::builder(address)?.scheme(scheme).connect_lazy();
        let Err(error) = GreeterStub::new(channel).say_hello(hello("the")).await else {
            anyhow::bail!("nothing listens at port 1");
        };
        let has = |part| error.message().contains(part);
        anyhow::ensure!(has(address) && has("grpc://127.0.0.1:1"), "{error}");
    }
    Ok(())
}
