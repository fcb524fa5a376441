//! Files of TLS that change under the servers and channels of a watched settings file.

use std::time::Duration;

use farcall::tls::{ClientTls, ClientTlsConfig, Pem};
use farcall::{Reload, Reloader, Settings, SettingsError, TakesEffect};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::authority::{Authority, Folder, Leaf, named};
use crate::service::{Tls, builder, who};

/// A folder with a settings file and the files that it names.
struct Files(Folder);

impl Files {
    fn leaf(&self, name: &str, leaf: &Leaf) {
        self.replace(&format!("{name}.pem"), &leaf.cert);
        self.replace(&format!("{name}.key"), &leaf.key);
    }

    /// Puts another file in its place, as Kubernetes does.
    fn replace(&self, name: &str, text: &str) {
        let new = self.0.write("new", text);
        std::fs::rename(new, self.0.path().join(name)).unwrap();
    }

    fn settings(&self, text: &str) -> Settings {
        self.replace("farcall.toml", text);
        Settings::load(self.0.path().join("farcall.toml")).unwrap()
    }
}

/// Runs a watch, which has looked at the files once then; what it does.
async fn run(reloader: Reloader) -> UnboundedReceiver<Result<Reload, String>> {
    let (sender, mut reports) = unbounded_channel();
    let report = move |reload: &Result<Reload, SettingsError>| {
        let _ = sender.send(reload.as_ref().cloned().map_err(ToString::to_string));
    };
    let reloader = reloader.with_interval(Duration::from_millis(2)).with_report(report);
    tokio::spawn(reloader.run());
    reloaded(&mut reports).await;
    reports
}

/// Waits until a reload has found the files in order: of two files the one may be seen before the
/// other.
async fn reloaded(reports: &mut UnboundedReceiver<Result<Reload, String>>) {
    while let Err(error) = reports.recv().await.unwrap() {
        assert!(error.contains("is not the key of the certificate"), "{error}");
    }
}

async fn serve(settings: &Settings, name: &str) -> String {
    let (address, server) = settings.server(name).unwrap();
    let listener = server.add_service(Tls::default()).bind(address).await.unwrap();
    let address = listener.local_address().to_string();
    tokio::spawn(listener.serve());
    address
}

fn trusting(authority: &Authority) -> ClientTls {
    ClientTls::new(ClientTlsConfig::default().with_ca(Pem::bytes(authority.pem()))).unwrap()
}

#[tokio::test]
async fn a_server_shows_the_certificate_that_its_file_has_now() {
    let (old, new) = (Authority::new(), Authority::new());
    let files = Files(Folder::new("watched-server"));
    files.leaf("server", &old.issue(named("127.0.0.1")));
    let path = files.0.path().display();
    let settings = files.settings(&format!(
        "[servers.s]\naddress = \"tcp://127.0.0.1:0\"\n\
         tls = {{ cert = \"{path}/server.pem\", key = \"{path}/server.key\" }}"
    ));
    let mut reports = run(settings.watch().unwrap()).await;
    let address = serve(&settings, "s").await;
    let before = builder(&address).tls(&trusting(&old)).connect().await.unwrap();
    files.leaf("server", &new.issue(named("127.0.0.1")));
    reloaded(&mut reports).await;
    let after = builder(&address).tls(&trusting(&new)).connect().await.unwrap();
    assert_eq!(who(&after).await.unwrap(), "anonymous");
    assert_eq!(who(&before).await.unwrap(), "anonymous", "open connections stay as they are");
    assert!(builder(&address).tls(&trusting(&old)).connect().await.is_err());
}

#[tokio::test]
async fn a_channel_presents_its_files_certificate_of_the_moment() {
    let authority = Authority::new();
    let files = Files(Folder::new("watched-client"));
    files.leaf("server", &authority.issue(named("127.0.0.1")));
    files.leaf("client", &authority.issue(named("first.example")));
    files.leaf("moved", &authority.issue(named("third.example")));
    files.replace("ca.pem", &authority.pem());
    let path = files.0.path().display();
    let servers = format!(
        "[defaults.server.tls]\ncert = \"{path}/server.pem\"\nkey = \"{path}/server.key\"\n\
         client_ca = \"{path}/ca.pem\"\n[servers.a]\naddress = \"tcp://127.0.0.1:0\"\n"
    );
    let servers = Settings::parse("servers.toml", &servers).unwrap();
    let [a, b, c] =
        [serve(&servers, "a").await, serve(&servers, "a").await, serve(&servers, "a").await];
    let text = |address: &str, leaf: &str| {
        format!(
            "[targets.t]\naddress = \"{address}\"\ntls = {{ ca = \"{path}/ca.pem\", \
             cert = \"{path}/{leaf}.pem\", key = \"{path}/{leaf}.key\" }}"
        )
    };
    let settings = files.settings(&text(&a, "client"));
    let mut reports = run(settings.watch().unwrap()).await;
    let channel = settings.channel("t").unwrap();
    assert_eq!(who(&channel).await.unwrap(), "first.example");
    files.leaf("client", &authority.issue(named("second.example")));
    reloaded(&mut reports).await;
    assert_eq!(who(&channel).await.unwrap(), "first.example", "its connection is open");
    files.replace("farcall.toml", &text(&b, "client"));
    while who(&channel).await.unwrap() != "second.example" {}
    // Other files, and not other content.
    files.replace("farcall.toml", &text(&c, "moved"));
    while who(&channel).await.unwrap() != "third.example" {}
}

/// The address waits where encryption does: a new server would be called in the clear.
#[tokio::test]
async fn a_reload_never_switches_tls_under_a_channel() {
    let authority = Authority::new();
    let files = Files(Folder::new("watched-switch"));
    files.replace("ca.pem", &authority.pem());
    let path = files.0.path().display();
    let server = |name: &str| format!("servers.{name}.address = \"tcp://127.0.0.1:0\"\n");
    let servers = Settings::parse("servers.toml", &(server("a") + &server("b"))).unwrap();
    let (a, b) = (serve(&servers, "a").await, serve(&servers, "b").await);
    let settings = files.settings(&format!("[targets.t]\naddress = \"{a}\""));
    let reloader = settings.watch().unwrap();
    let channel = settings.channel("t").unwrap();
    let tls = format!("[targets.t]\naddress = \"{b}\"\ntls.ca = \"{path}/ca.pem\"");
    files.replace("farcall.toml", &tls);
    let reload = reloader.reload().unwrap();
    let effects: Vec<_> = reload.changes.iter().map(|change| change.effect).collect();
    assert_eq!(effects, [TakesEffect::NextStart; 2], "{reload:?}");
    files.replace("farcall.toml", &format!("{tls}\ntimeout = \"9s\""));
    let reload = reloader.reload().unwrap();
    assert_eq!(reload.changes.len(), 1, "{reload:?}");
    files.replace("farcall.toml", &format!("{}\ntimeout = \"9s\"", tls.replace(&b, "tcp://h:1")));
    let reload = reloader.reload().unwrap();
    assert_eq!(reload.changes[0].effect, TakesEffect::NextStart, "it still waits");
    assert_eq!(who(&channel).await.unwrap(), "anonymous");
    assert_eq!(channel.endpoints()[0].endpoint.address.as_ref(), a);
}
