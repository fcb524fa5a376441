//! The honest client's role: calls over connections that stay, and over new ones, all the time.

use std::time::{Duration, Instant};

use farcall::Channel;
use tokio::runtime::Handle;

use super::control::{answer_until_end, log_to_stderr};
use super::exposure::{Exposed, Exposure};
use super::message::{CUT, EXPOSE};
use super::serve::short_keepalive;
use super::tally::{Group, SharedTally};
use crate::RigError;
use crate::conductor::message::line;
use crate::conductor::role::misunderstood;
use farcall_suite::proto::EchoRequest;
use farcall_suite::proto::probe_rpc::ProbeStub;
use farcall_suite::{Failure, SharedSettings, payload};

/// Connections that stay, and the calls in flight on each: enough that some are always under way,
/// and few enough that two processors are mostly idle.
const CHANNELS: usize = 2;
const CALLS_EACH: usize = 2;

/// Between two calls of a task, and between two new connections.
const CALL_PAUSE: Duration = Duration::from_millis(4);
const NEWCOMER_PAUSE: Duration = Duration::from_millis(50);

/// Maximum time for a newcomer to connect and be answered. An attack must be over within the period
/// that shows it.
const NEWCOMER_LIMIT: Duration = Duration::from_secs(3);

const PAYLOAD_LEN: usize = 256;

/// A client's calls and their rules.
#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
pub struct CallPlan {
    /// Host and port of the honest server.
    authority: String,
    /// Silence before a ping, in milliseconds. The answer may take twice as long.
    #[arg(long)]
    keepalive_ms: Option<u64>,
    /// Timeout of a call, in milliseconds.
    #[arg(long, default_value_t = 10_000)]
    deadline_ms: u64,
    /// Exposure to a hostile server, which begins on command.
    #[arg(long, value_enum)]
    exposure: Option<Exposure>,
    /// Host and port of the hostile server.
    #[arg(long, default_value = "")]
    hostile: String,
}

/// Calls until its standard input ends, and tells how that goes when it is asked.
///
/// # Errors
///
/// Returns an error if the first connections cannot be made, or if it is asked something that it
/// does not know.
pub fn call(runtime: &Handle, plan: &CallPlan) -> Result<(), RigError> {
    log_to_stderr();
    let settings = short_keepalive(plan.keepalive_ms);
    let address = format!("tcp://{}", plan.authority);
    let tally = SharedTally::default();
    let deadline = Duration::from_millis(plan.deadline_ms);
    let mut channels: Vec<Channel> = Vec::new();
    for _ in 0..CHANNELS {
        let builder = settings.channel(Channel::builder(&address).map_err(Failure::from)?);
        let channel = runtime.block_on(builder.connect()).map_err(Failure::from)?;
        let stub = ProbeStub::new(channel.clone()).with_timeout(deadline);
        for _ in 0..CALLS_EACH {
            runtime.spawn(keep_calling(stub.clone(), tally.clone()));
        }
        channels.push(channel);
    }
    runtime.spawn(keep_coming(address, settings.clone(), tally.clone()));
    println!("calling");
    let mut exposed = plan.exposure.map(|exposure| Exposed {
        exposure,
        hostile: plan.hostile.clone(),
        honest: channels.swap_remove(0),
        settings,
        tally: tally.clone(),
    });
    answer_until_end(|text| match text {
        CUT => line(&tally.lock().cut(Instant::now())),
        EXPOSE => {
            if let Some(exposed) = exposed.take() {
                runtime.spawn(exposed.run());
            }
            Ok("exposed".to_owned())
        }
        other => Err(misunderstood(other)),
    })
}

async fn keep_calling(stub: ProbeStub, tally: SharedTally) {
    loop {
        tally.count(Group::Established, echo(&stub)).await;
        tokio::time::sleep(CALL_PAUSE).await;
    }
}

async fn keep_coming(address: String, settings: SharedSettings, tally: SharedTally) {
    loop {
        let newcomer = async {
            let builder = Channel::builder(&address).map_err(|error| error.to_string())?;
            let channel = settings.channel(builder).connect().await;
            let stub = ProbeStub::new(channel.map_err(|error| error.to_string())?);
            echo(&stub).await
        };
        let bounded = async {
            let came = tokio::time::timeout(NEWCOMER_LIMIT, newcomer).await;
            came.unwrap_or_else(|_| Err(format!("no new connection in {NEWCOMER_LIMIT:?}")))
        };
        tally.count(Group::Newcomer, bounded).await;
        tokio::time::sleep(NEWCOMER_PAUSE).await;
    }
}

async fn echo(stub: &ProbeStub) -> Result<(), String> {
    let payload = payload(fastrand::u64(..), PAYLOAD_LEN);
    let request = EchoRequest { payload: payload.clone(), ..Default::default() };
    let reply = stub.echo(request).await.map_err(|status| status.to_string())?;
    if reply.into_inner().payload == payload { Ok(()) } else { Err("wrong bytes".to_owned()) }
}
