//! The effects of single changes to the list, to connections and to calls on the picks.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::*;

const READY: Connectivity = Connectivity::Ready { is_upgraded: false };
const UPGRADED: Connectivity = Connectivity::Ready { is_upgraded: true };
const INTERVAL: Duration = Duration::from_secs(10);

/// Rules that eject an endpoint that has failed more than half of four calls or more, while there
/// are calls to two endpoints.
fn rules() -> OutlierDetection {
    let rules = OutlierDetection::default().with_consecutive_failures(0).with_interval(INTERVAL);
    rules.with_threshold(Some(50)).with_minimum_hosts(2).with_request_volume(4)
}

/// A roster of endpoints that are all connected.
struct Connected {
    roster: Roster<EndpointId>,
    ids: Vec<EndpointId>,
    loads: Vec<Arc<Load>>,
    now: Instant,
}

impl Connected {
    fn new(config: BalanceConfig, count: usize) -> Self {
        let now = Instant::now();
        let mut roster = Roster::new(config, 7, now);
        roster.set_endpoints(list(count), now, |id, _| id);
        let ids: Vec<_> = roster.status().iter().map(|status| status.id).collect();
        ids.iter().for_each(|id| roster.set_connectivity(*id, READY, now));
        let loads = ids.iter().map(|id| load_of(&roster, *id, now)).collect();
        Self { roster, ids, loads, now }
    }

    /// Calls to an endpoint, of which the first so many fail.
    fn call(&mut self, index: usize, failure_count: u32, count: u32) {
        let (id, load) = (self.ids[index], &self.loads[index]);
        let ejects_at = self.roster.config().outlier_detection.consecutive_failures;
        for number in 0..count {
            load.start();
            let end = match number < failure_count {
                true => CallEnd::Failed,
                false => CallEnd::Answered { latency: Duration::from_micros(50) },
            };
            let suspicion = load.end(end, ejects_at, self.now);
            self.roster.handle_suspicion(id, suspicion, self.now);
        }
    }

    fn pass_interval(&mut self) {
        self.now += INTERVAL;
        self.roster.handle_timer(self.now);
    }

    /// The endpoints that are ejected, by their places in the list.
    fn ejected(&self) -> Vec<usize> {
        let status = self.roster.status();
        let is_out = |index: &usize| status[*index].ejected_until.is_some();
        (0..status.len()).filter(is_out).collect()
    }

    fn set(&mut self, index: usize, state: Connectivity) {
        self.roster.set_connectivity(self.ids[index], state, self.now);
    }

    /// Returns the picked endpoints, by their places in the list.
    fn picked(&self) -> Vec<usize> {
        let picker = self.roster.picker();
        let mut random = fastrand::Rng::with_seed(7);
        let picks =
            (0..1000).filter_map(|_| match picker.pick(random.u64(..), None, &[], self.now) {
                Pick::Endpoint { candidate, .. } => Some(candidate.id),
                Pick::Wait | Pick::Fail => None,
            });
        let picked: HashSet<_> = picks.collect();
        (0..self.ids.len()).filter(|index| picked.contains(&self.ids[*index])).collect()
    }

    fn waits(&self) -> bool {
        matches!(self.roster.picker().pick(0, None, &[], self.now), Pick::Wait)
    }
}

/// Returns the load of an endpoint, which a pick gives.
fn load_of(roster: &Roster<EndpointId>, id: EndpointId, now: Instant) -> Arc<Load> {
    let picker = roster.picker();
    for number in 0..10_000 {
        match picker.pick(fastrand::u64(..), Some(number), &[], now) {
            Pick::Endpoint { candidate, .. } if candidate.id == id => {
                return Arc::clone(&candidate.load);
            }
            _ => {}
        }
    }
    panic!("{id:?} gets no calls");
}

fn list(count: usize) -> Vec<Endpoint> {
    (0..count).map(|number| Endpoint::new(format!("tcp://server-{number}:1"))).collect()
}

#[test]
fn a_listed_endpoint_keeps_its_own_id() {
    let now = Instant::now();
    let mut roster = Roster::new(BalanceConfig::default().with_connections(2), 7, now);
    let mut set = |list: Vec<Endpoint>| roster.set_endpoints(list, now, |id, _| id);
    let first = set(list(2));
    let connections: Vec<_> = first.added.iter().map(|id| id.connection).collect();
    assert_eq!((connections, first.removed), (vec![0, 1, 0, 1], vec![]));
    let mut two = set(list(1));
    two.removed.sort_unstable();
    assert_eq!((two.added, two.removed), (vec![], first.added[2..].to_vec()));
    let three = set(list(2));
    assert_eq!((three.added.len(), three.removed.len()), (2, 0));
    let both = [&first.added[..], &three.added].concat();
    assert_eq!(both.iter().collect::<HashSet<_>>().len(), 6, "it has come back as another");
    assert!(both[0].is_of_same_endpoint(both[1]) && !both[0].is_of_same_endpoint(both[2]));
    assert_eq!(roster.handles().count(), 4);
}

