//! Certificates and authorities that are replaced while calls go on.

use farcall::Server;
use farcall::tls::{ClientTls, ClientTlsConfig, ServerTls, ServerTlsConfig};

use crate::authority::{Authority, Folder, Leaf, named};
use crate::service::{builder, serve, who};

/// The files of a server and of a client.
struct Files {
    folder: Folder,
}

impl Files {
    fn leaf(&self, name: &str, leaf: &Leaf) {
        self.folder.write(&format!("{name}.pem"), &leaf.cert);
        self.folder.write(&format!("{name}.key"), &leaf.key);
    }

    fn server(&self) -> ServerTls {
        let path = self.folder.path();
        let config = ServerTlsConfig::new(path.join("server.pem"), path.join("server.key"));
        ServerTls::new(config.with_client_ca(path.join("client-ca.pem"))).unwrap()
    }

    fn client(&self) -> ClientTls {
        let path = self.folder.path();
        let config = ClientTlsConfig::default().with_ca(path.join("ca.pem"));
        ClientTls::new(config.with_cert(path.join("client.pem"), path.join("client.key"))).unwrap()
    }
}

/// The steps by which an authority is replaced: all trust both, then all show certificates of the
/// new one, then no side trusts the old one. A connection is made in each, and calls on one that
/// was there before go on.
#[tokio::test]
async fn a_leaf_and_an_authority_are_rotated_under_load() {
    let (old, new) = (Authority::new(), Authority::new());
    let files = Files { folder: Folder::new("rotation") };
    files.leaf("server", &old.issue(named("127.0.0.1")));
    files.leaf("client", &old.issue(named("old.example")));
    files.folder.write("ca.pem", &old.pem());
    files.folder.write("client-ca.pem", &old.pem());
    let (of_server, of_client) = (files.server(), files.client());
    let running = serve(Server::builder().tls(&of_server)).await;
    let connect = || builder(&running.address).tls(&of_client).connect();
    let before = connect().await.unwrap();
    let load = {
        let channel = before.clone();
        let (stop, mut stopped) = futures::channel::oneshot::channel::<()>();
        let calls = tokio::spawn(async move {
            let mut count = 0_u64;
            while stopped.try_recv() == Ok(None) {
                assert_eq!(who(&channel).await.unwrap(), "old.example");
                count += 1;
            }
            count
        });
        (stop, calls)
    };

    // Another leaf of the same authority.
    files.leaf("client", &old.issue(named("second.example")));
    of_client.reload().unwrap();
    assert_eq!(who(&connect().await.unwrap()).await.unwrap(), "second.example");

    let both = old.pem() + &new.pem();
    files.folder.write("ca.pem", &both);
    files.folder.write("client-ca.pem", &both);
    of_server.reload().unwrap();
    of_client.reload().unwrap();
    files.leaf("server", &new.issue(named("127.0.0.1")));
    of_server.reload().unwrap();
    assert_eq!(who(&connect().await.unwrap()).await.unwrap(), "second.example");
    files.leaf("client", &new.issue(named("new.example")));
    of_client.reload().unwrap();
    assert_eq!(who(&connect().await.unwrap()).await.unwrap(), "new.example");

    files.folder.write("ca.pem", &new.pem());
    files.folder.write("client-ca.pem", &new.pem());
    of_server.reload().unwrap();
    of_client.reload().unwrap();
    assert_eq!(who(&connect().await.unwrap()).await.unwrap(), "new.example");
    // Who still shows a certificate of the old authority is refused.
    files.leaf("client", &old.issue(named("late.example")));
    of_client.reload().unwrap();
    let late = match connect().await {
        Ok(channel) => who(&channel).await.map(drop).unwrap_err().message().to_owned(),
        Err(error) => error.to_string(),
    };
    assert!(late.contains("does not trust the authority"), "{late}");

    let (stop, calls) = load;
    stop.send(()).unwrap();
    assert!(calls.await.unwrap() > 0, "calls went on");
    assert_eq!(who(&before).await.unwrap(), "old.example", "open connections stay as they are");
}

#[tokio::test]
async fn a_reload_that_fails_keeps_what_was_read_before() {
    let authority = Authority::new();
    let files = Files { folder: Folder::new("reload") };
    files.leaf("server", &authority.issue(named("127.0.0.1")));
    files.leaf("client", &authority.issue(named("client.example")));
    files.folder.write("ca.pem", &authority.pem());
    files.folder.write("client-ca.pem", &authority.pem());
    let (of_server, of_client) = (files.server(), files.client());
    let running = serve(Server::builder().tls(&of_server)).await;
    files.folder.write("server.pem", "no certificate");
    let error = of_server.reload().unwrap_err();
    assert_eq!(error.setting(), "tls.cert");
    assert!(error.to_string().ends_with("server.pem has no certificate in PEM"), "{error}");
    // The key of another certificate.
    files.leaf("server", &authority.issue(named("127.0.0.1")));
    files.folder.write("server.key", &authority.issue(named("127.0.0.1")).key);
    let error = of_server.reload().unwrap_err();
    assert_eq!(error.setting(), "tls.key");
    std::fs::remove_file(files.folder.path().join("ca.pem")).unwrap();
    let error = of_client.reload().unwrap_err();
    assert_eq!(error.setting(), "tls.ca");
    assert!(error.to_string().contains("ca.pem: No such file"), "{error}");
    let channel = builder(&running.address).tls(&of_client).connect().await.unwrap();
    assert_eq!(who(&channel).await.unwrap(), "client.example");
}
