//! The tail field, a message's longest `bytes` field, as generated code gives access to it.
//!
//! Generated code knows the fields of a message, and says it with a [`Detacher`] in its method's
//! descriptor. No trait is implemented for a message.

use std::any::Any;
use std::fmt;

use bytes::Bytes;

/// Shorter fields are encoded with their message: copying as much takes about 10 us, and a field
/// apart costs a look-up and a larger offer.
pub(crate) const DETACH_LEN_MIN: usize = 64 << 10;

/// A method's preparation of its messages for encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Detach {
    /// The requests; `None` when they have no `bytes` field and cannot hold themselves, or their
    /// fields are not known.
    pub request: Option<Detacher>,
    /// The responses.
    pub response: Option<Detacher>,
}

impl Detach {
    /// Messages travel as prost writes them.
    pub const NONE: Self = Self { request: None, response: None };
}

/// Prepares messages of one type for encoding: checks how deep they nest, and takes the largest
/// `bytes` field out.
#[derive(Clone, Copy)]
pub struct Detacher {
    detach: fn(&mut dyn Any) -> Option<Detached>,
    /// Absent where the type cannot nest deeply.
    nests_too_deep: Option<fn(&dyn Any) -> bool>,
}

impl Detacher {
    /// A detacher for the type that `detach` downcasts to; it leaves other types alone.
    #[must_use]
    pub const fn new(detach: fn(&mut dyn Any) -> Option<Detached>) -> Self {
        Self { detach, nests_too_deep: None }
    }

    /// Adds the check of a type that can hold itself. It returns true for a message that nests
    /// deeper than the 100 messages that decoders allow: encoding recurses, and would overflow the
    /// stack.
    #[must_use]
    pub const fn with_nesting_check(self, nests_too_deep: fn(&dyn Any) -> bool) -> Self {
        Self { nests_too_deep: Some(nests_too_deep), ..self }
    }

    pub(crate) fn detach<M: Any>(self, message: &mut M) -> Option<Detached> {
        (self.detach)(message)
    }

    /// Returns true if the message nests too deep to be encoded.
    #[inline]
    pub(crate) fn nests_too_deep<M: Any>(self, message: &M) -> bool {
        self.nests_too_deep.is_some_and(|nests_too_deep| nests_too_deep(message))
    }
}

impl PartialEq for Detacher {
    fn eq(&self, other: &Self) -> bool {
        let is_same_check = match (self.nests_too_deep, other.nests_too_deep) {
            (Some(own), Some(others)) => std::ptr::fn_addr_eq(own, others),
            (own, others) => own.is_none() && others.is_none(),
        };
        is_same_check && std::ptr::fn_addr_eq(self.detach, other.detach)
    }
}

impl Eq for Detacher {}

impl fmt::Debug for Detacher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Detacher")
    }
}

/// A field that was taken out of its message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Detached {
    /// The field's number.
    pub number: u32,
    /// Bytes of the field.
    pub bytes: Bytes,
}

/// A singular `bytes` field, in the types that prost gives it.
pub trait BytesField {
    /// Returns the number of bytes that it could give, or 0 if it must keep them.
    fn detachable_len(&self) -> usize;

    /// Takes them out, and leaves the field as if it had never been set.
    fn detach(&mut self) -> Bytes;
}

impl BytesField for Bytes {
    fn detachable_len(&self) -> usize {
        self.len()
    }

    fn detach(&mut self) -> Bytes {
        std::mem::take(self)
    }
}

impl BytesField for Option<Bytes> {
    fn detachable_len(&self) -> usize {
        self.as_ref().map_or(0, Bytes::len)
    }

    fn detach(&mut self) -> Bytes {
        self.take().unwrap_or_default()
    }
}

/// A `Vec` becomes `Bytes` without a copy. TCP then writes it from where it lies. RDMA copies it
/// into registered memory, as every field that the connection has not lent.
impl BytesField for Vec<u8> {
    fn detachable_len(&self) -> usize {
        self.len()
    }

    fn detach(&mut self) -> Bytes {
        Bytes::from(std::mem::take(self))
    }
}

impl BytesField for Option<Vec<u8>> {
    fn detachable_len(&self) -> usize {
        self.as_ref().map_or(0, Vec::len)
    }

    fn detach(&mut self) -> Bytes {
        self.take().map(Bytes::from).unwrap_or_default()
    }
}

/// Takes out the longest of a message's fields, if it is long enough to be worth it. For generated
/// code.
pub fn detach_longest(fields: &mut [(u32, &mut dyn BytesField)]) -> Option<Detached> {
    let longest = fields.iter_mut().max_by_key(|(_, field)| field.detachable_len())?;
    let (number, field) = longest;
    (field.detachable_len() >= DETACH_LEN_MIN)
        .then(|| Detached { number: *number, bytes: field.detach() })
}
