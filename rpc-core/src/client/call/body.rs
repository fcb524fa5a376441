//! The messages that a client sends in a call: one or a stream of them, their types erased.
//!
//! A stream is sent by a task of its own.

use std::any::Any;
use std::pin::pin;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, Stream, StreamExt};
use prost::Message;
use tokio_util::task::AbortOnDropHandle;
use tonic::Status;

use crate::call::refusal;
use crate::client::{Connection as _, EncodedBody, Outgoing, Started};
use crate::payload::encode::{Encode, Split};
use crate::payload::tail_field::Detacher;
use crate::stream::{Direction, SessionIo as _, StreamWriter, forward};
use crate::wire::FrameKind;
use crate::{Deadline, MayHaveExecuted, Method};

/// A message that is shared, so that the call can be made again.
pub(in crate::client) type SharedMessage = Arc<dyn Encode>;

/// The request of a call.
pub(in crate::client) enum Body<'a> {
    /// One message, which the stub keeps until the call ends.
    Message(&'a mut (dyn RequestMessage + 'static)),
    /// One message of a call under layers; shared, so that the call can be made again.
    Shared(Arc<dyn Encode>),
    /// A stream of messages, which the stub keeps until the call has begun.
    Stream(&'a mut (dyn RequestStream + 'static)),
    /// A stream of messages of a call under layers.
    Boxed(Box<dyn RequestStream>),
    /// A stream of messages that pass through. Its method may take one message.
    Untyped(&'a mut (dyn RequestStream + 'static)),
    /// The same of a call under layers.
    BoxedUntyped(Box<dyn RequestStream>),
}

/// The one or the other, as a channel sends it.
pub(in crate::client) enum Sent<'a> {
    Message(&'a dyn Encode),
    Stream(&'a mut (dyn RequestStream + 'static)),
}

impl Body<'_> {
    /// Returns the body to send. Takes a long tail field out of the message.
    pub(in crate::client) fn as_sent(&mut self) -> Sent<'_> {
        match self {
            Self::Message(message) => Sent::Message(message.as_encode()),
            Self::Shared(message) => Sent::Message(&**message),
            Self::Stream(stream) | Self::Untyped(stream) => Sent::Stream(&mut **stream),
            Self::Boxed(stream) | Self::BoxedUntyped(stream) => Sent::Stream(&mut **stream),
        }
    }

    pub(super) fn into_owned(self) -> Body<'static> {
        match self {
            // The message is split once, here: its clones share the long field.
            Self::Message(message) => Body::Shared(message.take_shared()),
            Self::Shared(message) => Body::Shared(message),
            Self::Stream(stream) => Body::Boxed(stream.take_boxed()),
            Self::Boxed(stream) => Body::Boxed(stream),
            Self::Untyped(stream) => Body::BoxedUntyped(stream.take_boxed()),
            Self::BoxedUntyped(stream) => Body::BoxedUntyped(stream),
        }
    }

    /// The same request for one of several attempts. A stream is there for the first one alone.
    pub(super) fn reborrow(&mut self) -> Body<'_> {
        match self {
            Self::Message(message) => Body::Message(&mut **message),
            Self::Shared(message) => Body::Shared(Arc::clone(message)),
            Self::Stream(stream) => Body::Stream(&mut **stream),
            // Lent, and not taken: an attempt that is not sent leaves the stream as it was.
            Self::Boxed(stream) => Body::Stream(&mut **stream),
            Self::Untyped(stream) => Body::Untyped(&mut **stream),
            Self::BoxedUntyped(stream) => Body::Untyped(&mut **stream),
        }
    }

    /// Reads a stream to its end and makes its one message the request, for a method that takes
    /// one.
    pub(super) async fn make_one(&mut self, method: &Method) -> Result<(), Status> {
        let taken = match self {
            Self::Message(_) | Self::Shared(_) => return Ok(()),
            Self::Stream(stream) | Self::Untyped(stream) => stream.take_one(method.clone()),
            Self::Boxed(stream) | Self::BoxedUntyped(stream) => stream.take_one(method.clone()),
        };
        // Shared: the message is whole from here on, so that the call may be repeated.
        *self = Self::Shared(taken.await?);
        Ok(())
    }

    /// The request as encodings, for a call by another protocol. `detacher` is its method's.
    pub(super) fn into_encoded(mut self, detacher: Option<Detacher>) -> EncodedBody {
        let message = match self.as_sent() {
            Sent::Stream(stream) => return EncodedBody::Stream(stream.take_encoded(detacher)),
            Sent::Message(message) => message,
        };
        // An encoded call is one buffer, into which the long field is copied.
        let tail = message.tail().cloned().unwrap_or_default();
        let mut encoding = vec![0; message.len() - tail.len()];
        message.encode_head(&mut encoding);
        encoding.extend_from_slice(&tail);
        EncodedBody::Message(encoding.into())
    }

    /// Returns true if the request can be sent more than once.
    pub(super) fn is_repeatable(&self) -> bool {
        matches!(self, Self::Message(_) | Self::Shared(_))
    }

    /// Returns true if the request is a stream whose method may take one message.
    pub(super) fn is_untyped(&self) -> bool {
        matches!(self, Self::Untyped(_) | Self::BoxedUntyped(_))
    }

    /// The same message; `None` for a stream.
    pub(super) fn try_clone(&self) -> Option<Body<'static>> {
        let Self::Shared(message) = self else { return None };
        Some(Body::Shared(Arc::clone(message)))
    }

    /// The request as the stub was given it, an `M` or a `BoxStream<'static, M>`, and the encoding
    /// of the one message. A request that layers have taken comes as what they were given.
    pub(in crate::client) fn into_any(self) -> (Box<dyn Any + Send>, Option<Vec<u8>>) {
        match self {
            Self::Message(message) => {
                let (message, encoding) = message.take_any();
                (message, Some(encoding))
            }
            Self::Stream(stream) | Self::Untyped(stream) => (stream.take_any(), None),
            Self::Shared(message) => (Box::new(message), None),
            Self::Boxed(stream) | Self::BoxedUntyped(stream) => (Box::new(stream), None),
        }
    }
}

