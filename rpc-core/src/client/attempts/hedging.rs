//! Attempts side by side: the first answer is the call's, and ends the others.

use futures::stream::{FuturesUnordered, StreamExt};
use tokio::time::{Instant, sleep_until};
use tonic::Status;

use super::budget::Budget;
use super::shared::SharedAttempts;
use super::{count, failure, mark_attempt};
use crate::client::{Call, Caller, ClientCall, ClientReply};
use crate::metrics::{RetryKind, retried};
use crate::policy::retry::config::HedgingPolicy;
use crate::policy::retry::hedges::{Hedges, Outcome};

/// Makes a call whose request is one message.
pub(super) async fn call<C: Caller>(
    caller: &C,
    call: Call<'_>,
    policy: &HedgingPolicy,
    (shared, budget): (&SharedAttempts, &Budget),
) -> Result<ClientReply, Status> {
    let codes = policy.non_fatal_codes;
    // The attempts share the request.
    let call = call.into_owned();
    let mut hedges = Hedges::new(*policy, now());
    let mut running = FuturesUnordered::new();
    // The last failure that is not fatal.
    let mut last = None;
    loop {
        let due = hedges.next_deadline();
        tokio::select! {
            biased;
            Some(result) = running.next(), if !running.is_empty() => {
                let status: Status = match result {
                    Ok(reply) => {
                        count(budget, codes, Ok(()));
                        return Ok(reply);
                    }
                    Err(status) => status,
                };
                let failure = failure(&status, true);
                count(budget, codes, Err((&status, &failure)));
                if hedges.failed(&failure, now()) == Outcome::Ended {
                    let others = !running.is_empty();
                    return Err(shared.with(|it| it.final_status_beside(status, others)));
                }
                shared.with(|it| it.followed(&status));
                last = Some(status);
            }
            () = until(due), if due.is_some() => {
                if hedges.is_begun() && !budget.take_for(call.method(), RetryKind::Hedge) {
                    match (hedges.give_up(), last.take()) {
                        (Outcome::Ended, Some(status)) => {
                            return Err(shared.with(|it| it.final_status(status)));
                        }
                        (_, status) => last = status,
                    }
                    continue;
                }
                if hedges.is_begun() {
                    retried(call.method(), RetryKind::Hedge);
                }
                let attempt = call.try_clone().expect("its request is one message");
                running.push(make(caller, attempt, hedges.sent(now())));
            }
        }
    }
}

async fn make<C: Caller>(
    caller: &C,
    attempt: ClientCall,
    previous: u32,
) -> Result<ClientReply, Status> {
    let mut attempt = attempt.into_call();
    mark_attempt(&mut attempt, previous);
    caller.call(attempt).await
}

fn now() -> std::time::Instant {
    Instant::now().into_std()
}

async fn until(due: Option<std::time::Instant>) {
    match due {
        Some(due) => sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}
