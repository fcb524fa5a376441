//! A message after compression.

use bytes::Bytes;

use super::deflate;
use crate::payload::encode::Encode;

/// A message as it crosses the network: the length that it inflates to in eight bytes, then deflate
/// in the format of zlib (RFC 1950).
#[derive(Debug)]
pub(crate) struct Deflated(Bytes);

impl Deflated {
    /// Compresses a message; `None` where it does not become smaller. A message that is kept for
    /// further attempts is compressed once.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe: what was compressed so far is dropped.
    pub(crate) async fn of(message: &dyn Encode) -> Option<Self> {
        let Some(kept) = message.kept_deflated() else {
            return deflate(message).await.map(Self);
        };
        if kept.get().is_none() {
            let deflated = deflate(message).await.map(Box::new);
            // Another attempt may have been faster: the two are the same.
            let _ = kept.set(deflated);
        }
        let deflated = kept.get()?.as_deref()?;
        Some(Self(deflated.clone()))
    }
}

impl Encode for Deflated {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn tail(&self) -> Option<&Bytes> {
        Some(&self.0)
    }

    fn encode_head(&self, _: &mut [u8]) {}
}