/// One message in its stub's hands. A call is consumed where its message is taken, so that nothing
/// takes a message twice.
pub(in crate::client) trait RequestMessage: Send + Sync {
    /// The message to be encoded into the transport's memory.
    fn as_encode(&mut self) -> &dyn Encode;

    /// Takes the message out, for layers.
    fn take_shared(&mut self) -> Arc<dyn Encode>;

    /// Takes the message out as it is, and its encoding, for a mock.
    fn take_any(&mut self) -> (Box<dyn Any + Send>, Vec<u8>);
}

/// The request of a stub's call with one request message.
pub(super) struct OneMessage<M> {
    /// Absent once it was taken out.
    message: Option<Repeatable<M>>,
    detacher: Option<Detacher>,
}

/// A message that may be sent more than once, and is compressed once.
struct Repeatable<M> {
    message: Split<M>,
    deflated: OnceLock<Option<Box<Bytes>>>,
}

impl<M: Message + 'static> Repeatable<M> {
    fn new(message: M) -> Self {
        Self { message: Split::whole(message), deflated: OnceLock::new() }
    }
}

impl<M: Message> Encode for Repeatable<M> {
    fn len(&self) -> usize {
        self.message.len()
    }

    fn tail(&self) -> Option<&Bytes> {
        self.message.tail()
    }

    fn encode_head(&self, out: &mut [u8]) {
        self.message.encode_head(out);
    }

    fn kept_deflated(&self) -> Option<&OnceLock<Option<Box<Bytes>>>> {
        Some(&self.deflated)
    }
}

impl<M: Message + 'static> OneMessage<M> {
    pub(super) fn new(message: M, detacher: Option<Detacher>) -> Self {
        Self { message: Some(Repeatable::new(message)), detacher }
    }

    /// The request of a call that ends before anything asks for its message.
    pub(super) fn taken() -> Self {
        Self { message: None, detacher: None }
    }

    fn take(&mut self) -> Repeatable<M> {
        self.message.take().expect("the call that had the message is consumed")
    }
}

