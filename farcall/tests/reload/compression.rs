//! Compression of a server by method, from its settings.

use farcall::{Channel, Compression, MethodCompression, Reloader, ServeErrorKind, Settings};

use crate::file::{File, keys};
use crate::service::{Named, name};

/// A response of the server.
const NAME: &str = const {
    match str::from_utf8(&[b'n'; 10_000]) {
        Ok(name) => name,
        Err(_) => unreachable!(),
    }
};

fn text(methods: &str) -> String {
    format!("[servers.s]\naddress = \"tcp://127.0.0.1:0\"\n{methods}")
}

fn compress(name: &str, from: &str) -> String {
    text(&format!("methods.\"{name}\".compress_from = {from}"))
}

struct Served {
    file: File,
    reloader: Reloader,
    address: String,
    _settings: Settings,
}

impl Served {
    async fn new(file: &str, methods: &str, by_code: Option<MethodCompression>) -> Self {
        let file = File::new(file, methods);
        let settings = file.load();
        let reloader = settings.watch().unwrap();
        let (address, server) = settings.server("s").unwrap();
        let mut server = server.add_service(Named::new(NAME));
        if let Some(by_code) = by_code {
            server = server.method_compression(by_code);
        }
        let listener = server.bind(address).await.unwrap();
        let address = listener.local_address().to_string();
        tokio::spawn(listener.serve());
        Self { file, reloader, address, _settings: settings }
    }

    /// Returns true if the response to a call on a new connection is compressed.
    async fn compresses(&self) -> bool {
        let builder = Channel::builder(&self.address).unwrap().compression(Compression::ACCEPT);
        let channel = builder.connect().await.unwrap();
        let received =
            || channel.endpoints().into_iter().find_map(|it| it.info).unwrap().stats.received_bytes;
        let before = received();
        assert_eq!(name(&channel).await.unwrap(), NAME);
        received() - before < 1000
    }
}

#[tokio::test]
async fn a_server_takes_other_lengths_by_method_for_new_connections() {
    let served = Served::new("by-method", &text(""), None).await;
    let key = |name: &str| format!("servers.s.methods.\"{name}\".compress_from");
    assert!(!served.compresses().await);
    for (name, from, compresses) in [
        ("/t.Named/Name", "\"1 KiB\"", true),
        ("/t.Named/Name", "\"off\"", false),
        ("t.Named", "100", true),
        ("/t.Named/Wait", "100", false),
        ("t.Named/Name", "100", true),
    ] {
        served.file.replace(&compress(name, from));
        let changes = keys(&served.reloader.reload().unwrap());
        assert!(changes.contains(&key(name)), "{changes:?}");
        assert_eq!(served.compresses().await, compresses, "{name} from {from}");
    }
}

#[tokio::test]
async fn an_unknown_method_is_refused_where_it_is_set() {
    let served = Served::new("unknown-method", &compress("/t.Named/Name", "100"), None).await;
    for (wrong, message) in [
        ("/t.Named/Nam", "no such method: it has /t.Named/Name, /t.Named/Wait"),
        ("t.Named/Nam", "no such method: it has /t.Named/Name, /t.Named/Wait"),
        ("/t.Name/Name", "no such service: it has t.Named"),
        ("t.Name", "no such service: it has t.Named"),
    ] {
        served.file.replace(&compress(wrong, "\"off\""));
        let error = served.reloader.reload().unwrap_err().to_string();
        let place = format!("farcall.toml:3:{}: servers.s.methods.\"{wrong}\"", 28 + wrong.len());
        assert!(error.contains(&place) && error.ends_with(message), "{error}");
        assert!(served.compresses().await, "everything stays as it was");
        let (address, server) = served.file.load().server("s").unwrap();
        let server = server.add_service(Named::new("s")).build();
        let refused = server.bind(address).await.unwrap_err();
        let expected = (ServeErrorKind::UnknownMethod, error);
        assert_eq!((refused.kind(), refused.to_string()), expected);
    }
}

/// Settings by method in code stay, whatever the file says.
#[tokio::test]
async fn what_a_program_sets_by_method_stays() {
    let by_code = MethodCompression::default().with_len("t.Named", 100);
    let served = Served::new("by-code", &text(""), Some(by_code)).await;
    assert!(served.compresses().await);
    served.file.replace(&compress("t.Named", "\"off\""));
    assert_eq!(keys(&served.reloader.reload().unwrap()).len(), 1);
    assert!(served.compresses().await);
    let unknown = MethodCompression::default().with_len("/t.Named/None", 100);
    let server = farcall::Server::builder().add_service(Named::new("s"));
    let error = server.method_compression(unknown).bind("tcp://127.0.0.1:0").await.unwrap_err();
    assert!(error.to_string().starts_with("compression is set for /t.Named/None"), "{error}");
}
