//! Certificates for tests: an authority of the test's own, and what it issues.
//!
//! What TLS makes of them is each test's own: some use farcall, some tonic, some a file.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, SanType,
    date_time_ymd,
};

/// Why a certificate could not be made.
pub use rcgen::Error as CertificateError;

/// The contents of a certificate to issue.
#[derive(Debug, Clone)]
pub struct Wanted {
    names: Vec<String>,
    uris: Vec<String>,
    /// The years of its first and its last first of January.
    years: (i32, i32),
    is_authority: bool,
}

impl Wanted {
    /// A certificate for `name`, a DNS name or an IP address, that is valid from 2020 to 2120.
    #[must_use]
    pub fn named(name: &str) -> Self {
        Self { names: vec![name.to_owned()], ..Self::nameless() }
    }

    /// The same without any name but the common one.
    #[must_use]
    pub fn nameless() -> Self {
        Self { names: Vec::new(), uris: Vec::new(), years: (2020, 2120), is_authority: false }
    }

    /// Marks it as the certificate of an authority, as `openssl req -x509` does.
    #[must_use]
    pub fn as_authority(mut self) -> Self {
        self.is_authority = true;
        self
    }

    /// Adds a URI to what the certificate names.
    #[must_use]
    pub fn with_uri(mut self, uri: &str) -> Self {
        self.uris.push(uri.to_owned());
        self
    }

    /// Makes it valid from the first day of one year to that of another.
    #[must_use]
    pub fn with_years(mut self, first: i32, last: i32) -> Self {
        self.years = (first, last);
        self
    }
}

/// A certificate and its key, in PEM.
#[derive(Debug, Clone)]
pub struct Leaf {
    /// The certificate.
    pub cert: String,
    /// Its private key.
    pub key: String,
}

/// A certificate authority.
#[derive(Debug)]
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    /// An authority of that name. OpenSSL takes a certificate whose issuer has its own name for one
    /// that signs itself, so that no two authorities of a test should share a name.
    ///
    /// # Errors
    ///
    /// Returns an error if no key can be made.
    pub fn new(name: &str) -> Result<Self, CertificateError> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Ok(Self(CertifiedIssuer::self_signed(params, KeyPair::generate()?)?))
    }

    /// Its own certificate, in PEM.
    #[must_use]
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// Issues a certificate with a key of its own.
    ///
    /// # Errors
    ///
    /// Returns an error if a name cannot stand in a certificate, or no key can be made.
    pub fn issue(&self, wanted: Wanted) -> Result<Leaf, CertificateError> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(wanted.names)?;
        for uri in wanted.uris {
            params.subject_alt_names.push(SanType::URI(uri.try_into()?));
        }
        if wanted.is_authority {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        }
        let (first, last) = wanted.years;
        params.not_before = date_time_ymd(first, 1, 1);
        params.not_after = date_time_ymd(last, 1, 1);
        let cert = params.signed_by(&key, &self.0)?;
        Ok(Leaf { cert: cert.pem(), key: key.serialize_pem() })
    }
}
