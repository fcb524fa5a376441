//! Certificates, keys and authorities that cannot be used.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// TLS cannot be set up as configured. The text names the setting and the file, and never what a
/// file holds.
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
    /// There is nothing of what is wanted in a file.
    #[error("{setting}: {origin} has no {wanted} in PEM{found}")]
    Missing {
        /// The setting.
        setting: &'static str,
        /// The file.
        origin: String,
        /// What the file should hold.
        wanted: &'static str,
        /// What it holds instead, and what to do about it. Empty where neither is known.
        found: String,
    },
    /// What is in a file cannot be used.
    #[error("{setting}: {origin} cannot be used: {reason}")]
    Unusable {
        /// The setting.
        setting: &'static str,
        /// The file.
        origin: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A certificate and a key do not belong together.
    #[error("{setting}: {key} is not the key of the certificate in {cert}")]
    KeyMismatch {
        /// The setting of the key.
        setting: &'static str,
        /// The key's file.
        key: String,
        /// The certificate's file.
        cert: String,
    },
    /// A name that no certificate can be for.
    #[error("{setting}: `{name}` is neither a DNS name nor an IP address")]
    Name {
        /// The setting.
        setting: &'static str,
        /// The name as it was given.
        name: String,
    },
    /// No authority is named that the server's certificate would be checked with.
    #[error("{setting}: no authority is named that the server's certificate is checked with{hint}")]
    NoAuthority {
        /// The setting.
        setting: &'static str,
        /// What to do about it.
        hint: &'static str,
    },
    /// rustls refuses the configuration for another reason.
    #[error("tls: {reason}")]
    Refused {
        /// Its reason.
        reason: String,
    },
}

rpc_core::readable_debug!(TlsError);

impl TlsError {
    /// The setting that is wrong, as a settings file has it: `tls.cert`, `tls.key`, `tls.ca`,
    /// `tls.client_ca`, `tls.server_name`, or `tls` where it is no single one.
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

/// The first of the errors, for callers that take one.
pub(super) fn first(errors: Vec<TlsError>) -> TlsError {
    let first = errors.into_iter().next();
    first.unwrap_or_else(|| TlsError::refused("no reason"))
}
