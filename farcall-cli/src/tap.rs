//! `farcall tap`: calls of servers as they end, by the service for operators.

use std::pin::pin;
use std::time::{Duration, SystemTime};

use farcall::server::admin_api::{EndedCall, SERVICE, WatchCallsRequest};
use farcall::{Code, Status, client};
use futures::{StreamExt as _, stream};
use serde::Serialize;

use crate::args::{Global, TapArgs};
use crate::failure::{Failure, code_name};
use crate::output::{self, Output};
use crate::{target, top};

/// Maximum length of a call's description if the flags set none, in bytes.
const ANSWER_LEN_MAX: u64 = 64 << 10;

/// Longest text of a server, in characters.
const TEXT_LEN_MAX: usize = 100;

/// Most keys of metadata in a line.
const KEYS_MAX: usize = 32;

/// The end of the year 9999 in milliseconds since 1970. Times behind it have no usual form.
const UNIX_MS_MAX: u64 = 253_402_300_799_999;

/// A call, as a line has it.
#[derive(Debug, Serialize)]
struct Line<'a> {
    time: String,
    server: &'a str,
    method: String,
    peer: String,
    transport: String,
    code: String,
    took_us: u64,
    requests: u64,
    request_bytes: u64,
    responses: u64,
    response_bytes: u64,
    metadata_keys: Vec<String>,
    /// Calls before this one that the server did not show, since they came too fast.
    dropped: u64,
}

pub(crate) async fn run(global: &Global, args: &TapArgs, output: &Output) -> Result<(), Failure> {
    let max = global.max_message_len.unwrap_or(ANSWER_LEN_MAX);
    // The time limit is that of the connection. A watch has no end.
    let global = Global {
        max_message_len: Some(max),
        connect_timeout: Some(target::connect_limit(global)),
        timeout: None,
        ..global.clone()
    };
    let choice = WatchCallsRequest {
        method: args.method.clone(),
        codes: args.status.as_ref().map(|codes| codes.0.clone()).unwrap_or_default(),
        sample_ppm: args.sample.unwrap_or_default(),
    };
    let servers = target::servers(&global, &args.target).await?;
    let mut calls = Vec::new();
    for (name, channel) in &servers {
        let request = global.request(choice.clone());
        let watch = client::server_streaming(channel, &SERVICE.methods[1], request);
        // A server that hangs must not keep the others' calls back without an end.
        let watch = match tokio::time::timeout(target::connect_limit(&global), watch).await {
            Ok(watch) => watch,
            Err(_) => Err(Status::deadline_exceeded("no answer in time")),
        };
        let watch = watch.map_err(|status| top::first_failure(name, &status))?;
        calls.push(watch.into_inner().map(move |call: Result<EndedCall, _>| (name, call)));
    }
    output.note(&format!("> watching {} servers", servers.len()));
    let shows_server = servers.len() > 1;
    let mut calls = stream::select_all(calls);
    // One for all calls: tokio drops a signal that comes while no future waits for it.
    let mut interrupt = pin!(tokio::signal::ctrl_c());
    let mut shown = 0;
    while args.count.is_none_or(|count| shown < count) {
        let next = tokio::select! {
            biased;
            _ = &mut interrupt => return Ok(()),
            next = calls.next() => next,
        };
        // All servers have drained.
        let Some((server, call)) = next else { return Ok(()) };
        let call = call.map_err(|status: Status| Failure::call(&status).context(server))?;
        show(&Line::new(server, &call), shows_server, output)?;
        shown += 1;
    }
    Ok(())
}

fn show(line: &Line<'_>, shows_server: bool, output: &Output) -> Result<(), Failure> {
    if output.is_json() {
        return output.value(line);
    }
    if line.dropped > 0 {
        let dropped = output::count(line.dropped);
        output.line(&format!("({dropped} calls came too fast: narrow --method, or --sample)"))?;
    }
    output.line(&line.text(shows_server))
}

