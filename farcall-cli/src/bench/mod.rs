//! `farcall bench`: latency and throughput of a unary method.

mod html;
mod load;
mod report;

use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use farcall::client;

use crate::args::{BenchArgs, Global};
use crate::bench::load::{Load, Plan};
use crate::bench::report::Report;
use crate::failure::Failure;
use crate::method;
use crate::output::{Output, count};
use crate::{requests, schema};

/// Interval between updates of the progress line.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);

pub(crate) async fn run(global: &Global, args: &BenchArgs, output: &Output) -> Result<(), Failure> {
    let (channel, described) = schema::called_unary("bench", global, &args.call).await?;
    let method = method::from_schema(&described);
    let request = requests::one(&args.call, described.input())?;
    // A method that fails is not worth a measurement; the first call also warms the path up.
    let first = client::unary::<_, method::Raw>(&channel, method, global.request(request.clone()));
    first.await.map_err(|status| Failure::call(&status))?;
    let plan = Plan {
        concurrency: args.concurrency,
        rate: args.rate,
        duration: args.duration,
        calls: args.calls,
    };
    let load = Arc::new(Load::new(plan)?);
    let call = {
        let (channel, global) = (channel.clone(), global.clone());
        move || {
            let (channel, request) = (channel.clone(), global.request(request.clone()));
            async move {
                let reply = client::unary::<_, method::Raw>(&channel, method, request).await;
                reply.map(drop).map_err(|status| status.code())
            }
        }
    };
    let start = Instant::now();
    let running = load::run(Arc::clone(&load), call);
    tokio::select! {
        () = running => {}
        () = progress(&load, start), if std::io::stderr().is_terminal() => {}
    }
    let report = Report::new(&args.call, &load.finish(), &channel);
    if let Some(path) = &args.json {
        write(path, &serde_json::to_string_pretty(&report).unwrap_or_default())?;
    }
    if let Some(path) = &args.html {
        write(path, &html::page(&report))?;
    }
    if output.is_json() {
        output.value(&report)?;
    } else {
        report.lines().iter().try_for_each(|line| output.line(line))?;
    }
    match report.common_failure() {
        Some(code) => Err(Failure::call(&farcall::Status::new(code, "every call failed"))),
        None => Ok(()),
    }
}

/// Draws the progress on the terminal until the run ends.
async fn progress(load: &Load, start: Instant) {
    let mut last = (start, 0);
    loop {
        tokio::time::sleep(PROGRESS_INTERVAL).await;
        let (now, (calls, errors)) = (Instant::now(), load.progress());
        let rate = (calls - last.1) as f64 / (now - last.0).as_secs_f64();
        last = (now, calls);
        let seconds = (now - start).as_secs();
        let (calls, errors) = (count(calls), count(errors));
        let line = format!("{seconds} s  {calls} calls  {rate:.0}/s  errors {errors}");
        // The line is a courtesy: a closed terminal does not fail the run.
        let _ = write!(std::io::stderr().lock(), "\r\x1b[K{line}\r");
    }
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let failure = |error| Failure::usage(format!("cannot write {}: {error}", path.display()));
    std::fs::write(path, text).map_err(failure)
}
