//! The use of TLS on an HTTP/2 connection.

/// The use of TLS on an HTTP/2 connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// No TLS: `grpc://`.
    Plain,
    /// TLS: `grpcs://`.
    Tls,
}

impl Scheme {
    /// Returns the scheme of the server's address.
    pub(super) fn address_scheme(self) -> &'static str {
        match self {
            Self::Plain => "grpc",
            Self::Tls => "grpcs",
        }
    }

    /// Returns the scheme that requests name (`:scheme`).
    pub(super) fn request_scheme(self) -> &'static str {
        match self {
            Self::Plain => "http",
            Self::Tls => "https",
        }
    }
}
