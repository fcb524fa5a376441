//! The cost of paths that are never established: everything is given back.

use super::*;

/// Several times what the completion queue of a scripted device has room for.
const MANY: usize = 2_000;

impl Rig {
    pub(super) fn addresses() -> Addresses {
        Addresses { local: Some((SCRIPTED_ADDRESS, 7000).into()), ..Addresses::default() }
    }

    pub(super) fn connect_from(&self, addresses: &Addresses) -> End {
        let mut prepared = self.upgrade.prepare(addresses, None).unwrap();
        // The peer says several things in a row, and never what it has seen of ours.
        prepared.holding.widen(7);
        let peer = ConnParams { grant: GRANT, ..prepared.conn_params() };
        let (epoch, window) = (prepared.epoch, prepared.holding.window());
        let number = prepared.queues.messages().number();
        let joined = prepared.join(&peer).unwrap();
        End { sim: self.sim.clone(), joined, epoch, number, window }
    }

    pub(super) fn open_from(&self, addresses: &Addresses) -> (End, Arc<Recorder>) {
        let (end, recorder) = (self.connect_from(addresses), Arc::new(Recorder::default()));
        end.connection().start(recorder.clone());
        (end, recorder)
    }

    fn claimed_entries(&self) -> u32 {
        self.upgrade.lanes()[0].claimed_entries
    }
}

/// The receive slots of the rig's worker, which claim an entry each.
const SLOTS: u32 = 256;

#[tokio::test]
async fn offers_without_an_answer_use_up_nothing_of_an_idle_worker() {
    let rig = Rig::new();
    // This thread runs the worker's task as well, which gets no turn meanwhile: what a process does
    // that connects to servers without RDMA, while its worker sleeps.
    for count in 0..MANY {
        let offer = rig.upgrade.offer(&Rig::addresses());
        drop(offer.unwrap_or_else(|declined| panic!("after {count}: {}", declined.reason)));
    }
    assert_eq!((rig.claimed_entries(), rig.upgrade.lanes()[0].connection_count), (SLOTS, 0));
}

#[tokio::test]
async fn failed_paths_return_entries_while_the_worker_sleeps() {
    let rig = Rig::new();
    for _ in 0..20 {
        let end = rig.connect();
        let connection = Arc::clone(end.connection());
        drop(end.joined);
        until("the halt", || connection.ending.is_cancelled()).await;
        let number = end.number;
        until("the drain WR", || !rig.sim.sends_on(number).is_empty()).await;
        let drain_wr = *rig.sim.sends_on(number).last().unwrap();
        let (work_id, status, queue_pair_number) = (drain_wr.work_id, 5, number);
        let flushed = RawCompletion { work_id, status, queue_pair_number, ..Default::default() };
        rig.sim.complete(flushed);
        connection.ended.cancelled().await;
    }
    // No completion comes any more, and nothing else wakes the worker.
    until("the entries", || rig.claimed_entries() == SLOTS).await;
}

#[tokio::test]
async fn an_offer_that_cannot_be_joined_makes_no_queue_pair() {
    let rig = Rig::new();
    let good = rig.prepare().conn_params();
    let spoils: [fn(&mut ConnParams); 5] = [
        |conn_params| conn_params.grant = 0,
        |conn_params| conn_params.slot_len = 1,
        |conn_params| conn_params.endpoint.queue_pair_number = 0,
        |conn_params| conn_params.endpoint.link_layer = crate::verbs::LinkLayer::InfiniBand,
        |conn_params| {
            conn_params.endpoint.gid = crate::verbs::Gid::from_ip("2001:db8::1".parse().unwrap());
        },
    ];
    for spoil in spoils {
        let mut conn_params = good.clone();
        spoil(&mut conn_params);
        let (made, connected) = rig.sim.queue_pairs();
        assert!(
            rig.upgrade.accept(&Rig::addresses(), &conn_params.encode()).is_err(),
            "{conn_params:?}"
        );
        assert_eq!(rig.sim.queue_pairs(), (made, connected), "{conn_params:?}");
        // The side that offered has a queue pair by then, and keeps it for another offer.
        assert!(rig.prepare().join(&conn_params).is_err(), "{conn_params:?}");
        assert_eq!(rig.sim.queue_pairs(), (made, connected), "{conn_params:?}");
    }
    assert_eq!(rig.claimed_entries(), SLOTS);
}
