//! The files of certificates that a scenario's servers read.

use std::path::Path;

use farcall::tls::Pem;
use farcall_testkit::certificates::{Authority, CertificateError, Leaf, Wanted};
use tempfile::TempDir;

use crate::RigError;

/// The files of a server: its certificate, its key, and the authority of its clients.
pub(super) const CERT: &str = "cert.pem";
pub(super) const KEY: &str = "key.pem";
pub(super) const CA: &str = "ca.pem";

/// A certificate for `name` that is valid until the first day of `year`.
pub(super) fn issue(
    authority: &Authority,
    name: &str,
    year: i32,
) -> Result<Leaf, CertificateError> {
    authority.issue(Wanted::named(name).with_years(2020, year))
}

/// For a setting of certificate and key.
pub(super) fn pems(leaf: &Leaf) -> (Pem, Pem) {
    (Pem::bytes(&leaf.cert), Pem::bytes(&leaf.key))
}

/// The files of a server. Dropped, they are deleted.
pub(super) struct CertificateFolder(TempDir);

impl CertificateFolder {
    pub(super) fn new() -> Result<Self, RigError> {
        Ok(Self(TempDir::with_prefix("farcall-scenario-certificates-")?))
    }

    pub(super) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Writes the server's certificate and key.
    pub(super) fn set_leaf(&self, leaf: &Leaf) -> Result<(), RigError> {
        std::fs::write(self.path().join(CERT), &leaf.cert)?;
        Ok(std::fs::write(self.path().join(KEY), &leaf.key)?)
    }

    /// Writes the authorities of clients.
    pub(super) fn set_ca(&self, pem: &str) -> Result<(), RigError> {
        Ok(std::fs::write(self.path().join(CA), pem)?)
    }
}
