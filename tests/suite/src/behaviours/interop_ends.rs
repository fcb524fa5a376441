//! gRPC's interoperability tests of calls that do not end well: statuses, cancels, deadlines.

use std::time::Duration;

use farcall::{Code, Request, Status};
use futures::{StreamExt, stream};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::interop_calls::{output_request, read, zeros};
use crate::failure::{check, check_eq, refused};
use crate::harness::stack::OnDrop;
use crate::interop::{DUPLEX_TAG, INPUT_TAG};
use crate::interop_proto::{
    EchoStatus, Empty, SimpleRequest, StreamingInputCallRequest, StreamingOutputCallRequest,
};
use crate::{Failure, Harness};
use farcall_probe::watch::WatchEvent;

/// Blanks and line ends at both ends and inside, percent signs, characters within and beyond the
/// basic multilingual plane.
const SPECIAL_MESSAGE: &str = "\t\n blanks at the ends, a line\r\nand 100 %41: ☺ ß 日本 😈\t\n";

/// The deadline of the call to a server that sleeps.
const AT_ONCE: Duration = Duration::from_millis(1);

/// Time to watch a stream that never ends: far longer than its deadline.
const OUT_OF_DATE: Duration = Duration::from_millis(300);

fn check_status(status: &Status, code: Code, message: &str) -> Result<(), Failure> {
    check_eq("the status", &(status.code(), status.message()), &(code, message))
}

async fn message_survives(harness: &Harness, message: &str) -> Result<(), Failure> {
    let server = harness.serve_either().await?;
    let client = server.test().await?;
    let echo = EchoStatus { code: Code::Unknown.into(), message: message.to_owned() };
    let response_status = Some(echo);
    let request = SimpleRequest { response_status: response_status.clone(), ..Default::default() };
    let status = refused("the unary call", client.unary_call(request).await)?;
    check_status(&status, Code::Unknown, message)?;
    let request = StreamingOutputCallRequest { response_status, ..Default::default() };
    // The stream may fail before or after its beginning.
    let status = match client.full_duplex_call(stream::iter([request])).await {
        Ok(answers) => refused("the stream", answers.into_inner().message().await)?,
        Err(status) => status,
    };
    check_status(&status, Code::Unknown, message)
}

pub(crate) async fn interop_status_code_and_message(harness: &Harness) -> Result<(), Failure> {
    message_survives(harness, "a message of the test").await
}

pub(crate) async fn interop_special_status_message(harness: &Harness) -> Result<(), Failure> {
    message_survives(harness, SPECIAL_MESSAGE).await
}

pub(crate) async fn interop_unimplemented_method(harness: &Harness) -> Result<(), Failure> {
    let server = harness.serve_either().await?;
    let client = server.test().await?;
    let status = refused("the call", client.unimplemented_call(Empty {}).await)?;
    check_eq("the code", &status.code(), &Code::Unimplemented)?;
    client.empty_call(Empty {}).await?;
    Ok(())
}

pub(crate) async fn interop_unimplemented_service(harness: &Harness) -> Result<(), Failure> {
    let server = harness.serve_either().await?;
    let client = server.unimplemented().await?;
    let status = refused("the call", client.unimplemented_call(Empty {}).await)?;
    check_eq("the code", &status.code(), &Code::Unimplemented)?;
    server.test().await?.empty_call(Empty {}).await?;
    Ok(())
}

