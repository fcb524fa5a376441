//! How often fields occur in an encoded protobuf message, counted before it is decoded.
//!
//! Two bytes of an encoded message can become an element of a `Vec`, of 24 bytes and more in
//! memory; a decoder that has only the length of its input to go by holds many times of it. The
//! scan allocates nothing, and reads no field's contents.

use super::ProtocolError;

/// A field of a message and how often it may occur.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Repeat {
    pub(super) tag: u64,
    pub(super) what: &'static str,
    pub(super) max: usize,
}

/// Counts the fields of an encoded message.
///
/// # Errors
///
/// [`ProtocolError::TooMany`] when one occurs too often, and [`ProtocolError::Undecodable`] when
/// the bytes are no message; `what` names it.
pub(super) fn check(
    what: &'static str,
    repeats: &[Repeat],
    mut body: &[u8],
) -> Result<(), ProtocolError> {
    let no_message = || ProtocolError::Undecodable { what, detail: "no protobuf message".into() };
    // No message of the handshake has more fields that are bounded.
    let mut counts = [0; 8];
    while !body.is_empty() {
        let tag = skip_field(&mut body).ok_or_else(no_message)?;
        let known = repeats.iter().zip(&mut counts).find(|(repeat, _)| repeat.tag == tag);
        if let Some((repeat, count)) = known {
            *count += 1;
            if *count > repeat.max {
                return Err(ProtocolError::TooMany { what: repeat.what, max: repeat.max as u64 });
            }
        }
    }
    Ok(())
}

/// Takes a field off the front, and gives its tag. Groups, which proto3 has not, are no fields.
fn skip_field(body: &mut &[u8]) -> Option<u64> {
    let key = take_varint(body)?;
    let len = match key & 7 {
        0 => {
            take_varint(body)?;
            0
        }
        1 => 8,
        2 => take_varint(body)?,
        5 => 4,
        _ => return None,
    };
    *body = body.get(usize::try_from(len).ok()?..)?;
    Some(key >> 3)
}

fn take_varint(body: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = body.split_first()?;
        *body = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message;

    use super::*;
    use crate::wire::hello::{Hello, Offer};

    /// A field of each type that there is, the long ones with lengths and numbers of two bytes.
    #[test]
    fn fields_of_every_type_are_skipped() {
        let mut long = vec![0x82, 0x7d, 0xc8, 0x01];
        long.resize(4 + 200, 0xff);
        let fields: [(&[u8], u64); 5] = [
            (&[0x08, 0xff, 0xff, 0x03], 1),
            (&[0x11, 1, 2, 3, 4, 5, 6, 7, 8], 2),
            (&[0x1a, 3, 0xff, 0xff, 0xff], 3),
            (&[0x25, 1, 2, 3, 4], 4),
            (&long, 2000),
        ];
        for (field, tag) in fields {
            let followed = [field, &[0x38, 1]].concat();
            let mut rest = &followed[..];
            assert_eq!(skip_field(&mut rest), Some(tag));
            assert_eq!(rest, [0x38, 1]);
            let cut = &field[..field.len() - 1];
            assert_eq!(skip_field(&mut &cut[..]), None, "{tag} is cut short");
        }
        assert_eq!(skip_field(&mut &[0x0b, 0x0c][..]), None, "a group");
        assert_eq!(take_varint(&mut &[0x96, 0x01][..]), Some(150));
        assert_eq!(take_varint(&mut &[0xff; 11][..]), None);
    }

    proptest! {
        /// What the decoder takes, the scan has counted as the decoder does.
        #[test]
        fn it_counts_what_the_decoder_finds(
            methods in prop::collection::vec(".{0,3}", 0..20),
            offers in prop::collection::vec((".{0,3}", any::<[u8; 4]>()), 0..9),
            calls_max: u32,
            max in 0..20usize,
        ) {
            let offers = offers.into_iter();
            let offers = offers.map(|(name, blob)| Offer { name, blob: blob.to_vec().into() });
            let offers = offers.collect();
            let hello = Hello { calls_max, methods, offers, ..Hello::default() };
            let body = hello.encode_to_vec();
            for (tag, count) in [(4, hello.methods.len()), (5, hello.offers.len())] {
                let repeats = [Repeat { tag, what: "entries", max }];
                prop_assert_eq!(check("Hello", &repeats, &body).is_ok(), count <= max);
            }
        }

        #[test]
        fn it_takes_what_the_decoder_takes(body in prop::collection::vec(any::<u8>(), 0..200)) {
            let has_groups = ProtocolError::Undecodable {
                what: "Hello",
                detail: "no protobuf message".into(),
            };
            // Nothing is lost but groups in fields that are not ours, which prost skips.
            let (decoded, checked) = (Hello::decode(&body[..]), check("Hello", &[], &body));
            if let (Ok(hello), Err(error)) = (decoded, checked) {
                prop_assert_eq!(error, has_groups);
                prop_assert!(body.iter().any(|byte| byte & 7 == 3), "{:?}", hello);
            }
        }
    }
}
