//! Errors of certificates, keys and authorities.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// A fault in the TLS configuration. Its text names the setting and the file, and never reveals a
/// file's contents.
#[derive(Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read.
    #[error("{setting}: cannot read {}: {reason}", path.display())]
    Unreadable {
        /// The setting.
        setting: &'static str,
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        reason: io::Error,
    },
    /// A file lacks the required section.
    #[error("{setting}: {origin} has no {wanted} in PEM{found}")]
    Missing {
        /// The setting.
        setting: &'static str,
        /// The file.
        origin: String,
        /// The required section.
        wanted: &'static str,
        /// The file's actual content and the remedy. Empty if neither is known.
        found: String,
    },
    /// A file's content is unusable.
    #[error("{setting}: {origin} cannot be used: {reason}")]
    Unusable {
        /// The setting.
        setting: &'static str,
        /// The file.
        origin: String,
        /// The fault.
        reason: String,
    },
    /// A certificate and a key do not match.
    #[error("{setting}: {key} is not the key of the certificate in {cert}")]
    KeyMismatch {
        /// The setting of the key.
        setting: &'static str,
        /// The key's file.
        key: String,
        /// The certificate's file.
        cert: String,
    },
    /// No certificate can be for this name.
    #[error("{setting}: `{name}` is neither a DNS name nor an IP address")]
    Name {
        /// The setting.
        setting: &'static str,
        /// The name as configured.
        name: String,
    },
    /// No authority is configured that could verify the server's certificate.
    #[error("{setting}: no authority is configured to verify the server's certificate{hint}")]
    NoAuthority {
        /// The setting.
        setting: &'static str,
        /// The remedy.
        hint: &'static str,
    },
    /// rustls refuses the configuration for another reason.
    #[error("tls: {reason}")]
    Refused {
        /// rustls's reason.
        reason: String,
    },
}

rpc_core::readable_debug!(TlsError);

impl TlsError {
    /// Returns the faulty setting, named as in a settings file: `tls.cert`, `tls.key`, `tls.ca`,
    /// `tls.client_ca`, `tls.server_name`, or `tls` if it is no single one.
    #[must_use]
    pub fn setting(&self) -> &'static str {
        match self {
            Self::Unreadable { setting, .. }
            | Self::Missing { setting, .. }
            | Self::Unusable { setting, .. }
            | Self::KeyMismatch { setting, .. }
            | Self::Name { setting, .. }
            | Self::NoAuthority { setting, .. } => setting,
            Self::Refused { .. } => "tls",
        }
    }

    pub(super) fn refused(reason: impl std::fmt::Display) -> Self {
        Self::Refused { reason: reason.to_string() }
    }
}

/// Returns the first error, for callers that return only one.
pub(super) fn first(errors: Vec<TlsError>) -> TlsError {
    let first = errors.into_iter().next();
    first.unwrap_or_else(|| TlsError::refused("no reason"))
}
