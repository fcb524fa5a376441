//! The sources of certificates and keys: PEM, in files or in memory.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rpc_core::settings::read_small_file;
use rustls::InconsistentKeys;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::certificate_fault::{Holder, describe_fault};
use super::error::TlsError;
use super::pem_text::{self, Found};

/// A source of certificates or of a key in PEM: a file, which a reload reads again, or memory.
///
/// A path is a file: `"tls/server.pem"`, a `Path` or a `PathBuf`. Neither `Debug` nor an error
/// reveals the contents.
#[derive(Clone, PartialEq, Eq)]
pub struct Pem(Source);

#[derive(Clone, PartialEq, Eq)]
enum Source {
    File(PathBuf),
    Memory(Arc<[u8]>),
}

impl Pem {
    /// Creates a source from a file.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self(Source::File(path.into()))
    }

    /// Creates a source from the text of a PEM file, in memory.
    pub fn bytes(bytes: impl AsRef<[u8]>) -> Self {
        Self(Source::Memory(bytes.as_ref().into()))
    }

    /// Returns the name of the source for errors.
    pub(super) fn origin(&self) -> String {
        match &self.0 {
            Source::File(path) => path.display().to_string(),
            Source::Memory(_) => "the PEM in memory".to_owned(),
        }
    }

    /// Reads the text, without the marks that editors add.
    fn read(&self, setting: &'static str) -> Result<Vec<u8>, TlsError> {
        match &self.0 {
            Source::Memory(bytes) => Ok(pem_text::plain(bytes).into_owned()),
            Source::File(path) => match read_small_file(path) {
                Ok(bytes) => Ok(pem_text::plain(&bytes).into_owned()),
                Err(reason) => Err(TlsError::Unreadable { setting, path: path.clone(), reason }),
            },
        }
    }

    fn unusable(
        &self,
        setting: &'static str,
        (wanted, text): (&'static str, &[u8]),
        error: &pem::Error,
    ) -> TlsError {
        let origin = self.origin();
        let found = Found::in_place_of(wanted, text);
        match error {
            // The older encrypted form is a section that is not valid base64.
            error if !matches!(error, pem::Error::NoItemsFound) && found != Found::Passphrase => {
                TlsError::Unusable { setting, origin, reason: error.to_string() }
            }
            _ => TlsError::Missing { setting, origin, wanted, found: found.to_string() },
        }
    }

    /// Reads all certificates, at least one.
    pub(super) fn certificates(
        &self,
        setting: &'static str,
    ) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        let text = self.read(setting)?;
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
        let none = Err(pem::Error::NoItemsFound);
        certificates
            .and_then(|found| if found.is_empty() { none } else { Ok(found) })
            .map_err(|error| self.unusable(setting, ("certificate", &text), &error))
    }

    /// Reads the first private key.
    pub(super) fn key(&self, setting: &'static str) -> Result<PrivateKeyDer<'static>, TlsError> {
        let text = self.read(setting)?;
        PrivateKeyDer::from_pem_slice(&text)
            .map_err(|error| self.unusable(setting, ("private key", &text), &error))
    }
}

/// Describes why rustls refuses a pair of certificate and key.
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
        rustls::Error::InvalidCertificate(fault) => TlsError::Unusable {
            setting: "tls.cert",
            origin: cert.origin(),
            reason: format!("it {}", describe_fault(Holder::Own, fault)),
        },
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

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    /// Returns a certificate and its key.
    fn pair() -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
        (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
    }

    #[test]
    fn marked_files_are_loaded_whole() {
        let (cert, key) = pair();
        let (chain, key) = (format!("\u{feff}{cert}\u{feff}{cert}"), format!("\u{feff}{key}"));
        let utf_16 = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let crlf = |text: &str| text.replace('\n', "\r\n").into_bytes();
        for encode in [crlf as fn(&str) -> Vec<u8>, utf_16, |text| text.as_bytes().to_vec()] {
            let chain = Pem::bytes(encode(&chain)).certificates("tls.cert").unwrap();
            assert_eq!(chain.len(), 2);
            Pem::bytes(encode(&key)).key("tls.key").unwrap();
        }
    }

    #[test]
    fn key_with_passphrase_is_named_with_its_fix() {
        let label = "ENCRYPTED PRIVATE KEY";
        let new = format!("-----BEGIN {label}-----\nMIGb\n-----END {label}-----\n");
        let label = "RSA PRIVATE KEY";
        let head = "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,1CE5\n\n";
        let old = format!("-----BEGIN {label}-----\n{head}MIGb\n-----END {label}-----\n");
        for key in [new, old] {
            let error = Pem::bytes(key).key("tls.key").unwrap_err().to_string();
            let expected = "tls.key: the PEM in memory has no private key in PEM, but a key with \
                            a passphrase: farcall cannot ask for a passphrase: remove it with \
                            `openssl pkey -in FILE -out FILE.plain`";
            assert_eq!(error, expected);
        }
        // One usable key is enough.
        let (_, plain) = pair();
        let both = format!("-----BEGIN {label}-----\nMIGb\n-----END {label}-----\n{plain}");
        let both = both.replace("RSA PRIVATE", "ENCRYPTED PRIVATE");
        Pem::bytes(both).key("tls.key").unwrap();
    }
}
