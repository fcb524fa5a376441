//! The content types of gRPC.

use http::HeaderValue;

/// The kind of body that a `content-type` header announces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ContentType {
    /// Protobuf in gRPC's frames: `application/grpc`, or with `+proto`, with any parameters.
    Proto,
    /// gRPC with an unsupported codec, such as `application/grpc+json`.
    OtherCodec,
    /// Not gRPC.
    Foreign,
}

impl ContentType {
    pub(crate) fn parse(value: &HeaderValue) -> Self {
        let value = value.as_bytes();
        let essence = value.split(|byte| *byte == b';').next().unwrap_or(value).trim_ascii();
        let Some((grpc, codec)) = essence.split_at_checked("application/grpc".len()) else {
            return Self::Foreign;
        };
        if !grpc.eq_ignore_ascii_case(b"application/grpc") {
            return Self::Foreign;
        }
        match codec {
            b"" => Self::Proto,
            codec if codec.eq_ignore_ascii_case(b"+proto") => Self::Proto,
            [b'+', ..] => Self::OtherCodec,
            _ => Self::Foreign,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codecs_and_parameters_are_distinguished() {
        let parse = |text| ContentType::parse(&HeaderValue::from_static(text));
        let proto = ["application/grpc", "application/grpc+proto", "application/grpc;x=y"];
        for text in proto.into_iter().chain(["Application/gRPC+Proto ; charset=utf-8"]) {
            assert_eq!(parse(text), ContentType::Proto, "{text}");
        }
        for text in ["application/grpc+json", "application/grpc+", "application/grpc+protobuf;a"] {
            assert_eq!(parse(text), ContentType::OtherCodec, "{text}");
        }
        for text in ["application/grpc-web", "application/grpcx", "text/html", "", ";"] {
            assert_eq!(parse(text), ContentType::Foreign, "{text}");
        }
    }
}
