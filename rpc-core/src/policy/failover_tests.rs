//! Failover and failback, one case at a time and in any order.

use proptest::prelude::*;

use super::*;
use crate::policy::backoff::Backoff;
use crate::policy::breaker::FirstAttempt;

const SECOND: Duration = Duration::from_secs(1);

const UPGRADED: Made = Made { is_upgraded: true, fallback: None };
/// Reason of a path after [`cut`].
const REASON: &str = "rdma: the path died: cut";

fn denial(reason: &str) -> Denial {
    Denial { reason: reason.into(), can_pass: true }
}

const BELOW: Made = Made { is_upgraded: false, fallback: None };

fn failover(while_broken: WhileBroken) -> Failover<u32> {
    let first = match while_broken {
        WhileBroken::UseBootstrap => FirstAttempt::Delayed,
        WhileBroken::Wait => FirstAttempt::AtOnce,
    };
    let breaker = Breaker::new(Backoff::PATH, first, 1);
    Failover::new(while_broken, breaker, Reconnect::new(Backoff::default(), 1))
}

fn loss(is_upgraded: bool, answered_count: u64, cause: Cause) -> Loss {
    let addresses = "here -> there".into();
    Loss { transport: "rdma", is_upgraded, addresses, answered_count, cause }
}

fn cut() -> Loss {
    loss(true, 1, Cause::Link("cut".into()))
}

fn no_server() -> Failure {
    Failure { reason: "no server".into(), path_verdict: None }
}

fn no_path() -> Failure {
    Failure { reason: "required: no path".into(), path_verdict: Some(denial("no path")) }
}

/// A channel whose upgraded path died, and which has another connection below.
fn failed_over(now: Instant) -> Failover<u32> {
    let mut failover = failover(WhileBroken::UseBootstrap);
    assert_eq!(failover.ask(now), Ask::Begin(Wanted::Best));
    failover.handle_made(1, UPGRADED, now);
    let lost = failover.handle_lost(cut(), now).expect("it was there");
    assert_eq!(lost.connection, 1);
    assert_eq!(lost.path_failure.as_deref(), Some("rdma: the path died: cut"));
    assert_eq!(failover.ask(now), Ask::Begin(Wanted::Bootstrap(REASON.into())));
    failover.handle_made(2, BELOW, now);
    failover
}

#[test]
fn callers_share_an_attempt_and_its_connection() {
    let now = Instant::now();
    let mut failover = failover(WhileBroken::UseBootstrap);
    assert!(failover.is_idle());
    assert_eq!(failover.ask(now), Ask::Begin(Wanted::Best));
    assert_eq!(failover.ask(now), Ask::Wait);
    assert!(!failover.is_idle());
    let handover = failover.handle_made(1, BELOW, now);
    assert_eq!(handover, Handover { replaced: None, gain: PathGain::None });
    assert_eq!((failover.ask(now), failover.connection()), (Ask::Take, Some(&1)));
    assert_eq!(failover.failback_due(), None, "no path has failed");
}

#[test]
fn a_server_that_is_not_there_is_left_alone_for_a_while() {
    let now = Instant::now();
    let mut failover = failover(WhileBroken::UseBootstrap);
    failover.ask(now);
    assert!(failover.handle_failed(no_server(), now));
    assert!(failover.is_idle());
    let refusal = failover.refusal(now).expect("it is too early");
    assert_eq!(&*refusal.reason, "no server");
    assert_eq!(failover.ask(now), Ask::Fail(refusal.clone()));
    let due = now + refusal.wait;
    assert_eq!(failover.next_connect(now), due);
    assert_eq!((failover.refusal(due), failover.ask(due)), (None, Ask::Begin(Wanted::Best)));
}

#[test]
fn an_attempt_that_is_given_up_says_nothing_of_the_server() {
    let now = Instant::now();
    let mut failover = failover(WhileBroken::UseBootstrap);
    failover.ask(now);
    failover.handle_given_up();
    assert!(failover.is_idle());
    assert_eq!(failover.ask(now), Ask::Begin(Wanted::Best));
    let mut failing_back = failed_over(now);
    assert!(failing_back.begin_failback(failing_back.failback_due().unwrap()));
    failing_back.handle_given_up();
    assert_eq!(failing_back.connection(), Some(&2));
    assert!(failing_back.failback_due().is_some());
}

#[test]
fn failback_begins_when_it_is_due_and_replaces_the_connection() {
    let now = Instant::now();
    let mut failover = failed_over(now);
    let due = failover.failback_due().expect("the path is broken");
    assert!(due > now && !failover.begin_failback(now) && failover.begin_failback(due));
    assert_eq!(failover.failback_due(), None, "one attempt at a time");
    assert_eq!(failover.ask(due), Ask::Take, "calls go on meanwhile");
    assert!(!failover.handle_failed(no_server(), due), "it says nothing of the server");
    assert_eq!(failover.connection(), Some(&2));
    let later = failover.failback_due().expect("the path is still broken");
    assert!(later > due && failover.begin_failback(later));
    let handover = failover.handle_made(3, UPGRADED, later);
    assert_eq!(handover, Handover { replaced: Some(2), gain: PathGain::Back });
    assert_eq!((failover.connection(), failover.failback_due()), (Some(&3), None));
    assert_eq!((failover.breaker().failovers(), failover.breaker().failbacks()), (1, 1));
}

