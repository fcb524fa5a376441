//! Certificate authorities and their certificates for either side, and a folder for files that the
//! test removes.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use farcall::tls::{ClientTls, ClientTlsConfig, Pem, ServerTls, ServerTlsConfig};
use farcall_testkit::certificates::Authority as Issuer;
pub(crate) use farcall_testkit::certificates::{Leaf, Wanted};

/// A certificate for `name`: a DNS name or an IP address.
pub(crate) fn named(name: &str) -> Wanted {
    Wanted::named(name)
}

fn pems(leaf: &Leaf) -> (Pem, Pem) {
    (Pem::bytes(&leaf.cert), Pem::bytes(&leaf.key))
}

/// An authority.
pub(crate) struct Authority(Issuer);

impl Authority {
    /// One with a name of its own.
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        Self::named(&format!("authority {}", COUNT.fetch_add(1, Ordering::Relaxed)))
    }

    pub(crate) fn named(name: &str) -> Self {
        Self(Issuer::new(name).unwrap())
    }

    /// Its own certificate.
    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    pub(crate) fn issue(&self, wanted: Wanted) -> Leaf {
        self.0.issue(wanted).unwrap()
    }

    /// A server with that certificate, which asks clients for none.
    pub(crate) fn server_config(&self, wanted: Wanted) -> ServerTlsConfig {
        let (cert, key) = pems(&self.issue(wanted));
        ServerTlsConfig::new(cert, key)
    }

    /// A server at 127.0.0.1.
    pub(crate) fn server(&self) -> ServerTls {
        ServerTls::new(self.server_config(named("127.0.0.1"))).unwrap()
    }

    /// A server at 127.0.0.1 that requires certificates of this authority.
    pub(crate) fn mutual_server(&self) -> ServerTls {
        let config = self.server_config(named("127.0.0.1"));
        ServerTls::new(config.with_client_ca(Pem::bytes(self.pem()))).unwrap()
    }

    /// A channel that trusts this authority.
    pub(crate) fn client_config(&self) -> ClientTlsConfig {
        ClientTlsConfig::default().with_ca(Pem::bytes(self.pem()))
    }

    pub(crate) fn client(&self) -> ClientTls {
        ClientTls::new(self.client_config()).unwrap()
    }

    /// A channel that shows a certificate, too.
    pub(crate) fn client_with(&self, wanted: Wanted) -> ClientTls {
        let (cert, key) = pems(&self.issue(wanted));
        ClientTls::new(self.client_config().with_cert(cert, key)).unwrap()
    }
}

/// A folder of the test's own.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let name = format!("farcall-tls-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file, and gives its path.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
