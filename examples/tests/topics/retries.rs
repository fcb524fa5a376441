//! Attempts beyond the first: by a policy for each method, and by the marks of a failed call.

use std::time::Duration;

use farcall::retry::{HedgingPolicy, MethodConfig, RetryPolicy};
use farcall::{Channel, Code, MayHaveExecuted, NotExecuted, Settings, Status};
use farcall_examples::hello::greeter_rpc::GreeterStub;

use super::hello;

fn channel() -> anyhow::Result<Channel> {
    let retry = RetryPolicy::default()
        .with_max_attempts(4)
        .with_retryable_codes([Code::Unavailable, Code::Aborted]);
    let hedging = HedgingPolicy::default().with_hedging_delay(Duration::from_millis(20));
    let get = MethodConfig::default().with_idempotent(true).with_hedging(hedging);
    let channel = Channel::builder("auto://127.0.0.1:1,127.0.0.2:1")?
        .method("*", MethodConfig::default().with_timeout(Duration::from_secs(2)).with_retry(retry))
        .method("/shop.Catalog/Get", get)
        .connect_lazy();
    Ok(channel)
}

/// The consequence for a program that keeps count of what it has ordered.
fn outcome(status: &Status) -> &'static str {
    if NotExecuted::matches(status) {
        "no handler has seen the call: repeat it"
    } else if MayHaveExecuted::matches(status) {
        "the call may have taken effect: look before you repeat it"
    } else {
        "a handler's answer, or a limit"
    }
}

#[tokio::test]
async fn a_failed_call_says_if_it_may_have_run() -> anyhow::Result<()> {
    let status = GreeterStub::new(channel()?).say_hello(hello("none")).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert_eq!(outcome(&status), "no handler has seen the call: repeat it");
    Ok(())
}

#[test]
fn policies_can_be_in_the_file() -> anyhow::Result<()> {
    let file = "[targets.shop]\naddress = \"tcp://127.0.0.1:1\"\n\
                [targets.shop.methods.\"/shop.Catalog/Get\"]\nidempotent = true\n";
    Settings::parse("farcall.toml", file)?.channel("shop")?;
    Ok(())
}
