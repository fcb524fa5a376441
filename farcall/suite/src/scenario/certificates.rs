//! Certificate authorities of a scenario's own, and the files that its servers read.

use std::path::{Path, PathBuf};

use farcall::tls::Pem;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd,
};

use super::ScenarioError;

/// The files of a server: its certificate, its key, and the authority of its clients.
pub(super) const CERT: &str = "cert.pem";
pub(super) const KEY: &str = "key.pem";
pub(super) const CA: &str = "ca.pem";

/// An authority.
pub(super) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, as PEM.
pub(super) struct Leaf {
    cert: String,
    key: String,
}

impl Leaf {
    /// For a setting of certificate and key.
    pub(super) fn pems(&self) -> (Pem, Pem) {
        (Pem::bytes(&self.cert), Pem::bytes(&self.key))
    }
}

impl Authority {
    pub(super) fn new(name: &str) -> Result<Self, ScenarioError> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Ok(Self(CertifiedIssuer::self_signed(params, KeyPair::generate()?)?))
    }

    /// Its own certificate, as PEM.
    pub(super) fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate for `name` that is valid until the first day of `year`.
    pub(super) fn issue(&self, name: &str, year: i32) -> Result<Leaf, ScenarioError> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(vec![name.to_owned()])?;
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(year, 1, 1);
        let cert = params.signed_by(&key, &self.0)?;
        Ok(Leaf { cert: cert.pem(), key: key.serialize_pem() })
    }
}

/// The files of a server. Dropped, they are deleted.
pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn new(name: &str) -> Result<Self, ScenarioError> {
        let name = format!("farcall-scenario-{name}-certs-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path)?;
        Ok(Self(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Writes the server's certificate and key.
    pub(super) fn set_leaf(&self, leaf: &Leaf) -> Result<(), ScenarioError> {
        std::fs::write(self.0.join(CERT), &leaf.cert)?;
        Ok(std::fs::write(self.0.join(KEY), &leaf.key)?)
    }

    /// Writes the authorities of clients.
    pub(super) fn set_ca(&self, pem: &str) -> Result<(), ScenarioError> {
        Ok(std::fs::write(self.0.join(CA), pem)?)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
