//! Type-erased messages, for type-erased callers.
//!
//! The methods of a [`crate::Caller`] are generic over messages, so that no `dyn Caller` can have
//! them. A [`DynMessage`] stands for any request, a [`RawMessage`] for any response: with these two
//! the methods have one type each. A request is still encoded once, into the memory of the
//! transport, and a response is decoded once, from the memory that it was received into.

use std::any::{Any, TypeId};
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, BufMut, Bytes};
use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use prost::encoding::{DecodeContext, WireType, skip_field};
use prost::{DecodeError, Message};

/// A request message of any type.
pub(crate) struct DynMessage(Box<dyn AnyMessage>);

impl DynMessage {
    /// One of any type stays what it is: a caller whose type is forgotten may be in another one.
    pub(crate) fn new(message: impl Message + 'static) -> Self {
        identity(message).unwrap_or_else(|message| Self(Box::new(message)))
    }

    /// The message, if it is an `M`.
    pub(crate) fn downcast<M: 'static>(self) -> Option<M> {
        self.0.into_any().downcast().ok().map(|message| *message)
    }

    pub(crate) fn as_any_mut(&mut self) -> &mut dyn Any {
        self.0.as_any_mut()
    }
}

/// The value as a `U`, if that is its type.
fn identity<T: 'static, U: 'static>(value: T) -> Result<U, T> {
    let mut value = Some(value);
    let any: &mut dyn Any = &mut value;
    let same = any.downcast_mut::<Option<U>>().and_then(Option::take);
    same.ok_or_else(|| value.expect("a value of another type was not taken"))
}

/// A message as an object.
trait AnyMessage: Send + Sync {
    fn dyn_len(&self) -> usize;
    fn dyn_encode(&self, out: &mut dyn BufMut);
    fn as_any_mut(&mut self) -> &mut dyn Any;
    fn into_any(self: Box<Self>) -> Box<dyn Any>;
}

impl<M: Message + 'static> AnyMessage for M {
    fn dyn_len(&self) -> usize {
        self.encoded_len()
    }

    fn dyn_encode(&self, mut out: &mut dyn BufMut) {
        self.encode_raw(&mut out);
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

impl Message for DynMessage {
    fn encode_raw(&self, out: &mut impl BufMut) {
        self.0.dyn_encode(out);
    }

    fn encoded_len(&self) -> usize {
        self.0.dyn_len()
    }

    /// A client decodes no requests.
    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buf: &mut impl Buf,
        ctx: DecodeContext,
    ) -> Result<(), DecodeError> {
        skip_field(wire_type, tag, buf, ctx)
    }

    fn clear(&mut self) {
        *self = Self::new(());
    }
}

impl fmt::Debug for DynMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "message of {} bytes", self.encoded_len())
    }
}

/// A stream of request messages of any type.
pub(crate) struct DynMessages {
    messages: BoxStream<'static, DynMessage>,
    /// The type of each of them.
    type_id: TypeId,
}

impl DynMessages {
    pub(crate) fn new<S>(messages: S) -> Self
    where
        S: Stream<Item: Message> + Send + 'static,
    {
        let type_id = TypeId::of::<S::Item>();
        let erase = |messages: S| Self { messages: messages.map(DynMessage::new).boxed(), type_id };
        identity(messages).unwrap_or_else(erase)
    }

    /// The messages, if they are of the type `M`.
    pub(crate) fn downcast<M: Send + 'static>(self) -> Option<BoxStream<'static, M>> {
        let typed = |message: DynMessage| std::future::ready(message.downcast());
        (self.type_id == TypeId::of::<M>()).then(|| self.messages.filter_map(typed).boxed())
    }
}

impl Stream for DynMessages {
    type Item = DynMessage;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<DynMessage>> {
        self.messages.as_mut().poll_next(cx)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.messages.size_hint()
    }
}

/// The encoding of a response message of any type, in the memory that it was received into.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RawMessage(pub(crate) Bytes);

impl RawMessage {
    pub(crate) fn of(message: &impl Message) -> Self {
        Self(message.encode_to_vec().into())
    }
}

impl Message for RawMessage {
    fn encode_raw(&self, out: &mut impl BufMut) {
        out.put_slice(&self.0);
    }

    fn encoded_len(&self) -> usize {
        self.0.len()
    }

    /// What a message is decoded with: it takes all that there is.
    fn merge(&mut self, mut buf: impl Buf) -> Result<(), DecodeError> {
        self.0 = buf.copy_to_bytes(buf.remaining());
        Ok(())
    }

    /// For a field of another message, which this never is.
    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buf: &mut impl Buf,
        ctx: DecodeContext,
    ) -> Result<(), DecodeError> {
        skip_field(wire_type, tag, buf, ctx)
    }

    fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_without_its_type_has_the_same_encoding() {
        let text = "some words".to_owned();
        let erased = DynMessage::new(text.clone());
        assert_eq!(erased.encode_to_vec(), text.encode_to_vec());
        assert_eq!(erased.downcast::<String>(), Some(text));
        assert_eq!(DynMessage::new(7_u64).downcast::<String>(), None);
        let twice = DynMessage::new(DynMessage::new(7_u64));
        assert_eq!(twice.downcast::<u64>(), Some(7));
    }

    #[test]
    fn a_raw_message_aliases_what_it_is_decoded_from() {
        let received = Bytes::from("some words".to_owned().encode_to_vec());
        let raw = RawMessage::decode(received.clone()).unwrap();
        assert_eq!(raw.0.as_ptr(), received.as_ptr());
        assert_eq!(raw.encode_to_vec(), received);
        assert_eq!(String::decode(raw.0).unwrap(), "some words");
    }
}
