//! Whether there is TLS around HTTP/2.

/// Whether there is TLS around a connection over HTTP/2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// There is none: `grpc://`.
    Plain,
    /// There is: `grpcs://`.
    Tls,
}

impl Scheme {
    /// The scheme of the server's address.
    pub(super) fn of_address(self) -> &'static str {
        match self {
            Self::Plain => "grpc",
            Self::Tls => "grpcs",
        }
    }

    /// The scheme that requests name (`:scheme`).
    pub(super) fn of_requests(self) -> &'static str {
        match self {
            Self::Plain => "http",
            Self::Tls => "https",
        }
    }
}