impl<'a> Line<'a> {
    fn new(server: &'a str, call: &EndedCall) -> Self {
        let keys = call.metadata_keys.iter().take(KEYS_MAX).map(|key| short(key));
        Self {
            time: time(call.unix_ms),
            server,
            method: short(call.method.trim_start_matches('/')),
            peer: short(&call.peer),
            transport: short(&call.transport),
            code: code_name(Code::from(call.code)),
            took_us: call.took_us,
            requests: call.requests,
            request_bytes: call.request_bytes,
            responses: call.responses,
            response_bytes: call.response_bytes,
            metadata_keys: keys.collect(),
            dropped: call.dropped,
        }
    }

    fn text(&self, shows_server: bool) -> String {
        let Self { time, server, method, peer, transport, code, .. } = self;
        let server = if shows_server { format!("{server}  ") } else { String::new() };
        let took = output::duration(Duration::from_micros(self.took_us));
        let requests = messages(self.requests, self.request_bytes);
        let responses = messages(self.responses, self.response_bytes);
        let keys = match self.metadata_keys.as_slice() {
            [] => String::new(),
            keys => format!("  metadata {}", keys.join(",")),
        };
        format!(
            "{time}  {server}{code}  {took}  {method}  {peer} {transport}  \
             in {requests}  out {responses}{keys}"
        )
    }
}

/// Returns `12 B`, or `3 x 36 B` for the messages of a stream.
fn messages(count: u64, bytes: u64) -> String {
    let bytes = output::count(bytes);
    match count {
        0 | 1 => format!("{bytes} B"),
        count => format!("{} messages {bytes} B", output::count(count)),
    }
}

/// Returns a time as RFC 3339 has it.
fn time(unix_ms: u64) -> String {
    if unix_ms > UNIX_MS_MAX {
        return "-".to_owned();
    }
    let time = SystemTime::UNIX_EPOCH + Duration::from_millis(unix_ms);
    humantime::format_rfc3339_millis(time).to_string()
}

/// Cuts a text of a server.
fn short(text: &str) -> String {
    text.chars().take(TEXT_LEN_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call() -> EndedCall {
        EndedCall {
            unix_ms: 1_700_000_000_123,
            method: "/shop.Cart/Get".into(),
            peer: "127.0.0.1:4000".into(),
            transport: "tcp".into(),
            code: 5,
            took_us: 212,
            requests: 1,
            request_bytes: 12,
            responses: 3,
            response_bytes: 3_600,
            metadata_keys: vec!["x-a".into(), "x-b".into()],
            dropped: 0,
        }
    }

    #[test]
    fn line_has_every_fact_of_the_call() {
        let text = Line::new("tcp://a:1", &call()).text(false);
        let expected = "2023-11-14T22:13:20.123Z  NOT_FOUND  212.0 us  shop.Cart/Get  \
                        127.0.0.1:4000 tcp  in 12 B  out 3 messages 3,600 B  metadata x-a,x-b";
        assert_eq!(text, expected);
        let call = EndedCall { metadata_keys: Vec::new(), ..call() };
        let text = Line::new("tcp://a:1", &call).text(true);
        assert!(text.contains("Z  tcp://a:1  NOT_FOUND  ") && text.ends_with("3,600 B"), "{text}");
    }

    #[test]
    fn lines_of_a_hostile_server_are_bounded() {
        let long = || "x".repeat(50_000);
        let hostile = EndedCall {
            unix_ms: u64::MAX,
            method: long(),
            peer: long(),
            transport: long(),
            code: i32::MIN,
            took_us: u64::MAX,
            requests: u64::MAX,
            request_bytes: u64::MAX,
            responses: u64::MAX,
            response_bytes: u64::MAX,
            metadata_keys: vec![long(); 1000],
            dropped: u64::MAX,
        };
        let text = Line::new("tcp://a:1", &hostile).text(true);
        assert!(text.len() < 4000 && text.starts_with("-  tcp://a:1  UNKNOWN  "), "{}", text.len());
    }
}