#[test]
fn an_address_that_stays_takes_the_weight_of_the_new_list() {
    let mut connected = Connected::new(BalanceConfig::default().with_policy(Policy::RoundRobin), 2);
    let weights = [3, 1].into_iter();
    let heavier = list(2).into_iter().zip(weights).map(|(it, weight)| it.with_weight(weight));
    let changes = connected.roster.set_endpoints(heavier, connected.now, |id, _| id);
    assert!(changes.added.is_empty() && changes.removed.is_empty());
    let picker = connected.roster.picker();
    let of_first = |_: &i32| {
        let pick = picker.pick(0, None, &[], connected.now);
        matches!(pick, Pick::Endpoint { candidate, .. } if candidate.id == connected.ids[0])
    };
    assert_eq!((0..400).filter(of_first).count(), 300);
}

#[test]
fn a_key_has_one_endpoint_while_that_lives() {
    let config = BalanceConfig::default().with_policy(Policy::ConsistentHash);
    let mut connected = Connected::new(config, 5);
    let owners = |connected: &Connected| -> Vec<EndpointId> {
        let picker = connected.roster.picker();
        let mut random = fastrand::Rng::with_seed(7);
        let mut owner = |key| match picker.pick(random.u64(..), Some(key), &[], connected.now) {
            Pick::Endpoint { candidate, .. } => candidate.id,
            pick => panic!("{pick:?}"),
        };
        (0..100).map(&mut owner).collect()
    };
    let before = owners(&connected);
    assert_eq!(before, owners(&connected));
    connected.set(0, Connectivity::TransientFailure);
    for (before, after) in before.iter().zip(owners(&connected)) {
        assert_eq!(*before == after, *before != connected.ids[0]);
    }
}

#[test]
fn failures_in_a_row_eject_at_once_and_answers_between_do_not() {
    let rules = rules().with_consecutive_failures(3);
    let mut connected = Connected::new(BalanceConfig::default().with_outlier_detection(rules), 4);
    connected.call(0, 2, 3);
    connected.call(0, 2, 2);
    assert_eq!(connected.ejected(), [0_usize; 0]);
    connected.call(0, 1, 1);
    assert_eq!((connected.ejected(), connected.picked()), (vec![0], vec![1, 2, 3]));
}

#[test]
fn no_more_than_their_share_of_the_endpoints_is_ejected() {
    let rules = rules().with_consecutive_failures(1);
    for (percent, ejected_max) in [(0, 0), (25, 1), (26, 2), (50, 2), (100, 4)] {
        let rules = rules.with_max_ejection_percent(percent);
        let mut connected =
            Connected::new(BalanceConfig::default().with_outlier_detection(rules), 4);
        (0..4).for_each(|index| connected.call(index, 1, 1));
        assert_eq!(connected.ejected().len(), ejected_max, "{percent} %");
    }
}

#[test]
fn a_row_of_failures_begins_anew_at_an_ejection_and_at_a_return() {
    let rules = rules().with_consecutive_failures(2).with_max_ejection_percent(50);
    let mut connected = Connected::new(BalanceConfig::default().with_outlier_detection(rules), 2);
    let all_return = |connected: &mut Connected| {
        let have_returned = (0..100).any(|_| {
            connected.pass_interval();
            connected.ejected().is_empty()
        });
        assert!(have_returned);
    };
    for _ in 0..2 {
        connected.call(0, 2, 2);
        assert_eq!(connected.ejected(), [0]);
        connected.call(0, 1, 1);
        connected.call(1, 2, 2);
        assert_eq!(connected.ejected(), [0], "one of two is all that may be ejected");
        all_return(&mut connected);
        for index in [0, 1] {
            connected.call(index, 1, 1);
            assert_eq!(connected.ejected(), [0_usize; 0], "one failure is no row");
        }
        connected.call(0, 0, 1);
        connected.call(1, 1, 1);
        assert_eq!(connected.ejected(), [1], "there is room now");
        all_return(&mut connected);
    }
}

#[test]
fn failures_beyond_the_threshold_eject_at_the_interval() {
    let config = BalanceConfig::default().with_outlier_detection(rules());
    let mut connected = Connected::new(config.clone(), 4);
    connected.call(0, 3, 4);
    connected.call(1, 2, 4);
    connected.call(2, 3, 3);
    connected.roster.handle_timer(connected.now + INTERVAL - Duration::from_nanos(1));
    assert_eq!(connected.ejected(), [0_usize; 0], "the interval is not over");
    connected.pass_interval();
    assert_eq!(connected.ejected(), [0], "half is not more than half, and 3 calls are too few");

    let mut connected = Connected::new(config, 4);
    connected.call(0, 4, 4);
    connected.call(1, 0, 3);
    connected.pass_interval();
    assert_eq!(connected.ejected(), [0_usize; 0], "only one endpoint has had enough calls");
    connected.call(0, 4, 4);
    connected.call(1, 0, 40);
    connected.call(2, 0, 40);
    connected.pass_interval();
    assert_eq!(connected.ejected(), [0]);
}

