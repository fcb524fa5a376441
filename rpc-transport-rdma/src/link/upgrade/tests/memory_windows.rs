//! The keys of a connection's offers.

use super::*;
use crate::verbs::RawBind;

impl Rig {
    /// A worker whose offers go through windows. No scripted device could pass the check.
    pub(super) fn windowed(timeout: Duration) -> Self {
        let rig = Self::with_timeout(timeout);
        rig.sim.claim_windows();
        let config = RdmaConfig {
            rkey_scope: RkeyScope::Window,
            // What is not taken back is waited for.
            release_timeout: LIMIT,
            ..rig.upgrade.config.clone()
        };
        let make = |_: Option<&Worker>, _| Worker::start(&rig.sim.device(), &config);
        rig.upgrade.workers.find("sim", 1, make, |_| None::<()>).unwrap();
        rig
    }
}

impl End {
    /// The device is done with everything that this end has posted.
    fn complete_all(&self) {
        let work_id = self.sends().last().unwrap().1.work_id;
        let queue_pair_number = self.number;
        self.sim.complete(RawCompletion { work_id, queue_pair_number, ..Default::default() });
    }

    fn binds(&self) -> Vec<RawBind> {
        let operations = self.sends().into_iter().map(|(_, send)| send.operation);
        operations
            .filter_map(|operation| match operation {
                RawOperation::Bind(bind) => Some(bind),
                _ => None,
            })
            .collect()
    }

    fn invalidations(&self) -> Vec<RemoteKey> {
        let operations = self.sends().into_iter().map(|(_, send)| send.operation);
        operations
            .filter_map(|operation| match operation {
                RawOperation::Invalidate(key) => Some(key),
                _ => None,
            })
            .collect()
    }

    /// Completes everything until this end says that it is done with what it was offered.
    async fn fetched(&self) -> RawSend {
        let end = std::time::Instant::now() + LIMIT;
        while std::time::Instant::now() < end {
            if let Some((_, send)) = self.sends().iter().find(|(kind, _)| *kind == WorkKind::Send) {
                return *send;
            }
            if !self.sends().is_empty() {
                self.complete_all();
            }
            tokio::task::yield_now().await;
        }
        panic!("no release");
    }

    /// The peer releases a transfer and takes a key away, if any.
    fn release(&self, transfer: u32, taken_key: Option<RemoteKey>) {
        let kind = MessageKind::Ats { transfer, outcome: AtsStatus::Read };
        let header = MessageHeader { kind, epoch: self.epoch, grant: granting(GRANT) };
        self.sim.deliver_taking(0, &header.to_bytes(), self.number, taken_key);
    }

    fn source_bytes(&self) -> u64 {
        self.connection().worker.sources.bytes_in_use()
    }
}

/// The numbers of a path's transfers, in the order of their offers while none is released.
fn transfers(count: usize) -> Vec<u32> {
    let mut offered = RndvSends::default();
    (0..count).map(|_| offered.insert(0, (), None, tokio::time::Instant::now())).collect()
}

#[tokio::test]
async fn an_invalidating_release_frees_the_offers_memory() {
    let rig = Rig::windowed(LIMIT);
    let (end, _told) = rig.open();
    assert_eq!(rig.upgrade.lanes()[0].rkey_scope, RkeyScope::Window);
    let posts = rig.sim.send_calls();
    send_large(&end);
    assert_eq!(rig.sim.send_calls(), posts + 1, "one post");
    let kinds: Vec<_> = end.sends().into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(kinds, [WorkKind::Bind, WorkKind::Send]);
    end.complete_all();
    end.release(first_transfer(), Some(end.binds()[0].key));
    until("the memory", || end.source_bytes() == 0).await;
    send_large(&end);
    let binds = end.binds();
    assert_eq!(binds[0].key.0 >> 8, binds[1].key.0 >> 8, "the window is used again");
    assert_ne!(binds[0].key, binds[1].key);
    assert_eq!((end.invalidations(), rig.sim.windows()), (vec![], 1));
}

