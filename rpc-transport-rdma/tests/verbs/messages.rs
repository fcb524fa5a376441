//! Messages by SEND into a shared receive queue.

use std::collections::VecDeque;

use rpc_transport_rdma::verbs::{ConnectOptions, QueuePair, QueuePairConfig};

use crate::rig::{SLOT_LEN, Sizes, connected, connected_with, drive_until, pattern, routes};

#[tokio::test]
async fn messages_of_every_length_arrive_as_they_were_sent() {
    for route in routes() {
        let mut ends = connected(&route);
        let inline_max = ends[0].queue_pair.inline_max() as usize;
        assert!(inline_max >= 124, "inline up to {inline_max}");
        let lengths = [0, 1, inline_max - 1, inline_max, inline_max + 1, 4096, SLOT_LEN];
        let sent: Vec<_> = lengths.iter().map(|len| pattern(*len, *len)).collect();
        for from in [0, 1] {
            let batch: VecDeque<_> = sent.iter().map(|bytes| ends[from].send(bytes)).collect();
            ends[from].post_all(batch);
            drive_until(&mut ends, |ends| {
                ends[1 - from].messages.len() == lengths.len()
                    && ends[from].done.len() == lengths.len()
            })
            .await;
            assert_eq!(ends[1 - from].messages, sent);
            assert!(ends[from].done.iter().all(|done| done.outcome.is_ok()));
            ends[from].done.clear();
            assert!(ends[from].has_all_slots());
        }
    }
}

#[tokio::test]
async fn a_batch_has_one_completion() {
    for route in routes() {
        let mut ends = connected(&route);
        let batch: VecDeque<_> = (0..20).map(|i| ends[0].send(&pattern(64, i))).collect();
        ends[0].post_all(batch);
        drive_until(&mut ends, |ends| ends[0].done.len() == 20 && ends[1].messages.len() == 20)
            .await;
        assert_eq!(ends[0].send_completions, 1);
    }
}

#[tokio::test]
async fn thousands_of_messages_wrap_a_short_send_queue_in_order() {
    const COUNT: usize = 3000;
    for route in routes() {
        let sizes = Sizes { send_depth: 7, ..Default::default() };
        let mut ends = connected_with(&route, sizes, &ConnectOptions::default());
        let mut batch = VecDeque::new();
        let mut next = 0;
        while ends[1].messages.len() < COUNT {
            while batch.len() < 10 && next < COUNT {
                let length = if next % 3 == 0 { 300 } else { 20 };
                batch.push_back(ends[0].send(&pattern(length, next)));
                next += 1;
            }
            ends[0].queue_pair.post(&mut batch).unwrap();
            let [posted, received] = [ends[0].done.len(), ends[1].messages.len()];
            drive_until(&mut ends, |ends| {
                ends[0].done.len() > posted || ends[1].messages.len() > received
            })
            .await;
            ends[0].done.clear();
        }
        for (i, message) in ends[1].messages.iter().enumerate() {
            let length = if i % 3 == 0 { 300 } else { 20 };
            assert_eq!(*message, pattern(length, i), "message {i}");
        }
        drive_until(&mut ends, |ends| ends[0].queue_pair.in_flight_len() == 0).await;
        ends[0].done.clear();
        assert!(ends[0].has_all_slots());
    }
}

#[tokio::test]
async fn a_sender_waits_for_a_receive_slot() {
    for route in routes() {
        let sizes = Sizes { receive_slots: 2, ..Default::default() };
        let mut ends = connected_with(&route, sizes, &ConnectOptions::default());
        ends[1].reposts = false;
        let batch: VecDeque<_> = (0..5).map(|i| ends[0].send(&pattern(500, i))).collect();
        ends[0].post_all(batch);
        drive_until(&mut ends, |ends| ends[1].messages.len() == 2).await;
        assert_eq!(ends[0].done.len(), 0, "the batch's one completion is behind the fifth");
        ends[1].reposts = true;
        drive_until(&mut ends, |ends| ends[0].done.len() == 5 && ends[1].messages.len() == 5).await;
        assert!(ends[0].done.iter().all(|done| done.outcome.is_ok()));
        assert_eq!(ends[1].messages[4], pattern(500, 4));
    }
}

#[tokio::test]
async fn queue_pairs_share_the_receive_slots_of_their_worker() {
    for route in routes() {
        let mut ends = connected(&route);
        let memory = ends[1].receives.memory_bytes();
        let mut others = connected(&route);
        // The other connection's second end moves to this worker.
        let attachment = ends[1].receives.attachment();
        let config = QueuePairConfig { tag: 8, ..Default::default() };
        let mut second = QueuePair::new(&attachment, &route[1], &config).unwrap();
        others[0].queue_pair = {
            let attachment = others[0].receives.attachment();
            QueuePair::new(&attachment, &route[0], &config).unwrap()
        };
        let (here, there) = (others[0].queue_pair.endpoint(), second.endpoint());
        others[0].queue_pair.connect(&there, &ConnectOptions::default()).unwrap();
        second.connect(&here, &ConnectOptions::default()).unwrap();
        let batch = VecDeque::from([ends[0].send(b"first")]);
        ends[0].post_all(batch);
        let batch = VecDeque::from([others[0].send(b"second")]);
        others[0].post_all(batch);
        drive_until(&mut ends, |ends| ends[1].messages.len() == 2).await;
        ends[1].messages.sort();
        assert_eq!(ends[1].messages, [b"first".to_vec(), b"second".to_vec()]);
        assert_eq!(ends[1].receives.memory_bytes(), memory);
    }
}
