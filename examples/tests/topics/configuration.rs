//! Settings in code and in a file, and a file that is watched.

use farcall::{Channel, Code, Server, Settings};
use farcall_examples::hello::greeter_rpc::{GreeterService, GreeterStub};
use tracing_subscriber::EnvFilter;

use super::{MyGreeter, hello};

const FILE: &str = "[targets.inventory]\naddress = \"inproc://topics-settings\"\n\
                    [servers.orders]\naddress = \"inproc://topics-settings\"\n";

fn folder() -> anyhow::Result<(tempfile::TempDir, std::path::PathBuf)> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("farcall.toml");
    std::fs::write(&file, FILE)?;
    Ok((folder, file))
}

#[tokio::test]
async fn a_watched_file_names_both_sides() -> anyhow::Result<()> {
    let (_folder, file) = folder()?;
    let settings = Settings::load(file)?;
    tokio::spawn(settings.watch()?.run());
    let (address, server) = settings.server("orders")?;
    let listener = server.add_service(GreeterService::new(MyGreeter)).bind(address).await?;
    tokio::spawn(listener.serve());
    let stub = GreeterStub::new(settings.channel("inventory")?);
    stub.say_hello(hello("file")).await?;
    Ok(())
}

#[tokio::test]
async fn the_filter_of_the_log_is_a_setting() -> anyhow::Result<()> {
    let (_folder, file) = folder()?;
    let settings = Settings::load(file)?;
    let first = settings.log_filter().unwrap_or_else(|| "info".to_owned());
    let subscriber = tracing_subscriber::fmt().with_env_filter(EnvFilter::try_new(first)?);
    let subscriber = subscriber.log_internal_errors(false).with_filter_reloading();
    let handle = subscriber.reload_handle();
    // A program installs it: `subscriber.finish().init()`.
    let _subscriber = subscriber.finish();
    let reloader = settings.watch()?.with_log_filter(move |filter| {
        Ok(handle.reload(EnvFilter::try_new(filter.unwrap_or("info"))?)?)
    });
    reloader.reload()?;
    Ok(())
}

#[tokio::test]
async fn an_echo_of_5_mib_needs_both_limits() -> anyhow::Result<()> {
    let server = Server::builder().max_message_len(64 << 20);
    let server = server.add_service(GreeterService::new(MyGreeter));
    let listener = server.bind("inproc://topics-message-size").await?;
    let address = listener.local_address().clone();
    tokio::spawn(listener.serve());
    let name = "n".repeat(5 << 20);

    let channel = Channel::builder(&address)?.max_message_len(64 << 20);
    GreeterStub::new(channel.connect().await?).say_hello(hello(&name)).await?;

    let narrow = Channel::connect(&address).await?;
    let status = GreeterStub::new(narrow).say_hello(hello(&name)).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    Ok(())
}
