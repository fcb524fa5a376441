//! Where certificates and keys are: PEM in files or in memory.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::InconsistentKeys;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::error::TlsError;

/// Certificates or a key in PEM: in a file, which a reload reads again, or in memory.
///
/// A path is a file: `"tls/server.pem"`, a `Path` or a `PathBuf`. Neither `Debug` nor an error
/// shows what a file or the memory holds.
#[derive(Clone, PartialEq, Eq)]
pub struct Pem(Source);

#[derive(Clone, PartialEq, Eq)]
enum Source {
    File(PathBuf),
    Memory(Arc<[u8]>),
}

impl Pem {
    /// A file.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self(Source::File(path.into()))
    }

    /// The text of a PEM file, in memory.
    pub fn bytes(bytes: impl AsRef<[u8]>) -> Self {
        Self(Source::Memory(bytes.as_ref().into()))
    }

    /// The name of the file, or what stands in its place, for errors.
    pub(super) fn origin(&self) -> String {
        match &self.0 {
            Source::File(path) => path.display().to_string(),
            Source::Memory(_) => "the PEM in memory".to_owned(),
        }
    }

    /// The text.
    fn read(&self, setting: &'static str) -> Result<Arc<[u8]>, TlsError> {
        match &self.0 {
            Source::Memory(bytes) => Ok(Arc::clone(bytes)),
            Source::File(path) => match std::fs::read(path) {
                Ok(bytes) => Ok(bytes.into()),
                Err(reason) => Err(TlsError::Unreadable { setting, path: path.clone(), reason }),
            },
        }
    }

    fn unusable(
        &self,
        setting: &'static str,
        wanted: &'static str,
        error: &pem::Error,
    ) -> TlsError {
        let origin = self.origin();
        match error {
            pem::Error::NoItemsFound => TlsError::Missing { setting, origin, wanted },
            error => TlsError::Unusable { setting, origin, reason: error.to_string() },
        }
    }

    /// All certificates, at least one.
    pub(super) fn certificates(
        &self,
        setting: &'static str,
    ) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        let text = self.read(setting)?;
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
        let none = Err(pem::Error::NoItemsFound);
        certificates
            .and_then(|found| if found.is_empty() { none } else { Ok(found) })
            .map_err(|error| self.unusable(setting, "certificate", &error))
    }

    /// The first private key.
    pub(super) fn key(&self, setting: &'static str) -> Result<PrivateKeyDer<'static>, TlsError> {
        let text = self.read(setting)?;
        PrivateKeyDer::from_pem_slice(&text)
            .map_err(|error| self.unusable(setting, "private key", &error))
    }
}

/// Why rustls takes no such pair of a certificate and a key.
pub(super) fn unusable_pair(cert: &Pem, key: &Pem, error: &rustls::Error) -> TlsError {
    let unusable = |setting, pem: &Pem| TlsError::Unusable {
        setting,
        origin: pem.origin(),
        reason: error.to_string(),
    };
    match error {
        rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
            TlsError::KeyMismatch { setting: "tls.key", key: key.origin(), cert: cert.origin() }
        }
        rustls::Error::InvalidCertificate(_) => unusable("tls.cert", cert),
        _ => unusable("tls.key", key),
    }
}

impl fmt::Debug for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Source::File(path) => f.debug_tuple("File").field(path).finish(),
            Source::Memory(bytes) => write!(f, "Memory({} bytes)", bytes.len()),
        }
    }
}

impl From<PathBuf> for Pem {
    fn from(path: PathBuf) -> Self {
        Self::file(path)
    }
}

impl From<&Path> for Pem {
    fn from(path: &Path) -> Self {
        Self::file(path)
    }
}

impl From<&PathBuf> for Pem {
    fn from(path: &PathBuf) -> Self {
        Self::file(path)
    }
}

impl From<&str> for Pem {
    fn from(path: &str) -> Self {
        Self::file(path)
    }
}

impl From<String> for Pem {
    fn from(path: String) -> Self {
        Self::file(path)
    }
}