#[test]
fn a_caller_without_a_connection_goes_before_failback() {
    let now = Instant::now();
    let mut failover = failed_over(now);
    let due = failover.failback_due().unwrap();
    assert!(failover.begin_failback(due));
    let lost = failover.handle_lost(loss(false, 1, Cause::Peer("closed".into())), due);
    assert_eq!(lost, Some(Lost { connection: 2, path_failure: None }));
    assert!(!failover.is_idle(), "failback goes on while no caller asks");
    assert_eq!(failover.ask(due), Ask::Begin(Wanted::Bootstrap(REASON.into())));
    failover.handle_made(3, BELOW, due);
    assert_eq!(failover.failback_due(), Some(due), "it is still due");
}

#[test]
fn failback_without_a_caller_connects_the_channel_or_leaves_it() {
    let now = Instant::now();
    for is_made in [true, false] {
        let mut failover = failed_over(now);
        let due = failover.failback_due().unwrap();
        failover.begin_failback(due);
        failover.handle_lost(loss(false, 1, Cause::SentAway), due);
        if is_made {
            let handover = failover.handle_made(3, UPGRADED, due);
            assert_eq!(handover, Handover { replaced: None, gain: PathGain::Back });
            assert_eq!(failover.connection(), Some(&3));
        } else {
            failover.handle_failed(no_path(), due);
            assert!(failover.is_idle());
            assert_eq!(failover.failback_due(), None, "no call would use it");
        }
    }
}

#[test]
fn where_the_path_is_required_calls_wait_for_it() {
    let now = Instant::now();
    let mut failover = failover(WhileBroken::Wait);
    failover.ask(now);
    failover.handle_made(1, UPGRADED, now);
    failover.handle_lost(cut(), now);
    assert_eq!(failover.ask(now), Ask::Begin(Wanted::Best), "the first attempt is at once");
    assert!(!failover.handle_failed(no_path(), now), "the breaker delays the next one");
    let refusal = failover.refusal(now).expect("the path is broken");
    assert_eq!(&*refusal.reason, "no path");
    assert_eq!(failover.next_connect(now), now + refusal.wait);
    assert_eq!(failover.ask(now + refusal.wait), Ask::Begin(Wanted::Best));
}

#[test]
fn a_required_path_is_retried_like_a_server() {
    let now = Instant::now();
    let mut failover = failover(WhileBroken::Wait);
    failover.ask(now);
    assert!(failover.handle_failed(no_path(), now));
    assert_eq!(failover.refusal(now).map(|it| it.reason), Some("required: no path".into()));
    assert_eq!(failover.breaker().broken(), None);
}

#[test]
fn a_connection_below_has_the_path_tried_again() {
    let now = Instant::now();
    let mut failover = failover(WhileBroken::UseBootstrap);
    let fallback = Made { is_upgraded: false, fallback: Some(denial("no device")) };
    failover.ask(now);
    failover.handle_made(1, fallback.clone(), now);
    assert!(failover.failback_due().is_some(), "the device may come");
    failover.handle_lost(loss(false, 1, Cause::SentAway), now);
    failover.ask(now);
    failover.handle_made(2, UPGRADED, now);
    // It has lasted: a second loss at once would delay the next attempt.
    let now = now + Backoff::default().initial_delay;
    failover.handle_lost(loss(true, 1, Cause::SentAway), now);
    assert_eq!(failover.ask(now), Ask::Begin(Wanted::Best));
    failover.handle_made(3, fallback, now);
    assert!(failover.failback_due().is_some());
}

#[test]
fn a_reason_that_cannot_pass_is_tried_at_the_next_connection() {
    let now = Instant::now();
    let mut failover = failover(WhileBroken::UseBootstrap);
    let denial = Denial { reason: "no library".into(), can_pass: false };
    failover.ask(now);
    failover.handle_made(1, Made { is_upgraded: false, fallback: Some(denial.clone()) }, now);
    assert_eq!(failover.failback_due(), None);
    failover.handle_lost(loss(false, 1, Cause::SentAway), now);
    assert_eq!(failover.ask(now), Ask::Begin(Wanted::Best));
    failover.handle_made(2, UPGRADED, now);
    failover.handle_lost(cut(), now);
    assert_eq!(failover.ask(now), Ask::Begin(Wanted::Bootstrap(REASON.into())));
    failover.handle_made(3, BELOW, now);
    let due = failover.failback_due().expect("the path is broken");
    assert!(failover.begin_failback(due));
    failover.handle_failed(Failure { reason: "no".into(), path_verdict: Some(denial) }, due);
    assert_eq!((failover.connection(), failover.failback_due()), (Some(&3), None));
}

