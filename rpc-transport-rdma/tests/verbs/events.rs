//! Waiting for completions instead of polling for them.

use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};

use rpc_transport_rdma::verbs::VerbsError;

use crate::rig::{End, WAIT_MAX, connected, drive_until, pairs, pattern, routes};

/// Handles completions, sleeping when there are none, until `count` messages have come.
async fn receive(end: &mut End, count: usize) {
    while end.messages.len() < count {
        while end.drive() > 0 {}
        if end.messages.len() >= count {
            return;
        }
        end.completions.arm().unwrap();
        if end.drive() == 0 {
            end.completions.wait().await.unwrap();
        }
    }
}

const ROUNDS: usize = 300;

/// Gives the end back, because to drop it would destroy its queue pair with the last message
/// perhaps still in its send queue.
async fn ping_pong(mut end: End, begins: bool) -> End {
    for round in 0..ROUNDS {
        if begins {
            let batch = VecDeque::from([end.send(&pattern(64, round))]);
            end.post_all(batch);
        }
        receive(&mut end, round + 1).await;
        assert_eq!(end.messages[round], pattern(64, round));
        if !begins {
            let batch = VecDeque::from([end.send(&pattern(64, round))]);
            end.post_all(batch);
        }
        end.done.clear();
    }
    end
}

#[tokio::test]
async fn round_trips_by_events_on_one_thread() {
    for route in routes() {
        let [first, second] = connected(&route);
        let both = async { tokio::join!(ping_pong(first, true), ping_pong(second, false)) };
        tokio::time::timeout(WAIT_MAX, both).await.expect("no wake-up is lost");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn round_trips_by_events_on_two_threads() {
    for route in routes() {
        let [first, second] = connected(&route);
        let second = tokio::spawn(ping_pong(second, false));
        let first = tokio::spawn(ping_pong(first, true));
        let both = async { (first.await.unwrap(), second.await.unwrap()) };
        tokio::time::timeout(WAIT_MAX, both).await.expect("no wake-up is lost");
    }
}

#[tokio::test]
async fn an_event_before_the_wait_is_not_lost() {
    for route in routes() {
        let mut ends = connected(&route);
        for round in 1..=100 {
            ends[1].completions.arm().unwrap();
            let batch = VecDeque::from([ends[0].send(b"before")]);
            ends[0].post_all(batch);
            // The sender's completion says that the message has arrived and made its event.
            drive_sender_until_done(&mut ends[0]).await;
            let attachment = ends[1].receives.attachment();
            let pending = async {
                while !attachment.has_event() {
                    tokio::task::yield_now().await;
                }
            };
            // Which another task sees, without taking it.
            tokio::time::timeout(WAIT_MAX, pending).await.expect("the event is pending");
            let waiting = ends[1].completions.wait();
            tokio::time::timeout(WAIT_MAX, waiting).await.expect("the event is there").unwrap();
            drive_until(&mut ends, |ends| ends[1].messages.len() == round).await;
        }
    }
}

async fn drive_sender_until_done(end: &mut End) {
    let sending = async {
        while end.done.is_empty() {
            if end.drive() == 0 {
                tokio::task::yield_now().await;
            }
        }
    };
    tokio::time::timeout(WAIT_MAX, sending).await.expect("the send completes");
    end.done.clear();
}

#[test]
fn waiting_outside_a_runtime_is_an_error() {
    for route in pairs() {
        let [mut end, _] = connected(&route);
        let poll = end.completions.poll_event(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(poll, Poll::Ready(Err(VerbsError::NoRuntime))), "{poll:?}");
    }
}

#[tokio::test]
async fn a_device_without_events_lets_its_caller_wait() {
    for [port, _] in pairs() {
        // Other tests use the device as well, so an event now and then is no failure.
        let mut events = 0;
        while let Poll::Ready(event) =
            port.device.poll_async_event(&mut Context::from_waker(Waker::noop()))
        {
            event.unwrap();
            events += 1;
            assert!(events < 1000, "events without end");
        }
    }
}
