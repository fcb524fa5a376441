//! The certificates of a measurement over TLS: an authority, and a certificate for 127.0.0.1.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use farcall_testkit::certificates::{Authority, Leaf, Wanted};

/// The files, in PEM.
#[derive(Debug, Clone)]
pub struct Certificates {
    /// The authority, which clients trust.
    pub ca: PathBuf,
    /// The server's certificate.
    pub cert: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

impl Certificates {
    /// Those of `folder`.
    #[must_use]
    pub fn at(folder: &Path) -> Self {
        let file = |name| folder.join(name);
        Self { ca: file("ca.pem"), cert: file("server.pem"), key: file("server.key") }
    }

    /// Makes them in `folder`.
    ///
    /// # Errors
    ///
    /// Returns an error if one cannot be made, or cannot be written.
    pub fn make(folder: &Path) -> Result<()> {
        let authority = Authority::new("the benchmark's authority")?;
        let Leaf { cert, key } = authority.issue(Wanted::named("127.0.0.1"))?;
        let files = Self::at(folder);
        let write = |path: &Path, text: String| {
            fs::write(path, text).with_context(|| format!("{}", path.display()))
        };
        write(&files.ca, authority.pem())?;
        write(&files.cert, cert)?;
        write(&files.key, key)
    }
}
