//! Targets whose address changes.

use std::collections::BTreeSet;

use farcall::balance::Endpoint;
use farcall::resolve::{CustomAddress, CustomScheme, StaticEndpoints};
use farcall::{AddressError, Channel};

use crate::file::{File, Reports, keys};
use crate::service::{Named, name, serve, wait};

/// Makes calls, none of which may fail, until each of `servers` has answered in a row.
async fn calls_reach(channel: &Channel, servers: &[&str]) {
    let (wanted, mut seen) = (BTreeSet::from_iter(servers.iter().copied()), BTreeSet::new());
    while seen != wanted {
        let server = name(channel).await.unwrap();
        match wanted.get(server.as_str()) {
            Some(server) => drop(seen.insert(*server)),
            None => seen.clear(),
        }
    }
}

#[tokio::test]
async fn the_next_calls_go_to_the_new_servers_and_none_fails() {
    let (a, b) = (Named::new("a"), Named::new("b"));
    let (at_a, at_b) = (serve(a.clone()).await, serve(b.clone()).await);
    let target = |servers: &str| format!("[targets.t]\naddress = \"tcp://{servers}\"\n");
    let only_a = target(&format!("127.0.0.1:{at_a}"));
    let file = File::new("addresses", &only_a);
    let settings = file.load();
    let mut reports = Reports::run(settings.watch().unwrap()).await;
    let channel = settings.channel("t").unwrap();
    calls_reach(&channel, &["a"]).await;
    let in_flight = {
        let channel = channel.clone();
        tokio::spawn(async move { wait(&channel).await })
    };
    a.has_begun().await;

    file.replace(&target(&format!("127.0.0.1:{at_b}")));
    assert_eq!(keys(&reports.next().await.unwrap()), ["targets.t.address"]);
    calls_reach(&channel, &["b"]).await;
    assert_eq!(channel.endpoints().len(), 1);
    a.answers.add_permits(1);
    assert_eq!(in_flight.await.unwrap().unwrap(), "a", "a call in flight ends where it is");

    file.replace(&target(&format!("127.0.0.1:{at_a},127.0.0.1:{at_b}")));
    assert_eq!(keys(&reports.next().await.unwrap()), ["targets.t.address"]);
    calls_reach(&channel, &["a", "b"]).await;
    file.replace(&only_a);
    assert_eq!(keys(&reports.next().await.unwrap()), ["targets.t.address"]);
    calls_reach(&channel, &["a"]).await;
}

#[tokio::test]
async fn a_server_that_is_not_there_yet_is_replaced_by_one_that_is() {
    let port = serve(Named::new("there")).await;
    // Port 1 of loopback: nothing listens there.
    let file = File::new("absent", "targets.t.address = \"tcp://127.0.0.1:1\"");
    let settings = file.load();
    let reloader = settings.watch().unwrap();
    let error = settings.channel_builder("t").unwrap().connect().await.unwrap_err().to_string();
    assert!(error.contains("Connection refused"), "{error}");
    let channel = settings.channel("t").unwrap();
    let error = name(&channel).await.unwrap_err();
    assert!(error.message().starts_with("no endpoint of targets.t is connected: "), "{error}");
    file.replace(&format!("targets.t.address = \"tcp://127.0.0.1:{port}\""));
    reloader.reload().unwrap();
    while let Err(error) = name(&channel).await {
        assert_eq!(error.code(), farcall::Code::Unavailable);
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_target_that_comes_can_be_called() {
    let port = serve(Named::new("new")).await;
    let file = File::new("comes", "");
    let settings = file.load();
    let reloader = settings.watch().unwrap();
    assert!(settings.channel("t").is_err());
    file.replace(&format!("targets.t.address = \"tcp://127.0.0.1:{port}\""));
    assert_eq!(keys(&reloader.reload().unwrap()), ["targets.t.address"]);
    assert_eq!(settings.targets().collect::<Vec<_>>(), ["t"]);
    assert_eq!(name(&settings.channel("t").unwrap()).await.unwrap(), "new");
}

/// `port://7000` is the server at that port of loopback.
fn port(address: &CustomAddress) -> Result<StaticEndpoints, AddressError> {
    let port: u16 = address
        .rest
        .parse()
        .map_err(|_| AddressError::new(address.to_string(), "port:// is followed by a number"))?;
    Ok(StaticEndpoints::new([Endpoint::new(format!("tcp://127.0.0.1:{port}"))]))
}

#[tokio::test]
async fn a_target_goes_to_a_registered_scheme_and_back() {
    let (at_a, at_b) = (serve(Named::new("a")).await, serve(Named::new("b")).await);
    let target = |address: &str| format!("[targets.t]\naddress = \"{address}\"\n");
    let (tcp, custom) = (target(&format!("tcp://127.0.0.1:{at_a}")), format!("port://{at_b}"));
    let file = File::new("scheme", &tcp);
    let settings = file.load();
    let reloader = settings.watch().unwrap();
    let channel = settings.channel("t").unwrap();
    calls_reach(&channel, &["a"]).await;

    file.replace(&target(&custom));
    let error = reloader.reload().unwrap_err().to_string();
    let place = "farcall.toml:2:11: targets.t.address: unknown scheme: use auto, ";
    assert!(error.contains(place) && error.contains("register `port`"), "{error}");
    calls_reach(&channel, &["a"]).await;

    // Of channels that were made before nothing changes: they have the schemes of their time.
    let settings = settings.with_scheme(CustomScheme::new("port", port));
    let channel = settings.channel("t").unwrap();
    file.replace(&target("port://seven"));
    let error = reloader.reload().unwrap_err().to_string();
    let place = "farcall.toml:2:11: targets.t.address: port:// is followed by a number";
    assert!(error.contains(place), "{error}");
    file.replace(&target(&custom));
    assert_eq!(keys(&reloader.reload().unwrap()), ["targets.t.address"]);
    calls_reach(&channel, &["b"]).await;
    file.replace(&tcp);
    assert_eq!(keys(&reloader.reload().unwrap()), ["targets.t.address"]);
    calls_reach(&channel, &["a"]).await;
}