#[test]
fn the_end_of_a_runtime_is_no_failed_attempt() {
    let now = Instant::now();
    let mut failover = failover(WhileBroken::UseBootstrap);
    for number in 0..100 {
        assert_eq!(failover.ask(now), Ask::Begin(Wanted::Best), "runtime {number}");
        failover.handle_made(number, UPGRADED, now);
        failover.handle_lost(loss(true, number.into(), Cause::RuntimeEnded), now);
    }
    assert_eq!((failover.breaker().broken(), failover.reconnect().failure()), (None, None));
}

#[test]
fn a_connection_of_no_use_is_told_with_its_reason() {
    let now = Instant::now();
    let mut failover = failover(WhileBroken::UseBootstrap);
    for (cause, reason, failure) in [
        (Cause::Peer("closed".into()), None, Some("closed")),
        (Cause::SentAway, Some("the server asked this client to leave"), None),
        (Cause::Link("reset".into()), Some("reset"), Some("reset")),
    ] {
        let due = failover.next_connect(now);
        assert_eq!(failover.ask(due), Ask::Begin(Wanted::Best));
        failover.handle_made(1, BELOW, due);
        failover.handle_lost(loss(false, 0, cause), due);
        // The first loss is made good at once.
        let said = failover.refusal(due).map(|it| it.reason);
        let expected =
            reason.map(|it| format!("the last connection answered no call (here -> there): {it}"));
        let (said, failed) = (said.as_deref(), failover.reconnect().failure().map(|it| &**it));
        assert_eq!((said, failed), (expected.as_deref(), failure));
    }
}

#[derive(Debug, Clone, Copy)]
enum Event {
    Ask,
    Pass(u64),
    Made { is_upgraded: bool },
    Failed { is_by_path: bool },
    Lost { is_upgraded: bool, is_of_link: bool },
    GivenUp,
    Failback,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        Just(Event::Ask),
        (0..100_000u64).prop_map(Event::Pass),
        any::<bool>().prop_map(|is_upgraded| Event::Made { is_upgraded }),
        any::<bool>().prop_map(|is_by_path| Event::Failed { is_by_path }),
        any::<[bool; 2]>()
            .prop_map(|[is_upgraded, is_of_link]| Event::Lost { is_upgraded, is_of_link }),
        Just(Event::GivenUp),
        Just(Event::Failback),
    ]
}

proptest! {
    /// In whatever order things happen, there is one attempt at most, and each connection that was
    /// made is the current one or has been handed back.
    #[test]
    fn one_attempt_and_one_connection_at_most(
        events in prop::collection::vec(event(), 1..200),
        waits: bool,
    ) {
        let rules = if waits { WhileBroken::Wait } else { WhileBroken::UseBootstrap };
        let (mut failover, mut now) = (failover(rules), Instant::now());
        let (mut attempt, mut made, mut ended) = (None::<Wanted>, 0u32, 0u32);
        for event in events {
            match event {
                Event::Pass(ms) => now += Duration::from_millis(ms),
                Event::Ask => match failover.ask(now) {
                    Ask::Take => prop_assert!(failover.connection().is_some()),
                    Ask::Wait => {
                        prop_assert!(matches!(attempt, Some(Wanted::Best | Wanted::Bootstrap(_))));
                    }
                    Ask::Begin(wanted) => {
                        // In place of failback, and of no other attempt.
                        prop_assert!(matches!(attempt, None | Some(Wanted::Upgraded)));
                        prop_assert!(failover.connection().is_none());
                        attempt = Some(wanted);
                    }
                    Ask::Fail(refusal) => {
                        prop_assert!(refusal.wait > Duration::ZERO);
                        prop_assert!(refusal.wait <= 240 * SECOND, "{refusal:?}");
                    }
                },
                Event::Made { is_upgraded } if attempt.is_some() => {
                    attempt = None;
                    made += 1;
                    let handed = Made { is_upgraded, fallback: None };
                    ended += u32::from(failover.handle_made(made, handed, now).replaced.is_some());
                    prop_assert_eq!(failover.connection(), Some(&made));
                }
                Event::Failed { is_by_path } if attempt.is_some() => {
                    attempt = None;
                    failover.handle_failed(if is_by_path { no_path() } else { no_server() }, now);
                }
                Event::GivenUp => {
                    attempt = None;
                    failover.handle_given_up();
                }
                Event::Failback => {
                    if failover.begin_failback(now) {
                        prop_assert!(attempt.is_none() && rules == WhileBroken::UseBootstrap);
                        attempt = Some(Wanted::Upgraded);
                    }
                }
                Event::Lost { is_upgraded, is_of_link } => {
                    let cause = match is_of_link {
                        true => Cause::Link("cut".into()),
                        false => Cause::SentAway,
                    };
                    let lost = failover.handle_lost(loss(is_upgraded, 1, cause), now);
                    ended += u32::from(lost.is_some());
                    prop_assert!(failover.connection().is_none());
                }
                Event::Made { .. } | Event::Failed { .. } => {}
            }
            let is_current = u32::from(failover.connection().is_some());
            prop_assert_eq!(made, ended + is_current);
            prop_assert_eq!(failover.is_idle(), attempt.is_none() && is_current == 0);
            let breaker = failover.breaker();
            prop_assert!(breaker.failbacks() <= u64::from(made));
        }
    }
}
