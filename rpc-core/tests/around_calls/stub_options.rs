//! Options of stubs, and timeouts of requests, beside those of a channel.

use std::sync::Arc;

use rpc_core::client::attempts::{MethodConfig, PolicyAttempts, ServiceConfig};
use rpc_core::client::{
    CallRules, Caller, ChannelParts, ClientConfig, Subchannel, Target, TargetRules, unary,
};
use rpc_core::codegen::CallOptions;
use rpc_core::inproc::InprocConnector;
use rpc_core::policy::retry_config::RetryPolicy;
use rpc_core::server::ServerParts;
use rpc_core::{Channel, Code, Readiness, Request, Response, Status};
use tokio::time::Instant;
use tower::layer::util::Identity;

use crate::numbers::{Numbers, SERVICE, STEP};
use crate::serving::{Serving, channel};

const IMPATIENT: CallRules = CallRules { timeout: Some(STEP), ..CallRules::DEFAULT };

fn serve() -> Serving {
    Serving::start(ServerParts::default().add_service(Numbers::new().0))
}

/// Calls a method that never answers.
async fn wait(caller: &impl Caller, options: CallOptions, mut request: Request<()>) -> Status {
    options.apply(&mut request);
    let ended: Result<Response<()>, _> = unary(caller, &SERVICE.methods[1], request).await;
    ended.unwrap_err()
}

fn over(limit: &str) -> String {
    format!("the call did not end within {limit}")
}

/// A channel whose service config retries, and whose timeout is one step.
fn retrying(serving: &Serving) -> Channel {
    let method = MethodConfig::default().with_retry(RetryPolicy::default());
    let policies = PolicyAttempts::new(ServiceConfig::new().with_method("*", method));
    let rules = TargetRules { calls: IMPATIENT, policies: Some(Arc::new(policies)) };
    let connector = InprocConnector::new(serving.name(), ClientConfig::default());
    let parts = ChannelParts { rules, ..ChannelParts::default() };
    Channel::from_parts(Target::Direct(Subchannel::new(connector)), parts)
}

#[tokio::test(start_paused = true)]
async fn stub_timeout_replaces_the_channels() {
    let serving = serve();
    let impatient = serving.channel().with_rules(IMPATIENT);
    let options = CallOptions::NONE.with_timeout(3 * STEP);
    let status = wait(&impatient, options, Request::new(())).await;
    assert_eq!(status.message(), over("3s (the stub's timeout)"));
    let status = wait(&retrying(&serving), options, Request::new(())).await;
    assert_eq!(status.message(), over("3s (the stub's timeout)"));
    // A layer sees it, and it counts while the layer waits.
    let layered = impatient.layer(Identity::new());
    let status = wait(&layered, options, Request::new(())).await;
    assert_eq!(status.message(), over("3s (the stub's timeout)"));
    let status = wait(&layered, CallOptions::NONE, Request::new(())).await;
    assert_eq!(status.message(), over("1s (the channel's timeout)"));
}

#[tokio::test(start_paused = true)]
async fn timeout_of_a_request_precedes_all_others() {
    let serving = serve();
    let options = CallOptions::NONE.with_timeout(3 * STEP);
    for channel in [serving.channel().with_rules(IMPATIENT), retrying(&serving)] {
        for (steps, options) in [(2, options), (4, options), (4, CallOptions::NONE)] {
            let mut request = Request::new(());
            request.set_timeout(steps * STEP);
            let status = wait(&channel, options, request).await;
            assert_eq!(status.message(), over(&format!("{steps}s (the request's timeout)")));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn readiness_of_a_stub_replaces_the_channels() {
    let rules = CallRules { wait_for_ready: true, ..IMPATIENT };
    let dead = channel("no-server-for-stub-options").with_rules(rules);
    let start = Instant::now();
    let fails = CallOptions::NONE.with_wait_for_ready(false);
    assert_eq!(wait(&dead, fails, Request::new(())).await.code(), Code::Unavailable);
    assert_eq!(start, Instant::now());
    // The request precedes its stub.
    let mut request = Request::new(());
    request.extensions_mut().insert(Readiness::WaitForReady);
    assert_eq!(wait(&dead, fails, request).await.code(), Code::DeadlineExceeded);
    let dead = dead.with_rules(IMPATIENT);
    let waits = CallOptions::NONE.with_wait_for_ready(true);
    assert_eq!(wait(&dead, waits, Request::new(())).await.code(), Code::DeadlineExceeded);
}
