//! What is inflated: every encoding that is built in.
//!
//! Compression is between a client or a server of gRPC and this adapter. farcall's own frames carry
//! messages as they are.

use tonic::codec::{Codec, CompressionEncoding};

/// The encodings that are built in.
const ENCODINGS: &[CompressionEncoding] = &[
    CompressionEncoding::Gzip,
    #[cfg(feature = "zstd")]
    CompressionEncoding::Zstd,
];

/// Whether a message with that `grpc-encoding` can be read here.
pub(crate) fn is_built_in(name: &[u8]) -> bool {
    name == b"identity" || ENCODINGS.iter().any(|it| it.to_string().as_bytes() == name)
}

/// Takes requests in every encoding.
pub(crate) fn accept_all_requests<C: Codec>(
    grpc: tonic::server::Grpc<C>,
) -> tonic::server::Grpc<C> {
    ENCODINGS.iter().fold(grpc, |grpc, encoding| grpc.accept_compressed(*encoding))
}

/// Takes responses in every encoding.
pub(crate) fn accept_all_responses<S>(grpc: tonic::client::Grpc<S>) -> tonic::client::Grpc<S> {
    ENCODINGS.iter().fold(grpc, |grpc, encoding| grpc.accept_compressed(*encoding))
}
