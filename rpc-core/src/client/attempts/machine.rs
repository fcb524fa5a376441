//! The attempts at one call: whether another one follows an attempt that failed. Pure: budgets and
//! time are arguments.
//!
//! | the attempt | the next one | at most |
//! |---|---|---|
//! | was refused, because the server goes away | at once | [`REFUSED_MAX`] of this and the next |
//! | was not sent, and there are other servers | at once | row |
//! | may have been executed, of an idempotent method | at once | 1, from its server's replays |
//! | failed with a code of its policy | after a delay | `max_attempts`, from the budget |
//!
//! The next one goes to another server if there is one.
//!
//! One machine counts for all levels at which a call is made again, so that their bounds add up and
//! do not multiply: two more attempts after refusals, one replay, and four more of a policy make
//! eight in all.
//!
//! Only a call whose request is one message has another attempt, because its caller still has the
//! message. A stream of responses is committed with its first answer, headers included, as in
//! gRPC's A6: what the caller has seen cannot be taken back.

use std::time::Duration;

use tonic::{Code, Status};

use crate::policy::retry::Failure;
use crate::policy::retry::Retries;
use crate::{Idempotency, MayHaveExecuted, Method, NotExecuted};

/// Maximum number of attempts that are not executed: because a server goes away or, among several
/// servers, cannot be reached.
const REFUSED_MAX: u32 = 3;

/// The decision after an attempt that failed.
#[derive(Debug)]
pub(in crate::client) enum Next {
    /// Another attempt, to another server if there is one.
    Again {
        /// The status of the attempt that failed.
        status: Status,
        /// The pause before the next attempt.
        delay: Duration,
    },
    /// None. The call ends with this status.
    End(Status),
}

/// The servers that the next attempt may go to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::client) enum Servers {
    /// The same one, over another connection. If it cannot be reached, it is not tried again.
    One,
    /// Others, too.
    Many,
}

impl Servers {
    /// Returns true if another attempt may go where this one was not executed.
    fn take_again(self, status: &Status) -> bool {
        match self {
            Self::One => NotExecuted::is_retryable(status),
            Self::Many => status.code() == Code::Unavailable && NotExecuted::matches(status),
        }
    }
}

/// The attempts at one call.
#[derive(Debug, Clone)]
pub(in crate::client) struct Attempts {
    /// Set if the request is one message.
    is_repeatable: bool,
    /// Set if the `.proto` of the method says that it is idempotent.
    is_idempotent: bool,
    refused_count: u32,
    is_replayed: bool,
    /// Set once an attempt that was followed by another may have been executed.
    may_have_executed: bool,
}

impl Attempts {
    /// Returns the attempts at a call of `method`, of which the first is being made.
    pub(in crate::client) fn new(method: &Method, is_repeatable: bool) -> Self {
        Self {
            is_repeatable,
            is_idempotent: method.idempotency() != Idempotency::Unknown,
            refused_count: 0,
            is_replayed: false,
            may_have_executed: false,
        }
    }

    /// Returns those of a call of which nothing is repeated.
    pub(in crate::client) const fn none() -> Self {
        Self {
            is_repeatable: false,
            is_idempotent: false,
            refused_count: 0,
            is_replayed: false,
            may_have_executed: false,
        }
    }

    /// Decides by the rules of every call: repeats what surely was not executed, and replays what
    /// may be executed twice. `take_replay` takes one replay from the budget of the server.
    pub(in crate::client) fn failed(
        &mut self,
        status: Status,
        servers: Servers,
        take_replay: impl FnOnce() -> bool,
    ) -> Next {
        let again = |status| Next::Again { status, delay: Duration::ZERO };
        if !self.is_repeatable {
            return Next::End(status);
        }
        if servers.take_again(&status) && self.refused_count < REFUSED_MAX {
            self.refused_count += 1;
            if self.refused_count < REFUSED_MAX {
                return again(status);
            }
        // `take_replay` is asked last: it takes a token from a budget that other calls share.
        } else if self.is_idempotent
            && !self.is_replayed
            && MayHaveExecuted::matches(&status)
            && take_replay()
        {
            (self.is_replayed, self.may_have_executed) = (true, true);
            return again(status);
        }
        Next::End(self.final_status(status))
    }

    /// Decides by the policy of the method, after [`failed`](Self::failed) has found no reason for
    /// another attempt. `allows` is asked for the delay and takes the attempt from the budget.
    pub(in crate::client) fn retry(
        &mut self,
        status: Status,
        retries: &mut Retries,
        failure: &Failure,
        allows: impl FnOnce(Duration) -> bool,
    ) -> Next {
        // `allows` takes from a budget that other calls share, so it is asked only for an attempt
        // that the policy grants.
        match retries.failed(failure).filter(|delay| allows(*delay)) {
            Some(delay) => {
                self.followed(&status);
                Next::Again { status, delay }
            }
            None => Next::End(self.final_status(status)),
        }
    }

    /// Records a failure that does not end the call.
    pub(in crate::client) fn followed(&mut self, status: &Status) {
        self.may_have_executed |= !NotExecuted::matches(status);
    }

    /// Returns the status of a call that ends while `others` of its attempts run.
    pub(in crate::client) fn final_status_beside(
        &mut self,
        status: Status,
        others: bool,
    ) -> Status {
        // They are cancelled with the call, and their servers may be at them.
        self.may_have_executed |= others;
        self.final_status(status)
    }

