//! The requests of a call: JSON of `-d` or of the standard input.

use std::future::Future;

use bytes::Bytes;
use farcall::prost::Message as _;
use futures::Stream;
use prost_reflect::{DynamicMessage, MessageDescriptor};
use tokio::sync::{mpsc, oneshot};

use crate::args::CallArgs;
use crate::failure::Failure;
use crate::message::JsonMessages;
use crate::method::Raw;

/// Reads the one request of a call: an empty message without `-d`.
pub(crate) fn one(args: &CallArgs, descriptor: MessageDescriptor) -> Result<Raw, Failure> {
    let name = descriptor.full_name().to_owned();
    let empty = Bytes::from(DynamicMessage::new(descriptor.clone()).encode_to_vec());
    let mut next = reader(args, descriptor);
    let first = next()?;
    if first.is_some() && next()?.is_some() {
        let message = format!("the method takes one {name}, but the JSON has several");
        return Err(Failure::usage(message));
    }
    Ok(Raw(first.unwrap_or(empty)))
}

/// The requests of a stream, and the fault in their JSON if there is one.
///
/// A text of `-d` is read whole before the call. The standard input is read as it comes, so that
/// requests and responses can take turns; the stream stays open behind a fault, since its end would
/// tell the server that the requests are complete.
pub(crate) fn stream(
    args: &CallArgs,
    descriptor: MessageDescriptor,
) -> Result<(impl Stream<Item = Raw> + Send + 'static, impl Future<Output = Failure>), Failure> {
    let (sender, mut receiver) = mpsc::channel(1);
    let (fault_sender, fault) = oneshot::channel();
    let is_input = args.data.as_deref() == Some("@");
    let mut next = reader(args, descriptor);
    let mut read = Vec::new();
    while !is_input && let Some(message) = next()? {
        read.push(message);
    }
    std::thread::spawn(move || {
        let mut read = read.into_iter();
        loop {
            let message = match (read.next(), is_input) {
                (Some(message), _) => Ok(Some(message)),
                (None, true) => next(),
                (None, false) => Ok(None),
            };
            match message {
                Ok(Some(message)) => {
                    if sender.blocking_send(Raw(message)).is_err() {
                        // The call has ended.
                        return;
                    }
                }
                Ok(None) => return,
                Err(failure) => return drop(fault_sender.send((failure, sender))),
            }
        }
    });
    let requests = futures::stream::poll_fn(move |context| receiver.poll_recv(context));
    let fault = async move {
        match fault.await {
            // The sender goes with the process: dropped, it would end the stream.
            Ok((failure, sender)) => {
                std::mem::forget(sender);
                failure
            }
            Err(_) => std::future::pending().await,
        }
    };
    Ok((requests, fault))
}

/// Returns a function that reads the next message.
fn reader(
    args: &CallArgs,
    descriptor: MessageDescriptor,
) -> Box<dyn FnMut() -> Result<Option<Bytes>, Failure> + Send> {
    let is_lenient = args.allow_unknown_fields;
    match args.data.as_deref() {
        Some("@") => {
            let input = std::io::stdin();
            let mut messages = JsonMessages::new("standard input", descriptor, is_lenient, input);
            Box::new(move || messages.next_message())
        }
        text => {
            let text = std::io::Cursor::new(text.unwrap_or_default().to_owned());
            let mut messages = JsonMessages::new("-d", descriptor, is_lenient, text);
            Box::new(move || messages.next_message())
        }
    }
}
