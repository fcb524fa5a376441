//! Compression in a program that was built without it. Nothing is negotiated there, so that nothing
//! gets here.

use bytes::Bytes;

use crate::payload::encode::Encode;

/// Sends every message as it is.
pub(crate) async fn deflate(_: &dyn Encode) -> Option<Bytes> {
    None
}

/// Takes no compressed message.
pub(crate) async fn inflate(_: &[u8], _: usize) -> Result<Bytes, &'static str> {
    Err("this program was built without farcall's feature `compression`")
}
