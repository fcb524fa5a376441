//! The built-in message encodings.
//!
//! Compression happens between a gRPC client or server and this adapter. farcall's own frames carry
//! messages uncompressed.

use tonic::codec::{Codec, CompressionEncoding};

/// The encodings that are built in.
const ENCODINGS: &[CompressionEncoding] = &[
    CompressionEncoding::Gzip,
    #[cfg(feature = "zstd")]
    CompressionEncoding::Zstd,
];

/// Returns true if this crate can decode messages with this `grpc-encoding`.
pub(crate) fn is_built_in(name: &[u8]) -> bool {
    name == b"identity" || ENCODINGS.iter().any(|it| it.to_string().as_bytes() == name)
}

/// Accepts requests in every built-in encoding.
pub(crate) fn accept_all_requests<C: Codec>(
    grpc: tonic::server::Grpc<C>,
) -> tonic::server::Grpc<C> {
    ENCODINGS.iter().fold(grpc, |grpc, encoding| grpc.accept_compressed(*encoding))
}

/// Accepts responses in every built-in encoding.
pub(crate) fn accept_all_responses<S>(grpc: tonic::client::Grpc<S>) -> tonic::client::Grpc<S> {
    ENCODINGS.iter().fold(grpc, |grpc, encoding| grpc.accept_compressed(*encoding))
}