#[tokio::test]
async fn a_window_opens_what_follows_the_head_and_nothing_else() {
    const HEAD_LEN: usize = HEADER_LEN + 5;
    let rig = Rig::windowed(LIMIT);
    let (end, _told) = rig.open();
    let connection = end.connection();
    let sources = &connection.worker.sources;
    let own = sources.try_take(100_000).unwrap();
    let own_span = (own.remote().address + HEADER_LEN as u64, 100_000 - HEADER_LEN as u64);
    let bytes = Bytes::from_owner(sources.try_lend(100_000).unwrap()).slice(10..90_010);
    let lent = connection.sources.claim_lent(&bytes).unwrap();
    let lent_span = (lent.0.remote().address, 90_000);
    for payload in
        [RndvPayload::own(own, share()), RndvPayload::lent(HEAD_LEN, &bytes, lent, share())]
    {
        let slot = connection.worker.send_slots.try_take().unwrap();
        let permit = Arc::clone(&connection.frames).try_acquire_owned().unwrap();
        let permit = FramePermit::new(permit, None);
        let offer = Outgoing::Rts { payload, slot, permit, call: 7, is_given_up: false };
        connection.send(offer).unwrap();
    }
    drop(bytes);
    until("the second window", || end.binds().len() == 2).await;
    let binds = end.binds();
    let spans: Vec<_> = binds.iter().map(|bind| (bind.address, bind.len)).collect();
    assert_eq!(spans, [own_span, lent_span]);
    end.complete_all();
    let keys = binds.iter().map(|bind| bind.key);
    for (transfer, key) in transfers(2).into_iter().zip(keys) {
        end.release(transfer, Some(key));
    }
    until("the memory", || end.source_bytes() == 0).await;
}

#[tokio::test]
async fn a_release_with_a_live_key_frees_memory_after_its_death() {
    let rig = Rig::windowed(LIMIT);
    let (end, recorder) = rig.open();
    send_large(&end);
    end.complete_all();
    end.release(first_transfer(), None);
    until("the invalidation", || end.invalidations() == [end.binds()[0].key]).await;
    frame_arrives(&end, &recorder, b"meanwhile").await;
    assert!(end.source_bytes() > 0);
    end.complete_all();
    until("the memory", || end.source_bytes() == 0).await;
    assert!(!end.connection().ending.is_cancelled());
}

#[tokio::test]
async fn a_release_can_be_there_before_the_completion_of_its_offer() {
    for is_taken in [true, false] {
        let rig = Rig::windowed(LIMIT);
        let (end, recorder) = rig.open();
        send_large(&end);
        end.release(first_transfer(), is_taken.then(|| end.binds()[0].key));
        frame_arrives(&end, &recorder, b"meanwhile").await;
        assert!(end.source_bytes() > 0, "the bind may still be to come");
        end.complete_all();
        if !is_taken {
            until("the invalidation", || !end.invalidations().is_empty()).await;
            assert!(end.source_bytes() > 0);
            end.complete_all();
        }
        until("the memory", || end.source_bytes() == 0).await;
        assert_eq!(end.invalidations().len(), usize::from(!is_taken));
    }
}

#[tokio::test]
async fn a_foreign_invalidation_costs_the_connection() {
    for is_release in [true, false] {
        let rig = Rig::windowed(LIMIT);
        let (end, recorder) = rig.open();
        send_large(&end);
        send_large(&end);
        until("the second window", || end.binds().len() == 2).await;
        end.complete_all();
        frame_arrives(&end, &recorder, b"before").await;
        let key = end.binds()[1].key;
        if is_release {
            end.release(first_transfer(), Some(key));
        } else {
            let header = MessageHeader {
                kind: MessageKind::Grant,
                epoch: end.epoch,
                grant: granting(GRANT),
            };
            rig.sim.deliver_taking(0, &header.to_bytes(), end.number, Some(key));
        }
        until("the halt", || end.connection().ending.is_cancelled()).await;
        let text = end.connection().closed().to_string();
        assert!(text.contains("key that an RDMA message took away"), "{text}");
    }
}

#[tokio::test]
async fn a_second_release_of_waiting_memory_costs_the_connection() {
    let rig = Rig::windowed(LIMIT);
    let (end, _told) = rig.open();
    send_large(&end);
    end.complete_all();
    end.release(first_transfer(), None);
    until("the invalidation", || !end.invalidations().is_empty()).await;
    end.release(first_transfer(), None);
    until("the halt", || end.connection().ending.is_cancelled()).await;
    assert!(end.source_bytes() > 0, "the invalidation has not completed");
    end.flush().await;
    end.connection().ended.cancelled().await;
    assert_eq!((end.source_bytes(), rig.sim.windows_at_destruction()), (0, 0));
}

