//! Nothing secret is in the log, in an error or in a `Debug`, whatever fails.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use farcall::client::ClientCall;
use farcall::metadata::MetadataMap;
use farcall::server::ServerRequest;
use farcall::tls::{ClientTls, Pem, ServerTls, ServerTlsConfig};
use farcall::{Method, Server, Status};
use parking_lot::Mutex;
use tower::ServiceBuilder;

use crate::authority::{Authority, named};
use crate::service::{builder, serve, who};

/// Everything that the process logs.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    /// Returns the log once it has these parts. The server writes its lines after it has answered.
    async fn with_lines(&self, parts: &[&str]) -> String {
        let logging = async {
            loop {
                let logged = String::from_utf8(self.0.lock().clone()).unwrap();
                if parts.iter().all(|part| logged.contains(part)) {
                    return logged;
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), logging).await.expect("all is logged")
    }
}

const TOKEN: &str = "Bearer c3VwZXItc2VjcmV0";

#[tokio::test]
async fn no_key_and_no_token_is_logged_or_shown() {
    let log = Log::default();
    let writer = log.clone();
    tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .init();
    let (ours, others) = (Authority::new(), Authority::new());
    let server_leaf = ours.issue(named("127.0.0.1"));
    let client_leaf = ours.issue(named("client.example"));
    let other_leaf = others.issue(named("client.example"));
    let config = ServerTlsConfig::new(Pem::bytes(&server_leaf.cert), Pem::bytes(&server_leaf.key));
    let server_tls = ServerTls::new(config.with_client_ca(Pem::bytes(ours.pem()))).unwrap();
    let seen = Arc::new(Mutex::new(String::new()));
    let (by_server, by_client) = (Arc::clone(&seen), Arc::clone(&seen));
    let showing = ServiceBuilder::new().map_request(move |request: ServerRequest| {
        *by_server.lock() += &format!("{request:?}");
        request
    });
    let server = Server::builder().tls(&server_tls).access_log(true).layer(showing);
    let server = serve(server).await;
    let mut shown = format!("{server_tls:?}");
    for leaf in [&client_leaf, &other_leaf] {
        let config = ours.client_config();
        let config = config.with_cert(Pem::bytes(&leaf.cert), Pem::bytes(&leaf.key));
        let tls = ClientTls::new(config).unwrap();
        let token = |_: &Method, metadata: &mut MetadataMap| {
            metadata.insert("authorization", TOKEN.parse().unwrap());
            Ok::<_, Status>(())
        };
        let channel = builder(&server.address).tls(&tls).call_credentials(token);
        shown += &format!("{tls:?} {channel:?}");
        match channel.connect().await {
            Ok(channel) => {
                shown += &format!("{:?} {channel:?}", who(&channel).await);
                let seen = Arc::clone(&by_client);
                let showing = ServiceBuilder::new().map_request(move |mut call: ClientCall| {
                    call.metadata_mut().insert("x-token", TOKEN.parse().unwrap());
                    *seen.lock() += &format!("{call:?}");
                    call
                });
                who(&channel.layer(showing)).await.unwrap();
            }
            Err(error) => shown += &format!("{error:?} {error}"),
        }
    }
    // A key where a certificate should be, and a key of another certificate.
    let key = || Pem::bytes(&server_leaf.key);
    for config in [
        ServerTlsConfig::new(key(), key()),
        ServerTlsConfig::new(Pem::bytes(&client_leaf.cert), key()),
    ] {
        let error = ServerTls::new(config).unwrap_err();
        shown += &format!("{error} {error:?}");
    }
    let logged = log.with_lines(&["farcall::access", "refused a connection"]).await;
    shown += &seen.lock();
    assert!(shown.contains("authorization") && shown.contains("x-token"), "names are shown");
    // An error names the section that a file has instead, and shows none.
    let begin = "BEGIN PRIVATE KEY".to_owned();
    let mut secrets = vec![TOKEN.to_owned(), "c3VwZXIt".to_owned(), begin];
    for leaf in [&server_leaf, &client_leaf, &other_leaf] {
        // The lines of a key, and its bytes as `Debug` writes them.
        secrets.extend(leaf.key.lines().filter(|line| !line.starts_with("--")).map(str::to_owned));
        secrets
            .push(format!("{:?}", &leaf.key.as_bytes()[..24]).trim_matches(['[', ']']).to_owned());
    }
    for secret in secrets {
        assert!(!logged.contains(&secret), "the log has {secret:?}");
        assert!(!shown.contains(&secret), "a message has {secret:?}");
    }
}