impl<M: Message + 'static> RequestMessage for OneMessage<M> {
    fn as_encode(&mut self) -> &dyn Encode {
        let message = self.message.as_mut().expect("the call that had the message is consumed");
        // Split where the call is made, and not in the stub: a call under layers may never be sent.
        message.message.split(self.detacher);
        message
    }

    fn take_shared(&mut self) -> Arc<dyn Encode> {
        let mut message = self.take();
        message.message.split(self.detacher);
        Arc::new(message)
    }

    fn take_any(&mut self) -> (Box<dyn Any + Send>, Vec<u8>) {
        let message = self.take().message.into_whole();
        let encoding = message.encode_to_vec();
        (Box::new(message), encoding)
    }
}

/// A stream of messages in its stub's hands; it is taken once, as a message is.
pub(in crate::client) trait RequestStream: Send {
    /// Sends the stream as the requests of a call.
    fn start(&mut self, started: &Started, call: Outgoing<'_>) -> Option<AbortOnDropHandle<()>>;

    /// Takes the stream out, for layers.
    fn take_boxed(&mut self) -> Box<dyn RequestStream>;

    /// Takes the stream out and reads it to its end, for a method that takes one message.
    fn take_one(&mut self, method: Method) -> BoxFuture<'static, Result<SharedMessage, Status>>;

    /// Takes the stream out as encodings, for a call by another protocol.
    fn take_encoded(
        &mut self,
        detacher: Option<Detacher>,
    ) -> BoxStream<'static, Result<Bytes, Status>>;

    /// Takes the stream out as a `BoxStream<'static, S::Item>`, for a mock.
    fn take_any(&mut self) -> Box<dyn Any + Send>;
}

/// The requests of a stub's call with a stream of request messages; absent once they were taken.
pub(super) struct Requests<S>(pub(super) Option<S>);

impl<S> Requests<S> {
    fn take(&mut self) -> S {
        self.0.take().expect("the call that had the stream is consumed")
    }
}

impl<S> RequestStream for Requests<S>
where
    S: Stream<Item: Message> + Send + 'static,
{
    fn start(&mut self, started: &Started, call: Outgoing<'_>) -> Option<AbortOnDropHandle<()>> {
        upload(self.take().map(Ok), started, call)
    }

    fn take_boxed(&mut self) -> Box<dyn RequestStream> {
        Box::new(Self(Some(self.take())))
    }

    fn take_one(&mut self, method: Method) -> BoxFuture<'static, Result<SharedMessage, Status>> {
        one_message(method, self.take().map(Ok)).boxed()
    }

    fn take_encoded(
        &mut self,
        detacher: Option<Detacher>,
    ) -> BoxStream<'static, Result<Bytes, Status>> {
        self.take().map(move |message| encoded(&message, detacher)).boxed()
    }

    fn take_any(&mut self) -> Box<dyn Any + Send> {
        Box::new(self.take().boxed())
    }
}

/// The requests of a call whose messages come from elsewhere, where they may break off. Absent once
/// they were taken.
pub(super) struct FallibleRequests<S>(pub(super) Option<S>);

impl<S> FallibleRequests<S> {
    fn take(&mut self) -> S {
        self.0.take().expect("the call that had the stream is consumed")
    }
}

impl<M, S> RequestStream for FallibleRequests<S>
where
    M: Message + 'static,
    S: Stream<Item = Result<M, Status>> + Send + 'static,
{
    fn start(&mut self, started: &Started, call: Outgoing<'_>) -> Option<AbortOnDropHandle<()>> {
        upload(self.take(), started, call)
    }

    fn take_boxed(&mut self) -> Box<dyn RequestStream> {
        Box::new(Self(Some(self.take())))
    }

    fn take_one(&mut self, method: Method) -> BoxFuture<'static, Result<SharedMessage, Status>> {
        one_message(method, self.take()).boxed()
    }

    fn take_encoded(
        &mut self,
        detacher: Option<Detacher>,
    ) -> BoxStream<'static, Result<Bytes, Status>> {
        self.take().map(move |message| encoded(&message?, detacher)).boxed()
    }

    fn take_any(&mut self) -> Box<dyn Any + Send> {
        Box::new(self.take().boxed())
    }
}

fn encoded<M: Message + 'static>(message: &M, detacher: Option<Detacher>) -> Result<Bytes, Status> {
    refusal::check_nesting("request", message, detacher)?;
    Ok(message.encode_to_vec().into())
}

