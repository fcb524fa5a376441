//! The files of certificates that a scenario's servers read.

use std::path::{Path, PathBuf};

use farcall::tls::Pem;
use farcall_testkit::certificates::{Authority, CertificateError, Leaf, Wanted};

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
pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn new(name: &str) -> Result<Self, RigError> {
        let name = format!("farcall-scenario-{name}-certs-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path)?;
        Ok(Self(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Writes the server's certificate and key.
    pub(super) fn set_leaf(&self, leaf: &Leaf) -> Result<(), RigError> {
        std::fs::write(self.0.join(CERT), &leaf.cert)?;
        Ok(std::fs::write(self.0.join(KEY), &leaf.key)?)
    }

    /// Writes the authorities of clients.
    pub(super) fn set_ca(&self, pem: &str) -> Result<(), RigError> {
        Ok(std::fs::write(self.0.join(CA), pem)?)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