    /// Returns the status of a call that has no more attempts. It stays ambiguous if an earlier
    /// attempt was.
    pub(in crate::client) fn final_status(&self, status: Status) -> Status {
        match self.may_have_executed && NotExecuted::matches(&status) {
            true => MayHaveExecuted::mark(status),
            false => status,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::connect::{ConnectError, ConnectFault};
    use crate::policy::retry::Pushback;
    use crate::policy::retry_config::RetryPolicy;
    use crate::{CallKind, MethodDescriptor};
    use proptest::prelude::*;

    static GET: MethodDescriptor =
        MethodDescriptor::new("/t.T/Get", CallKind::Unary, Idempotency::Idempotent);
    static PUT: MethodDescriptor =
        MethodDescriptor { path: "/t.T/Put", idempotency: Idempotency::Unknown, ..GET };

    fn refused() -> Status {
        NotExecuted::mark(Status::unavailable("it goes away"))
    }

    fn ambiguous() -> Status {
        MayHaveExecuted::mark(Status::unavailable("the connection ended"))
    }

    fn answer() -> Status {
        Status::aborted("try again")
    }

    fn is_again(next: &Next) -> bool {
        matches!(next, Next::Again { .. })
    }

    fn attempts(method: &'static MethodDescriptor) -> Attempts {
        Attempts::new(&method.into(), true)
    }

    #[test]
    fn refused_call_has_three_attempts() {
        let mut attempts = attempts(&PUT);
        let never = || unreachable!("it is no replay");
        assert!(is_again(&attempts.failed(refused(), Servers::One, never)));
        assert!(is_again(&attempts.failed(refused(), Servers::One, never)));
        let Next::End(status) = attempts.failed(refused(), Servers::One, never) else {
            panic!("it is the last")
        };
        assert!(NotExecuted::matches(&status));
    }

    #[test]
    fn unreachable_server_is_left_for_another_one() {
        let unreachable = || {
            let (address, reason) = ("tcp://a:1".to_owned(), std::io::Error::other("refused"));
            Arc::new(ConnectError::from(ConnectFault::Unreachable { address, reason }))
                .into_status(None)
        };
        assert!(!is_again(&attempts(&PUT).failed(unreachable(), Servers::One, || true)));
        let attempts = &mut attempts(&PUT);
        assert!(is_again(&attempts.failed(unreachable(), Servers::Many, || true)));
        assert!(is_again(&attempts.failed(refused(), Servers::Many, || true)));
        assert!(!is_again(&attempts.failed(unreachable(), Servers::Many, || true)));
    }

    #[test]
    fn only_idempotent_calls_are_replayed_and_once() {
        assert!(!is_again(&attempts(&PUT).failed(ambiguous(), Servers::One, || true)));
        assert!(!is_again(&attempts(&GET).failed(ambiguous(), Servers::One, || false)));
        let mut get = attempts(&GET);
        assert!(is_again(&get.failed(ambiguous(), Servers::One, || true)));
        assert!(!is_again(&get.failed(ambiguous(), Servers::One, || true)));
        let streamed = &mut Attempts::new(&(&GET).into(), false);
        assert!(!is_again(&streamed.failed(ambiguous(), Servers::One, || true)));
        assert!(!is_again(&streamed.failed(refused(), Servers::One, || true)));
    }

    #[test]
    fn status_stays_ambiguous_after_a_replay() {
        let mut get = attempts(&GET);
        assert!(is_again(&get.failed(ambiguous(), Servers::One, || true)));
        let Next::End(status) = get.failed(NotExecuted::mark(answer()), Servers::One, || true)
        else {
            panic!("it is no refusal")
        };
        assert!(MayHaveExecuted::matches(&status) && status.code() == Code::Aborted);
    }

    fn any_status() -> impl Strategy<Value = Status> {
        prop_oneof![
            Just(()).prop_map(|()| refused()),
            Just(()).prop_map(|()| ambiguous()),
            Just(()).prop_map(|()| answer()),
        ]
    }

    proptest! {
        #[test]
        fn bounds_of_all_levels_add_up(
            statuses in prop::collection::vec(any_status(), 20),
            is_idempotent in any::<bool>(),
            has_policy in any::<bool>(),
            servers in prop_oneof![Just(Servers::One), Just(Servers::Many)],
            seed in any::<u64>(),
        ) {
            let method = if is_idempotent { &GET } else { &PUT };
            let policy = RetryPolicy::default()
                .with_max_attempts(5)
                .with_retryable_codes([Code::Unavailable, Code::Aborted]);
            let (mut attempts, mut retries) = (attempts(method), Retries::new(policy, seed));
            let (mut sent, mut replays, mut may_have) = (0, 0, 0);
            for status in statuses {
                sent += 1;
                may_have += u32::from(!NotExecuted::matches(&status));
                let failure = Failure {
                    code: status.code(),
                    pushback: Pushback::Unsaid,
                    is_repeatable: is_idempotent || NotExecuted::matches(&status),
                };
                let next = attempts.failed(status, servers, || { replays += 1; true });
                let next = match next {
                    Next::End(status) if has_policy => {
                        attempts.retry(status, &mut retries, &failure, |_| true)
                    }
                    other => other,
                };
                if !is_again(&next) {
                    break;
                }
            }
            prop_assert!(sent <= if has_policy { 8 } else { 4 }, "{sent} attempts");
            prop_assert!(replays <= u32::from(is_idempotent));
            prop_assert!(is_idempotent || may_have <= 1, "{may_have} may have been executed");
        }
    }
}
