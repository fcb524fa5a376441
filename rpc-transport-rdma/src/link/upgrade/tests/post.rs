//! The work of one post: answers to the polled messages, and requests of callers that several
//! answers have woken together.

use std::sync::Weak;

use tokio::sync::Semaphore;

use rpc_core::transport::Delivery;

use super::*;

/// Sends a frame for each that comes: at once, or from a task that each of them wakes.
#[derive(Debug)]
struct Sender {
    connection: Weak<Connection>,
    woken: Option<Arc<Semaphore>>,
}

impl Handler for Sender {
    fn handle_announced(&self, _: &[u8; HEADER_LEN], _: u64) -> Result<Admission, ProtocolError> {
        Ok(Admission::Refuse)
    }

    fn handle_frame(&self, _: Bytes, _: Delivery, _: &mut Handoff) -> Result<(), ProtocolError> {
        match (&self.woken, self.connection.upgrade()) {
            (Some(woken), _) => woken.add_permits(1),
            (None, Some(connection)) => connection.send_control([0; HEADER_LEN]).unwrap(),
            (None, None) => {}
        }
        Ok(())
    }

    fn handle_withheld(&self, _: &[u8; HEADER_LEN], _: Withheld) -> Result<(), ProtocolError> {
        Ok(())
    }

    fn handle_closed(&self, _: CloseReason) {}
}

/// A connection that answers in place.
async fn answering(rig: &Rig) -> End {
    open(rig, None).await
}

/// A connection with `callers` tasks, of which each frame wakes one that sends.
async fn calling(rig: &Rig, callers: usize) -> End {
    let woken = Arc::new(Semaphore::new(0));
    let end = open(rig, Some(Arc::clone(&woken))).await;
    for _ in 0..callers {
        let (woken, connection) = (Arc::clone(&woken), Arc::clone(end.connection()));
        tokio::spawn(async move {
            woken.acquire().await.unwrap().forget();
            connection.send_control([0; HEADER_LEN]).unwrap();
        });
    }
    end
}

async fn open(rig: &Rig, woken: Option<Arc<Semaphore>>) -> End {
    let end = rig.connect();
    let connection = Arc::downgrade(end.connection());
    end.connection().start(Arc::new(Sender { connection, woken }));
    until("an idle lane", || rig.sim.posted_receives() == 256).await;
    for _ in 0..8 {
        tokio::task::yield_now().await;
    }
    end
}

fn frames_come(end: &End, count: usize) {
    for _ in 0..count {
        end.say(MessageKind::Frame, &[1; HEADER_LEN]);
    }
}

async fn sent(end: &End, count: usize) {
    until("what is sent", || end.sends().len() == count).await;
}

#[tokio::test]
async fn connections_with_interleaved_messages_post_once_each() {
    const EACH: usize = 6;
    let rig = Rig::new();
    let mut ends = Vec::new();
    for _ in 0..8 {
        ends.push(answering(&rig).await);
    }
    let posts = rig.sim.send_calls();
    // More than one poll gives.
    for _ in 0..EACH {
        ends.iter().for_each(|end| frames_come(end, 1));
    }
    for end in &ends {
        sent(end, EACH).await;
    }
    assert_eq!(rig.sim.send_calls() - posts, ends.len());
}

#[tokio::test]
async fn what_callers_send_who_were_woken_together_leaves_in_one_post() {
    let rig = Rig::new();
    let end = calling(&rig, 5).await;
    let posts = rig.sim.send_calls();
    frames_come(&end, 5);
    sent(&end, 5).await;
    assert_eq!(rig.sim.send_calls() - posts, 1);
}

#[tokio::test]
async fn what_a_single_caller_sends_is_posted_by_itself() {
    let rig = Rig::new();
    let end = calling(&rig, 1).await;
    frames_come(&end, 1);
    let connection = Arc::clone(end.connection());
    let is_batching = || connection.is_batching();
    until("what is sent", || end.sends().len() == 1 || is_batching()).await;
    assert!(!is_batching());
    sent(&end, 1).await;
}

#[tokio::test]
async fn frames_held_while_callers_run_are_bounded() {
    const MANY: usize = GRANT as usize;
    let rig = Rig::new();
    let woken = Arc::new(Semaphore::new(0));
    let end = Arc::new(open(&rig, Some(Arc::clone(&woken))).await);
    let caller = Arc::clone(&end);
    // A task runs between the turn of the worker that wakes it and the next.
    let posted = tokio::spawn(async move {
        woken.acquire().await.unwrap().forget();
        let send = |_| {
            caller.connection().send_control([0; HEADER_LEN]).unwrap();
            caller.sends().len()
        };
        (0..MANY).map(send).collect::<Vec<_>>()
    });
    frames_come(&end, 2);
    let posted = posted.await.unwrap();
    assert_eq!((posted[0], posted[MANY - 2], posted[MANY - 1]), (0, 0, MANY));
}

#[tokio::test]
async fn nothing_leaves_while_slots_of_the_batch_are_not_posted_again() {
    let rig = Rig::new();
    let end = answering(&rig).await;
    end.connection().begin_batch();
    for _ in 0..GRANT {
        end.connection().send_control([0; HEADER_LEN]).unwrap();
    }
    assert!(end.sends().is_empty(), "it would grant slots that are not there");
    end.connection().end_batch();
    assert_eq!(end.sends().len(), GRANT as usize);
}

#[tokio::test]
async fn a_failed_read_is_reported_as_the_last_request() {
    let rig = Rig::new();
    let (end, _recorder) = rig.open();
    send_large(&end);
    end.offer(3, &[10_000], 10_000);
    let read = || end.sends().into_iter().rfind(|(kind, _)| *kind == WorkKind::Read);
    until("a READ", || read().is_some()).await;
    let (work_id, queue_pair_number) = (read().unwrap().1.work_id, end.number);
    let retries_exceeded = 12;
    let failed = RawCompletion { work_id, queue_pair_number, ..RawCompletion::default() };
    rig.sim.complete(RawCompletion { status: retries_exceeded, ..failed });
    until("the halt", || end.connection().ending.is_cancelled()).await;
    let (text, was_reported) = end.connection().describe_requests().unwrap();
    let (last, first) = text.split_once("; ").unwrap();
    assert!(last.starts_with(&format!("READ 9968 B on queue pair {queue_pair_number}")), "{text}");
    assert!(last.contains("retries exceeded") && first.starts_with("SEND (offer)"), "{text}");
    assert!(was_reported);
}

#[tokio::test]
async fn an_orderly_end_reports_no_requests() {
    let rig = Rig::new();
    let (end, _recorder) = rig.open();
    end.connection().send_control([0; HEADER_LEN]).unwrap();
    end.connection().fail(CloseReason::Peer);
    let (text, was_reported) = end.connection().describe_requests().unwrap();
    assert!(text.starts_with("SEND (frame) 48 B") && !was_reported, "{text}");
}
