//! `farcall call`: a call of any kind, with JSON messages.

use std::time::{Duration, Instant};

use farcall::metadata::{KeyAndValueRef, MetadataMap};
use farcall::{
    CallKind, CallStage, Channel, Explain, MethodDescriptor, Request, Response, Status, Streaming,
    client,
};
use prost_reflect::MessageDescriptor;

use crate::args::{CallArgs, Global};
use crate::failure::Failure;
use crate::method::{self, Raw};
use crate::output::{self, Output};
use crate::{explain, message, requests, schema, target};

/// A method, its channel, and the form of its output.
struct Caller<'a> {
    global: &'a Global,
    args: &'a CallArgs,
    output: &'a Output,
    channel: Channel,
    method: &'static MethodDescriptor,
    response: MessageDescriptor,
    /// The account of the call, with `-v` alone.
    explain: Option<Explain>,
}

pub(crate) async fn run(global: &Global, args: &CallArgs, output: &Output) -> Result<(), Failure> {
    let (channel, described) = schema::called(global, args).await?;
    let method = method::from_schema(&described);
    let (response, explain) = (described.output(), output.has_notes().then(Explain::new));
    let caller = Caller { global, args, output, channel, method, response, explain };
    caller.note_path();
    let start = Instant::now();
    let count = match method.kind {
        CallKind::Unary | CallKind::ServerStreaming => caller.with_one(described.input()).await?,
        CallKind::ClientStreaming | CallKind::Streaming => {
            let (stream, fault) = requests::stream(args, described.input())?;
            tokio::select! {
                biased;
                failure = fault => return Err(failure),
                count = caller.with_stream(stream) => count?,
            }
        }
    };
    caller.note_account();
    let took = output::duration(start.elapsed());
    let responses = if count == 1 { "response" } else { "responses" };
    output.note(&format!("< OK in {took}: {count} {responses}"));
    Ok(())
}

impl Caller<'_> {
    fn note_path(&self) {
        let path = self.channel.path();
        let transport = path.transport().unwrap_or("no connection");
        let reason = target::reason(&path);
        self.output.note(&format!("> over {transport} ({reason})"));
        for endpoint in self.channel.endpoints() {
            self.output.note(&format!("> endpoint {}", endpoint.endpoint.address));
        }
    }

    /// Notes the account of the call.
    fn note_account(&self) {
        let Some(explain) = &self.explain else { return };
        let explained = explain.explanation();
        // The path is noted before the call, and so is the only server.
        let is_new =
            |name: &str| name != "path" && (name != "endpoint" || explained.pick.is_some());
        for (name, fact) in explain::facts(&explained) {
            if is_new(name) {
                self.output.note(&format!("> {name:<8} {fact}"));
            }
        }
        let stage = |(stage, time): &(CallStage, Duration)| {
            format!("{} {}", stage.name(), output::duration(*time))
        };
        let stages: Vec<_> = explained.stages.iter().map(stage).collect();
        let total = output::duration(explained.total);
        self.output.note(&format!("< answered in {total}: {}", stages.join(", ")));
    }

    /// Returns a request with what the flags ask for.
    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = self.global.request(message);
        if let Some(explain) = &self.explain {
            request.extensions_mut().insert(explain.clone());
        }
        request
    }

    /// Calls with one request, and returns the number of responses.
    async fn with_one(&self, descriptor: MessageDescriptor) -> Result<u64, Failure> {
        let request = self.request(requests::one(self.args, descriptor)?);
        match self.method.kind {
            CallKind::Unary => {
                self.show_one(client::unary(&self.channel, self.method, request).await)
            }
            _ => {
                let result = client::server_streaming(&self.channel, self.method, request).await;
                self.show_all(result).await
            }
        }
    }

    /// Calls with a stream of requests, and returns the number of responses.
    async fn with_stream(
        &self,
        stream: impl futures::Stream<Item = Raw> + Send + 'static,
    ) -> Result<u64, Failure> {
        let request = self.request(stream);
        match self.method.kind {
            CallKind::ClientStreaming => {
                let result = client::client_streaming(&self.channel, self.method, request).await;
                self.show_one(result)
            }
            _ => {
                let result = client::streaming(&self.channel, self.method, request).await;
                self.show_all(result).await
            }
        }
    }

    fn show_one(&self, result: Result<Response<Raw>, Status>) -> Result<u64, Failure> {
        let response = result.map_err(|status| self.failure(&status))?;
        self.note_metadata(response.metadata());
        self.show(response.into_inner()).map(|()| 1)
    }

    async fn show_all(
        &self,
        result: Result<Response<Streaming<Raw>>, Status>,
    ) -> Result<u64, Failure> {
        let response = result.map_err(|status| self.failure(&status))?;
        self.note_metadata(response.metadata());
        let mut responses = response.into_inner();
        let mut count = 0;
        while let Some(raw) = responses.message().await.map_err(|status| self.failure(&status))? {
            self.show(raw)?;
            count += 1;
        }
        if let Some(trailers) = responses.trailers().await.unwrap_or_default() {
            self.note_metadata(&trailers);
        }
        Ok(count)
    }

    fn show(&self, Raw(bytes): Raw) -> Result<(), Failure> {
        let message = message::decode(self.response.clone(), bytes)?;
        self.output.value(&message::shown(&message, self.args.emit_defaults))
    }

    fn failure(&self, status: &Status) -> Failure {
        self.note_metadata(status.metadata());
        self.note_account();
        Failure::call(status)
    }

    fn note_metadata(&self, metadata: &MetadataMap) {
        for entry in metadata.iter() {
            let line = match entry {
                KeyAndValueRef::Ascii(key, value) => {
                    format!("< {key}: {}", String::from_utf8_lossy(value.as_bytes()))
                }
                KeyAndValueRef::Binary(key, value) => {
                    format!("< {key}: {}", String::from_utf8_lossy(value.as_encoded_bytes()))
                }
            };
            self.output.note(&line);
        }
    }
}
