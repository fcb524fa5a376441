//! A message to be encoded, its type forgotten.
//!
//! The transport type is forgotten on the other side of this seam, so that neither stubs nor
//! sessions are generic over both. The message goes straight into the transport's memory, whose
//! length is known beforehand.

use std::fmt;

use prost::Message;

/// A message that can be written into memory of its exact length.
pub trait Encode: Send + Sync {
    /// The length of the encoding in bytes.
    fn len(&self) -> usize;

    /// Writes the encoding into `out`, which has exactly that length.
    fn encode_into(&self, out: &mut [u8]);
}

impl fmt::Debug for dyn Encode + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "message of {} bytes", self.len())
    }
}

impl<M: Message> Encode for M {
    fn len(&self) -> usize {
        self.encoded_len()
    }

    fn encode_into(&self, mut out: &mut [u8]) {
        self.encode_raw(&mut out);
    }
}
