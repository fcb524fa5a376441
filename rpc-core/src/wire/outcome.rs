//! The end of a call as bytes: the block of a response frame.
//!
//! The status code stands in the header; the block holds the rest, and is absent when there is
//! nothing in it. Four parts, the first three behind a `u32` length: initial metadata, trailing
//! metadata, the status message (UTF-8), and what remains is the status's raw details.

use bytes::Bytes;
use tonic::metadata::MetadataMap;
use tonic::{Code, Status};

use super::{ProtocolError, metadata};

/// The end of a call, without the message.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Metadata that precedes the message.
    pub metadata: MetadataMap,
    /// The status of a failed call, with its trailing metadata, or the trailing metadata of a
    /// successful one.
    pub result: Result<MetadataMap, Status>,
}

impl Outcome {
    /// The status code for the frame's header.
    #[must_use]
    pub fn code(&self) -> u16 {
        match &self.result {
            Ok(_) => 0,
            Err(status) => status.code() as u16,
        }
    }

    /// Appends the block to `out`; nothing when there is nothing to say.
    ///
    /// # Errors
    ///
    /// Returns `ProtocolError` if a part is longer than its length field can say.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), ProtocolError> {
        let (trailers, message, details) = match &self.result {
            Ok(trailers) => (trailers, "", &[][..]),
            Err(status) => (status.metadata(), status.message(), status.details()),
        };
        let nothing = self.metadata.is_empty() && trailers.is_empty();
        if nothing && message.is_empty() && details.is_empty() {
            return Ok(());
        }
        encode_part(out, |out| metadata::encode(&self.metadata, out))?;
        encode_part(out, |out| metadata::encode(trailers, out))?;
        encode_part(out, |out| {
            out.extend_from_slice(message.as_bytes());
            Ok(())
        })?;
        out.extend_from_slice(details);
        Ok(())
    }

    /// Reads a block under the header's status `code`.
    ///
    /// # Errors
    ///
    /// Returns `ProtocolError` if a part is cut short or does not decode, or if the code is not one
    /// of gRPC's.
    pub fn decode(code: u16, mut block: Bytes) -> Result<Self, ProtocolError> {
        if code > Code::Unauthenticated as u16 {
            return Err(ProtocolError::Invalid { what: "status code", value: code.into() });
        }
        let code = Code::from_i32(code.into());
        if block.is_empty() {
            let empty = MetadataMap::new;
            let result = if code == Code::Ok { Ok(empty()) } else { Err(Status::new(code, "")) };
            return Ok(Self { metadata: empty(), result });
        }
        let metadata = metadata::decode(split_part(&mut block, "initial metadata")?)?;
        let trailers = metadata::decode(split_part(&mut block, "trailing metadata")?)?;
        let message = split_part(&mut block, "status message")?;
        if code == Code::Ok {
            return Ok(Self { metadata, result: Ok(trailers) });
        }
        let message = std::str::from_utf8(&message).map_err(|error| {
            ProtocolError::Undecodable { what: "status message", detail: error.to_string().into() }
        })?;
        let status = Status::with_details_and_metadata(code, message, block, trailers);
        Ok(Self { metadata, result: Err(status) })
    }
}

fn encode_part(
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), ProtocolError>,
) -> Result<(), ProtocolError> {
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    write(out)?;
    let len = (out.len() - at - 4) as u64;
    let len = u32::try_from(len).map_err(|_| ProtocolError::TooLong {
        what: "part of a response's block",
        len,
        max: u32::MAX.into(),
    })?;
    out[at..at + 4].copy_from_slice(&len.to_le_bytes());
    Ok(())
}

fn split_part(block: &mut Bytes, what: &'static str) -> Result<Bytes, ProtocolError> {
    let truncated = |len: usize, needed: usize| ProtocolError::Truncated {
        what,
        len: len as u64,
        needed: needed as u64,
    };
    let Some((len, _)) = block.split_first_chunk::<4>() else {
        return Err(truncated(block.len(), 4));
    };
    let end = 4 + u32::from_le_bytes(*len) as usize;
    if block.len() < end {
        return Err(truncated(block.len(), end));
    }
    Ok(block.split_to(end).split_off(4))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn round_trip(outcome: &Outcome) -> Outcome {
        let mut block = Vec::new();
        outcome.encode(&mut block).unwrap();
        Outcome::decode(outcome.code(), block.into()).unwrap()
    }

    #[test]
    fn plain_success_needs_no_block() {
        let outcome = Outcome { metadata: MetadataMap::new(), result: Ok(MetadataMap::new()) };
        let mut block = Vec::new();
        outcome.encode(&mut block).unwrap();
        assert!(block.is_empty());
        assert!(round_trip(&outcome).result.is_ok());
    }

    #[test]
    fn a_status_keeps_message_details_and_trailers() {
        let mut trailers = MetadataMap::new();
        trailers.insert("retry", "no".parse().unwrap());
        let message = "nö\twith\nlines";
        let details = Bytes::from_static(&[0, 1, 2, 255]);
        let status =
            Status::with_details_and_metadata(Code::Aborted, message, details.clone(), trailers);
        let outcome = Outcome { metadata: MetadataMap::new(), result: Err(status) };
        let status = round_trip(&outcome).result.unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::Aborted, message));
        assert_eq!(status.details(), details);
        assert_eq!(status.metadata().get("retry").unwrap(), "no");
    }

    #[test]
    fn success_keeps_initial_and_trailing_metadata_apart() {
        let mut initial = MetadataMap::new();
        initial.insert("a", "1".parse().unwrap());
        let mut trailing = MetadataMap::new();
        trailing.insert("b", "2".parse().unwrap());
        let back = round_trip(&Outcome { metadata: initial, result: Ok(trailing) });
        assert_eq!(back.metadata.get("a").unwrap(), "1");
        assert_eq!(back.metadata.len(), 1);
        assert_eq!(back.result.unwrap().get("b").unwrap(), "2");
    }

    #[test]
    fn each_part_of_a_block_survives_by_itself() {
        let metadata = || {
            let mut metadata = MetadataMap::new();
            metadata.insert("a", "1".parse().unwrap());
            metadata
        };
        let back = round_trip(&Outcome { metadata: metadata(), result: Ok(MetadataMap::new()) });
        assert_eq!((back.metadata.len(), back.result.unwrap().len()), (1, 0));
        let back = round_trip(&Outcome { metadata: MetadataMap::new(), result: Ok(metadata()) });
        assert_eq!((back.metadata.len(), back.result.unwrap().len()), (0, 1));
        for (message, details) in [("no", ""), ("", "why"), ("", "")] {
            let status = Status::with_details(Code::Internal, message, details.into());
            let outcome = Outcome { metadata: MetadataMap::new(), result: Err(status) };
            let status = round_trip(&outcome).result.unwrap_err();
            assert_eq!((status.code(), status.message()), (Code::Internal, message));
            assert_eq!(status.details(), details.as_bytes());
        }
    }

    #[test]
    fn a_code_is_one_of_grpcs_or_an_error() {
        for code in 0..=16 {
            let decoded = Outcome::decode(code, Bytes::new()).unwrap();
            assert_eq!(decoded.code(), code);
        }
        let expected = ProtocolError::Invalid { what: "status code", value: 17 };
        assert_eq!(Outcome::decode(17, Bytes::new()).unwrap_err(), expected);
    }

    proptest! {
        #[test]
        fn decoding_never_panics(code: u16, bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = Outcome::decode(code, bytes.into());
        }
    }
}
