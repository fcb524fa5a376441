//! The tail field, a message's longest `bytes` field, as generated code gives access to it.
//!
//! Generated code knows the fields of a message, and says it with a [`Detacher`] in its method's
//! descriptor. No trait is implemented for a message. The sender takes the field out of its message
//! before it encodes the rest. A receiver whose field is a `Vec<u8>` lets the transport read the
//! field's bytes into a vector, and puts that into the message after it has decoded the rest.

use std::any::Any;
use std::fmt;

use bytes::Bytes;

/// Shorter fields are encoded with their message: copying as much takes about 10 us, and a field
/// apart costs a look-up and a larger offer.
pub(crate) const DETACH_LEN_MIN: usize = 64 << 10;

/// Accessors of the fields of a method's messages.
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

/// Access to the singular `bytes` fields of a message, each with its number. For generated code.
pub type FieldVisitor<'a> = &'a mut dyn FnMut(&mut [(u32, &mut dyn BytesField)]);

/// Shows `visit` the fields of a message of one type, or those of an empty message where none is
/// given. A message of another type has none.
type Fields = fn(Option<&mut dyn Any>, FieldVisitor<'_>);

/// Access to the `bytes` fields of messages of one type, and the check of how deep they nest.
#[derive(Clone, Copy)]
pub struct Detacher {
    fields: Fields,
    /// Absent where the type cannot nest deeply.
    nests_too_deep: Option<fn(&dyn Any) -> bool>,
}

impl Detacher {
    /// A detacher for the type whose fields `fields` shows: those of the given message, or of an
    /// empty one. It leaves messages of other types alone.
    #[must_use]
    pub const fn new(fields: fn(Option<&mut dyn Any>, FieldVisitor<'_>)) -> Self {
        Self { fields, nests_too_deep: None }
    }

    /// Adds the check of a type that can hold itself. It returns true for a message that nests
    /// deeper than the 100 messages that decoders allow: encoding recurses, and would overflow the
    /// stack.
    #[must_use]
    pub const fn with_nesting_check(self, nests_too_deep: fn(&dyn Any) -> bool) -> Self {
        Self { nests_too_deep: Some(nests_too_deep), ..self }
    }

    /// Takes out the longest field, if it is long enough to be worth it.
    pub(crate) fn detach<M: Any>(self, message: &mut M) -> Option<Detached> {
        let mut detached = None;
        (self.fields)(Some(message), &mut |fields| detached = detach_longest(fields));
        detached
    }

    /// Returns true if the field with that number takes a vector as it is.
    pub(crate) fn takes_vector(self, number: u32) -> bool {
        let mut takes = false;
        (self.fields)(None, &mut |fields| {
            takes = find(fields, number).is_some_and(|field| field.is_vector());
        });
        takes
    }

    /// Sets the field with that number. Returns the bytes if the message has no such field.
    pub(crate) fn attach<M: Any>(
        self,
        message: &mut M,
        number: u32,
        bytes: Vec<u8>,
    ) -> Result<(), Vec<u8>> {
        let mut bytes = Some(bytes);
        (self.fields)(Some(message), &mut |fields| {
            if let Some(field) = find(fields, number)
                && let Some(bytes) = bytes.take()
            {
                field.attach(bytes);
            }
        });
        bytes.map_or(Ok(()), Err)
    }

    /// Returns true if the message nests too deep to be encoded.
    #[inline]
    pub(crate) fn nests_too_deep<M: Any>(self, message: &M) -> bool {
        self.nests_too_deep.is_some_and(|nests_too_deep| nests_too_deep(message))
    }
}

/// Gives `visit` the message, or an empty one of its type where none is given. A message of another
/// type is not visited. For generated code.
pub fn with_fields<M: Default + 'static>(
    message: Option<&mut dyn Any>,
    visit: impl FnOnce(&mut M),
) {
    match message.map(<dyn Any>::downcast_mut) {
        Some(Some(message)) => visit(message),
        Some(None) => {}
        None => visit(&mut M::default()),
    }
}

impl PartialEq for Detacher {
    fn eq(&self, other: &Self) -> bool {
        let is_same_check = match (self.nests_too_deep, other.nests_too_deep) {
            (Some(own), Some(others)) => std::ptr::fn_addr_eq(own, others),
            (own, others) => own.is_none() && others.is_none(),
        };
        is_same_check && std::ptr::fn_addr_eq(self.fields, other.fields)
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
pub(crate) struct Detached {
    /// The field's number.
    pub(crate) number: u32,
    /// Bytes of the field.
    pub(crate) bytes: Bytes,
}

/// A singular `bytes` field, in the types that prost gives it.
pub trait BytesField {
    /// Returns the number of bytes that it could give, or 0 if it must keep them.
    fn detachable_len(&self) -> usize;

    /// Takes them out, and leaves the field as if it had never been set.
    fn detach(&mut self) -> Bytes;

    /// Returns true if it is a vector, which takes another one without a copy.
    fn is_vector(&self) -> bool;

    /// Sets it.
    fn attach(&mut self, bytes: Vec<u8>);
}

impl BytesField for Bytes {
    fn detachable_len(&self) -> usize {
        self.len()
    }

    fn detach(&mut self) -> Bytes {
        std::mem::take(self)
    }

    fn is_vector(&self) -> bool {
        false
    }

    fn attach(&mut self, bytes: Vec<u8>) {
        *self = bytes.into();
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

    fn is_vector(&self) -> bool {
        true
    }

    fn attach(&mut self, bytes: Vec<u8>) {
        *self = bytes;
    }
}

/// A field that is there or not. One that is taken out is not there.
impl<F: BytesField + Default> BytesField for Option<F> {
    fn detachable_len(&self) -> usize {
        self.as_ref().map_or(0, F::detachable_len)
    }

    fn detach(&mut self) -> Bytes {
        self.take().unwrap_or_default().detach()
    }

    fn is_vector(&self) -> bool {
        F::default().is_vector()
    }

    fn attach(&mut self, bytes: Vec<u8>) {
        self.get_or_insert_default().attach(bytes);
    }
}

fn find<'a>(
    fields: &'a mut [(u32, &mut dyn BytesField)],
    number: u32,
) -> Option<&'a mut dyn BytesField> {
    let (_, field) = fields.iter_mut().find(|(other, _)| *other == number)?;
    Some(&mut **field)
}

fn detach_longest(fields: &mut [(u32, &mut dyn BytesField)]) -> Option<Detached> {
    let longest = fields.iter_mut().max_by_key(|(_, field)| field.detachable_len())?;
    let (number, field) = longest;
    (field.detachable_len() >= DETACH_LEN_MIN)
        .then(|| Detached { number: *number, bytes: field.detach() })
}
