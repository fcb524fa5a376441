//! Attempts one after another.

use tonic::Status;

use super::budget::Budget;
use super::machine::Next;
use super::shared::SharedAttempts;
use super::{count, failure, is_in_time, mark_attempt};
use crate::call::log::NameOf;
use crate::client::{Call, Caller, ClientReply};
use crate::metrics::{RetryKind, retried};
use crate::policy::retry::config::RetryPolicy;
use crate::policy::retry::retries::Retries;

/// Makes a call whose request is one message.
pub(super) async fn call<C: Caller>(
    caller: &C,
    call: Call<'_>,
    policy: &RetryPolicy,
    is_idempotent: bool,
    (shared, budget): (&SharedAttempts, &Budget),
) -> Result<ClientReply, Status> {
    let codes = policy.retryable_codes;
    // A caller may take what it is given; the attempts share the request.
    let call = call.into_owned();
    let method = call.method().clone();
    let mut retries = Retries::new(*policy, fastrand::u64(..));
    loop {
        let mut attempt = call.try_clone().expect("its request is one message").into_call();
        mark_attempt(&mut attempt, retries.previous());
        let status = match caller.call(attempt).await {
            Ok(reply) => {
                count(budget, codes, Ok(()));
                return Ok(reply);
            }
            Err(status) => status,
        };
        let failure = failure(&status, is_idempotent);
        count(budget, codes, Err((&status, &failure)));
        let deadline = call.deadline();
        let allows =
            |delay| is_in_time(deadline, delay) && budget.take_for(&method, RetryKind::Policy);
        let next = shared.with(|it| it.retry(status, &mut retries, &failure, allows));
        let (status, delay) = match next {
            Next::Again { status, delay } => (status, delay),
            Next::End(status) => return Err(status),
        };
        let (path, code) = (method.path(), NameOf(status.code()));
        let attempt = retries.previous();
        retried(&method, RetryKind::Policy);
        tracing::debug!(
            target: "farcall::call", method = path, %code, attempt, after = ?delay, "retried"
        );
        tokio::time::sleep(delay).await;
    }
}
