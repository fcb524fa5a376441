//! Certificate authorities and the certificates that they issue, as files of a folder that goes
//! with the test.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use farcall::tls::{ClientTls, ClientTlsConfig, Pem, ServerTls, ServerTlsConfig};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, SanType,
    date_time_ymd,
};

/// What a certificate is to say.
#[derive(Clone)]
pub(crate) struct Wanted {
    names: Vec<String>,
    uris: Vec<String>,
    /// The years of its first and its last first of January.
    years: (i32, i32),
}

/// A certificate for `name`: a DNS name or an IP address.
pub(crate) fn named(name: &str) -> Wanted {
    Wanted { names: vec![name.to_owned()], uris: Vec::new(), years: (2020, 2120) }
}

impl Wanted {
    pub(crate) fn uri(mut self, uri: &str) -> Self {
        self.uris.push(uri.to_owned());
        self
    }

    pub(crate) fn years(mut self, first: i32, last: i32) -> Self {
        self.years = (first, last);
        self
    }
}

/// A certificate and its key.
#[derive(Clone)]
pub(crate) struct Leaf {
    pub(crate) cert: String,
    pub(crate) key: String,
}

impl Leaf {
    fn pems(&self) -> (Pem, Pem) {
        (Pem::bytes(&self.cert), Pem::bytes(&self.key))
    }
}

/// An authority.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    /// One with a name of its own.
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        Self::named(&format!("authority {}", COUNT.fetch_add(1, Ordering::Relaxed)))
    }

    pub(crate) fn named(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        Self(CertifiedIssuer::self_signed(params, key).unwrap())
    }

    /// Its own certificate.
    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    pub(crate) fn issue(&self, wanted: Wanted) -> Leaf {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(wanted.names).unwrap();
        for uri in wanted.uris {
            params.subject_alt_names.push(SanType::URI(uri.try_into().unwrap()));
        }
        let (first, last) = wanted.years;
        params.not_before = date_time_ymd(first, 1, 1);
        params.not_after = date_time_ymd(last, 1, 1);
        let cert = params.signed_by(&key, &self.0).unwrap();
        Leaf { cert: cert.pem(), key: key.serialize_pem() }
    }

    /// A server with that certificate, which asks clients for none.
    pub(crate) fn server_config(&self, wanted: Wanted) -> ServerTlsConfig {
        let (cert, key) = self.issue(wanted).pems();
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
        let (cert, key) = self.issue(wanted).pems();
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