/// Reads a stream to its end, which has to be behind one message.
async fn one_message<M: Message + 'static>(
    method: Method,
    stream: impl Stream<Item = Result<M, Status>> + Send,
) -> Result<SharedMessage, Status> {
    let mut stream = pin!(stream);
    let Some(message) = stream.next().await.transpose()? else {
        return Err(refusal::not_one_message(method.path(), "none"));
    };
    // A stream that breaks behind its message has not ended: the caller may have meant more.
    match stream.next().await.transpose()? {
        None => Ok(Arc::new(Repeatable::new(message))),
        Some(_) => Err(refusal::not_one_message(method.path(), "more than one")),
    }
}

/// Sends `stream` as the requests of a call. Dropped, it stops where it is.
///
/// A stream that ends with an error has broken off: the call ends with that error, and the server
/// learns that it was given up. A half-close would tell it that there is no more to come.
pub(in crate::client) fn upload<M, S>(
    stream: S,
    started: &Started,
    call: Outgoing<'_>,
) -> Option<AbortOnDropHandle<()>>
where
    M: Message + 'static,
    S: Stream<Item = Result<M, Status>> + Send + 'static,
{
    let send_stream = Arc::clone(started.send_stream.as_ref()?);
    let (id, session) = (started.guard.id(), Arc::clone(started.guard.session()));
    let compress_from = session.core().settled.compression.from(call.limits.compress_from());
    let direction = Direction::requests(call.method.detach(), call.limits);
    let direction = direction.compressed_from(compress_from);
    let mut writer = StreamWriter::new(started.io(), id);
    // Calls that the stream makes while it is polled belong to the maker of the stream.
    let sending = Deadline::scope(Deadline::current(), async move {
        let stream = pin!(stream);
        match forward(stream, &send_stream, &mut writer, direction).await {
            // Behind the messages: the writer numbers it after them.
            Ok(()) => writer.send_control(FrameKind::HalfClose),
            // It may have found the connection's end before the session did.
            Err(status) if session.closed().is_some() => {
                session.fail(id, MayHaveExecuted::mark(status));
            }
            Err(status) => session.fail(id, status),
        }
    });
    // A task of its own, because the caller may read responses without polling its requests. It
    // ends with the call.
    Some(AbortOnDropHandle::new(tokio::spawn(sending)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_the_same_with_layers_and_without() {
        let text = "some words".to_owned();
        let encode = |message: &dyn Encode| {
            let mut out = vec![0; message.len()];
            message.encode_head(&mut out);
            out
        };
        let mut own = OneMessage::new(text.clone(), None);
        let mut body = Body::Message(&mut own);
        let Sent::Message(message) = body.as_sent() else { panic!("it is one message") };
        assert_eq!(encode(message), text.encode_to_vec());
        let mut shared = body.into_owned();
        let mut again = shared.try_clone().expect("it is one message");
        for body in [&mut shared, &mut again] {
            let Sent::Message(message) = body.as_sent() else { panic!("it is one message") };
            assert_eq!(encode(message), text.encode_to_vec());
        }
    }

    #[cfg(feature = "compression")]
    #[tokio::test]
    async fn a_message_is_compressed_once_for_all_attempts() {
        use crate::compression::Deflated;

        let mut own = OneMessage::new("some words ".repeat(1000), None);
        let mut body = Body::Message(&mut own);
        let mut deflated = Vec::new();
        for _ in 0..2 {
            let mut attempt = body.reborrow();
            let Sent::Message(message) = attempt.as_sent() else { panic!("it is one message") };
            deflated.push(Deflated::of(message).await.expect("it repeats itself"));
        }
        // Layers take it along.
        let mut shared = body.into_owned();
        let Sent::Message(message) = shared.as_sent() else { panic!("it is one message") };
        deflated.push(Deflated::of(message).await.expect("it repeats itself"));
        let at = |deflated: &Deflated| deflated.tail().map(|bytes| bytes.as_ptr());
        assert!(deflated.iter().all(|other| at(other) == at(&deflated[0])));
    }

    #[test]
    fn a_mock_is_given_the_message_itself() {
        let mut message = OneMessage::new(7_u64, None);
        let (message, encoding) = Body::Message(&mut message).into_any();
        assert_eq!(message.downcast_ref(), Some(&7_u64));
        assert_eq!(encoding, Some(7_u64.encode_to_vec()));
    }
}