#[tokio::test]
async fn an_offer_waits_for_a_window_as_for_credit() {
    const WINDOWS: usize = 1000 / 256;
    let rig = Rig::windowed(LIMIT);
    let (end, _told) = rig.open();
    (0..WINDOWS + 2).for_each(|_| send_large(&end));
    until("the windows", || end.binds().len() == WINDOWS).await;
    assert_eq!(rig.sim.windows(), WINDOWS);
    end.complete_all();
    let keys: Vec<_> = end.binds().iter().map(|bind| bind.key).collect();
    let transfers = transfers(WINDOWS);
    end.release(transfers[1], Some(keys[1]));
    until("one more", || end.binds().len() == WINDOWS + 1).await;
    end.complete_all();
    end.release(transfers[0], Some(keys[0]));
    until("the last", || end.binds().len() == WINDOWS + 2).await;
    let order: Vec<_> = end.binds()[WINDOWS..].iter().map(|bind| bind.key.0 >> 8).collect();
    assert_eq!(order, [keys[1].0 >> 8, keys[0].0 >> 8], "in the order of their return");
}

#[tokio::test]
async fn a_kept_key_is_revoked_and_one_late_release_ignored() {
    let rig = Rig::windowed(Duration::from_millis(10));
    let (end, recorder) = rig.open();
    send_large(&end);
    end.complete_all();
    frame_arrives(&end, &recorder, b"before").await;
    end.connection().abandon(7);
    let revoked = || rig.upgrade.lanes()[0].cancellations.revoked == 1;
    let waiting = async {
        while !revoked() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LIMIT, waiting).await.expect("the wait is bounded");
    assert_eq!((end.source_bytes(), rig.sim.windows()), (0, 0), "the window is gone");
    end.release(first_transfer(), None);
    frame_arrives(&end, &recorder, b"after").await;
    assert!(!end.connection().ending.is_cancelled());
    end.release(first_transfer(), None);
    until("the halt", || end.connection().ending.is_cancelled()).await;
}

#[tokio::test]
async fn memory_stays_behind_a_window_that_is_not_deallocated() {
    let rig = Rig::windowed(Duration::from_millis(10));
    let (end, recorder) = rig.open();
    send_large(&end);
    end.complete_all();
    frame_arrives(&end, &recorder, b"before").await;
    rig.sim.set_faults(SimFaults { kept_window: 1.0, ..SimFaults::default() });
    let used = end.source_bytes();
    end.connection().abandon(7);
    tokio::time::timeout(LIMIT, end.connection().ending.cancelled()).await.expect("it ends");
    assert_eq!((end.source_bytes(), rig.sim.windows()), (used, 1), "the peer may read");
    end.flush().await;
    until("the end", || recorder.closed().is_some()).await;
    let reason = recorder.closed().unwrap().to_string();
    assert!(reason.contains("cannot take memory away"), "{reason}");
}

#[tokio::test]
async fn our_releases_invalidate_keys_unless_withdrawn() {
    for is_cancelled in [false, true] {
        let rig = Rig::windowed(LIMIT);
        let (end, _told) = rig.open();
        end.offer(3, &[8 << 20], 8 << 20);
        let reads = || end.sends().iter().filter(|(kind, _)| *kind == WorkKind::Read).count();
        until("READs", || reads() == 4).await;
        if is_cancelled {
            end.say(MessageKind::Cancel { transfer: 3 }, &[]);
        }
        let release = end.fetched().await;
        let expected = match is_cancelled {
            false => RawOperation::SendInvalidate(RemoteKey(1)),
            true => RawOperation::Send,
        };
        assert_eq!(release.operation, expected);
    }
}

#[tokio::test]
async fn a_peer_that_does_not_ask_for_it_keeps_its_keys() {
    let rig = Rig::windowed(LIMIT);
    let mut prepared = rig.prepare();
    prepared.holding.widen(7);
    let peer = ConnParams { grant: GRANT, has_memory_windows: false, ..prepared.conn_params() };
    let (epoch, window) = (prepared.epoch, prepared.holding.window());
    let number = prepared.queues.messages().number();
    let joined = prepared.join(&peer).unwrap();
    let end = End { sim: rig.sim.clone(), joined, epoch, number, window };
    end.connection().start(Arc::new(Recorder::default()));
    end.offer(3, &[8 << 20], 8 << 20);
    assert_eq!(end.fetched().await.operation, RawOperation::Send);
}