/// Dropping the future is what cancels, so that only the handler can tell how the call ended.
pub(crate) async fn interop_cancel_after_begin(harness: &Harness) -> Result<(), Failure> {
    let mut server = harness.serve_either().await?;
    let client = server.test().await?;
    let given_up = client.clone();
    // The stream is neither ended nor fed: nothing but the cancel can end the call.
    let requests = stream::pending::<StreamingInputCallRequest>();
    let call = tokio::spawn(async move { given_up.streaming_input_call(requests).await });
    check_eq("the handler", &server.event().await?, &WatchEvent::Entered(INPUT_TAG))?;
    call.abort();
    let ended = call.await;
    check(ended.is_err(), "the call given up", &ended)?;
    let expected = match server.stack().tells_cancel_from_end() {
        true => WatchEvent::Dropped(INPUT_TAG),
        // To tonic's handler, a stream that was cancelled is one that has ended.
        false => WatchEvent::Answered(INPUT_TAG),
    };
    check_eq("the handler of a call given up", &server.event().await?, &expected)?;
    // One whose requests do end comes to its answer on either.
    let requests =
        stream::iter([StreamingInputCallRequest { payload: zeros(7), ..Default::default() }]);
    let reply = client.streaming_input_call(requests).await?.into_inner();
    check_eq("the sum", &reply.aggregated_payload_size, &7)?;
    check_eq("the handler", &server.event().await?, &WatchEvent::Entered(INPUT_TAG))?;
    check_eq("the handler", &server.event().await?, &WatchEvent::Answered(INPUT_TAG))
}

pub(crate) async fn interop_cancel_after_first_response(harness: &Harness) -> Result<(), Failure> {
    let mut server = harness.serve_either().await?;
    let client = server.test().await?;
    let (sender, requests) = mpsc::channel(1);
    let sent = sender.send(output_request(27_182, 31_415)).await;
    check(sent.is_ok(), "the request stream", "closed")?;
    let requests = ReceiverStream::new(requests);
    let mut answers = client.full_duplex_call(requests).await?.into_inner();
    read(&mut answers, 31_415).await?;
    check_eq("the handler", &server.event().await?, &WatchEvent::Entered(DUPLEX_TAG))?;
    drop(answers);
    match server.stack().on_drop() {
        OnDrop::LivesOn => {
            // The call lives on its requests: nothing is cancelled until they end too.
            let early = tokio::time::timeout(OUT_OF_DATE, server.watch().next()).await;
            check(early.is_err(), "an event of the stream given up", early)?;
            drop(sender);
            let left = server.event().await?;
            check(left != WatchEvent::Entered(DUPLEX_TAG), "the stream given up", left)?;
        }
        OnDrop::CancelsAsEnd => {
            let left = server.event().await?;
            check(left != WatchEvent::Entered(DUPLEX_TAG), "the stream given up", left)?;
            sender.closed().await;
        }
        OnDrop::Cancels => {
            check_eq(
                "the stream given up",
                &server.event().await?,
                &WatchEvent::Dropped(DUPLEX_TAG),
            )?;
            // Its requests are no longer read either.
            sender.closed().await;
        }
    }
    client.empty_call(Empty {}).await?;
    Ok(())
}

pub(crate) async fn interop_timeout_on_sleeping_server(harness: &Harness) -> Result<(), Failure> {
    let server = harness.serve_either().await?;
    let client = server.test().await?;
    let asks = StreamingOutputCallRequest { payload: zeros(27_182), ..Default::default() };
    let mut request = Request::new(stream::iter([asks]).chain(stream::pending()));
    request.set_timeout(AT_ONCE);
    let begun = client.full_duplex_call(request).await;
    let stack = server.stack();
    match begun {
        // Its timer stops when the stream begins: nothing ends that any more.
        Ok(answers) if !stack.bounds_streams() => {
            let mut answers = answers.into_inner();
            let message = tokio::time::timeout(OUT_OF_DATE, answers.message()).await;
            check(message.is_err(), "the end of the stream", &message)?;
        }
        // The deadline may pass before the stream has begun or after.
        Ok(answers) => {
            let status = refused("the stream", answers.into_inner().message().await)?;
            check_eq("the code", &status.code(), &Code::DeadlineExceeded)?;
        }
        Err(status) => {
            let is_right = stack.may_end_late_with(status.code());
            check(is_right, "the code of a call that is over its time", status.code())?;
        }
    }
    client.empty_call(Empty {}).await?;
    Ok(())
}