#[test]
fn the_timer_is_due_each_interval_while_a_rule_is_on() {
    let mut connected = Connected::new(BalanceConfig::default().with_outlier_detection(rules()), 2);
    let begin = connected.now;
    for interval in 1..4 {
        assert_eq!(connected.roster.next_deadline(), Some(begin + interval * INTERVAL));
        connected.pass_interval();
    }
    connected.roster.set_endpoints([], connected.now, |id, _| id);
    assert_eq!(connected.roster.next_deadline(), None, "there is nothing to eject");
    let off = BalanceConfig::default().with_outlier_detection(OutlierDetection::off());
    let mut connected = Connected::new(off, 2);
    assert_eq!(connected.roster.next_deadline(), None);
    connected.call(0, 4, 4);
    connected.pass_interval();
    assert_eq!(connected.ejected(), [0_usize; 0]);
}

#[test]
fn slow_start_begins_with_the_connection_not_its_upgrade() {
    let window = Duration::from_secs(100);
    let config = BalanceConfig::default().with_policy(Policy::RoundRobin).with_slow_start(window);
    let mut connected = Connected::new(config, 2);
    connected.now += window;
    let of_second = |connected: &Connected| {
        let picker = connected.roster.picker();
        let mut random = fastrand::Rng::with_seed(7);
        let picks = (0..1000).filter(|_| {
            let pick = picker.pick(random.u64(..), None, &[], connected.now);
            matches!(pick, Pick::Endpoint { candidate, .. } if candidate.id == connected.ids[1])
        });
        picks.count()
    };
    connected.set(1, UPGRADED);
    assert_eq!(of_second(&connected), 500);
    connected.set(1, Connectivity::Idle);
    connected.set(1, UPGRADED);
    assert!((50..150).contains(&of_second(&connected)), "a tenth of a share");
}

#[test]
fn upgraded_endpoints_are_preferred_unless_ejected() {
    let rules = rules().with_consecutive_failures(1);
    let config = BalanceConfig::default().with_outlier_detection(rules);
    for is_preferred in [false, true] {
        let mut connected = Connected::new(config.clone().with_prefer_upgraded(is_preferred), 3);
        connected.set(1, UPGRADED);
        let expected = if is_preferred { vec![1] } else { vec![0, 1, 2] };
        assert_eq!(connected.picked(), expected);
        connected.call(1, 1, 1);
        assert_eq!(connected.picked(), [0, 2]);
    }
}

#[test]
fn ejected_endpoints_are_picked_when_no_other_can_come() {
    let rules = rules().with_consecutive_failures(1).with_max_ejection_percent(100);
    let mut connected = Connected::new(BalanceConfig::default().with_outlier_detection(rules), 3);
    connected.call(0, 1, 1);
    connected.set(1, Connectivity::TransientFailure);
    connected.set(2, Connectivity::Connecting);
    assert!(connected.waits(), "the third may come");
    connected.set(2, READY);
    connected.call(2, 1, 1);
    assert_eq!(connected.picked(), [0, 2], "no other lives");
    connected.set(2, Connectivity::Idle);
    assert_eq!(connected.picked(), [0], "what may come is ejected, too");
    let last_resorts: Vec<_> =
        connected.roster.status().iter().map(|status| status.is_last_resort).collect();
    assert_eq!(last_resorts, [true, false, false]);
    connected.set(0, Connectivity::TransientFailure);
    assert!(connected.waits());
    connected.set(2, Connectivity::TransientFailure);
    assert!(matches!(connected.roster.picker().pick(0, None, &[], connected.now), Pick::Fail));
}

#[test]
fn endpoints_without_a_connection_are_wanted_by_policy() {
    for (policy, wanted_at_first) in [(Policy::LeastLoaded, 3), (Policy::PickFirst, 1)] {
        let now = Instant::now();
        let mut roster = Roster::new(BalanceConfig::default().with_policy(policy), 7, now);
        let ids = roster.set_endpoints(list(3), now, |id, _| id).added;
        assert_eq!(
            (roster.wanted(), roster.first_ready()),
            (ids[..wanted_at_first].to_vec(), None)
        );
        roster.set_connectivity(ids[0], Connectivity::TransientFailure, now);
        let others = &ids[1..(wanted_at_first + 1).min(3)];
        assert_eq!(roster.wanted(), others, "the next one, or all others");
        for state in [Connectivity::Connecting, READY] {
            roster.set_connectivity(ids[1], state, now);
            let others = if policy == Policy::PickFirst { &[] } else { &ids[2..] };
            assert_eq!(roster.wanted(), others);
            assert_eq!(roster.connectivity(), state);
        }
        roster.set_connectivity(ids[2], READY, now);
        assert_eq!(roster.first_ready(), Some(ids[1]));
    }
}
