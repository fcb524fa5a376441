//! Tests of the choice of connections that give way, and of shares in every order of arrival.

use std::sync::Arc;

use futures::FutureExt;
use proptest::prelude::*;

use super::*;
use crate::limits::memory::{MemoryCharge, MemoryShare, Pressure, memory_limit};
use crate::limits::quota::PeerKey;
use crate::limits::shared::SharedLimit;

/// The pause between two looks.
const LOOK: Duration = Duration::from_millis(250);

/// More looks than a connection that stands still is given.
const LOOKS: u32 = 8;
const MAX: u64 = 64 << 20;

/// The address of the holder that comes last.
const NEWCOMER: u8 = 200;
const STALLED: Flow = Flow { is_waiting: true, moved_bytes: 5 };

fn want(number: u64, held: u64) -> Want {
    let holder = MemoryHolder::Connection(number);
    Want { holder, held, connection_held: held, amount: 1 }
}

#[test]
fn the_refusal_of_the_least_holder_stays() {
    let pressure = Pressure::default();
    [want(1, 50), want(2, 3), want(3, 70)].into_iter().for_each(|want| pressure.refuse(want));
    assert!(pressure.raised().now_or_never().is_some());
    assert_eq!(pressure.take(), Some(want(2, 3)));
    assert_eq!(pressure.take(), None);
}

#[test]
fn a_signal_is_given_once_until_it_is_taken() {
    let pressure = Pressure::default();
    pressure.raise();
    pressure.raise();
    assert!(pressure.raised().now_or_never().is_some());
    assert!(pressure.raised().now_or_never().is_none());
    pressure.take();
    pressure.raise();
    assert!(pressure.raised().now_or_never().is_some());
}

/// A server's budget, with its connections and the looks at them.
struct World {
    limit: Arc<SharedLimit<MemoryHolder>>,
    pressure: Arc<Pressure>,
    relief: Relief,
    now: Instant,
    connections: Vec<Connection>,
    number: u64,
}

struct Connection {
    number: u64,
    host: u8,
    share: MemoryShare,
    charges: Vec<MemoryCharge>,
    flow: Flow,
    /// Bytes that it takes between two looks.
    pace: u64,
}

impl World {
    fn new(max: u64) -> Self {
        let (limit, pressure) = (memory_limit(Some(max)), Arc::default());
        let (relief, now) = (Relief::default(), Instant::now());
        Self { limit, pressure, relief, now, connections: Vec::new(), number: 0 }
    }

    /// Opens a connection of an address, and returns its number.
    fn open(&mut self, host: u8, flow: Flow, pace: u64) -> u64 {
        self.number += 1;
        let (peer, number) = (PeerKey::V4([10, 0, 0, host]), self.number);
        let share = MemoryShare::new(&self.limit, peer, number, &self.pressure);
        self.connections.push(Connection { number, host, share, charges: Vec::new(), flow, pace });
        number
    }

    fn connection(&mut self, number: u64) -> &mut Connection {
        let mut connections = self.connections.iter_mut();
        connections.find(|connection| connection.number == number).expect("it is open")
    }

    fn is_open(&self, number: u64) -> bool {
        self.connections.iter().any(|connection| connection.number == number)
    }

    fn try_take(&mut self, number: u64, len: u64) -> bool {
        let connection = self.connection(number);
        let taken = connection.share.try_take(len);
        let is_taken = taken.is_ok();
        connection.charges.extend(taken);
        is_taken
    }

    /// Takes as often as it gets something.
    fn fill(&mut self, number: u64, len: u64) {
        while self.try_take(number, len) {}
    }

    fn held_by(&self, host: u8) -> u64 {
        let holder = MemoryHolder::Peer(PeerKey::V4([10, 0, 0, host]));
        let holdings = self.limit.holdings();
        holdings.iter().find(|(key, _)| *key == holder).map_or(0, |(_, held)| *held)
    }

    fn fair(&self) -> u64 {
        self.limit.lendable() / (self.limit.holdings().len() as u64 + 1)
    }

    /// The share below which no holder loses a connection. The refusal of a holder that has left
    /// is remembered for a while: it counts as one more holder until then.
    fn safe_share(&self, holder_count: u64) -> u64 {
        let newcomer = MemoryHolder::Peer(PeerKey::V4([10, 0, 0, NEWCOMER]));
        let has = |holder| self.limit.holdings().iter().any(|(key, _)| *key == holder);
        let is_gone = |holder: MemoryHolder| holder != newcomer && !has(holder);
        let remembered = self.relief.want.is_some_and(|(want, _)| is_gone(want.holder));
        self.limit.lendable() / (holder_count + u64::from(remembered) + 1)
    }

    /// Looks once, and ends what has to end.
    fn look(&mut self) -> Vec<u64> {
        let holders = self.limit.holdings().into_iter().collect();
        let (lendable, total) = (self.limit.lendable(), self.limit.total());
        let usage = Usage { lendable, total, holders };
        let holding = |connection: &Connection| {
            let flows = Flows { sending: connection.flow, ..Flows::default() };
            connection.share.holding(|| flows)
        };
        let holdings: Vec<_> = self.connections.iter().filter_map(holding).collect();
        let ended = self.relief.look(self.now, usage, &holdings, self.pressure.take());
        self.connections.retain(|connection| !ended.contains(&connection.number));
        self.now += LOOK;
        for connection in &mut self.connections {
            connection.flow.moved_bytes += connection.pace;
        }
        ended
    }

    /// Tries until it is served, with looks between.
    fn take_at_last(&mut self, number: u64, len: u64) -> bool {
        (0..LOOKS).any(|_| {
            let is_taken = self.try_take(number, len);
            if !is_taken {
                self.look();
            }
            is_taken
        })
    }
}

#[test]
fn the_largest_that_stands_still_gives_way_first() {
    let mut world = World::new(MAX);
    let numbers: Vec<_> = (0..5).map(|host| world.open(host, STALLED, 0)).collect();
    numbers.iter().for_each(|number| world.fill(*number, 64 << 10));
    let newcomer = world.open(9, Flow::default(), 0);
    assert!(!world.try_take(newcomer, 4 << 20));
    let ended: Vec<_> = (0..LOOKS).flat_map(|_| world.look()).collect();
    assert_eq!(ended, [numbers[0]], "half of what there was to lend was its own");
    assert!(world.try_take(newcomer, 4 << 20));
}

#[test]
fn a_peer_that_takes_what_waits_is_never_ended() {
    for (pace, is_ended) in [(1, true), (64 << 10, true), (256 << 10, false)] {
        let mut world = World::new(MAX);
        let slow = world.open(1, STALLED, pace);
        world.fill(slow, 64 << 10);
        let others = [2, 3].map(|host| world.open(host, Flow::default(), 0));
        others.iter().for_each(|number| world.fill(*number, 64 << 10));
        for _ in 0..20 {
            world.look();
        }
        assert_eq!(world.is_open(slow), !is_ended, "{pace} bytes a look of 28 MiB");
        assert!(others.iter().all(|number| world.is_open(*number)), "nothing waits for them");
    }
}

#[test]
fn connections_of_a_full_address_make_room_for_each_other() {
    let mut world = World::new(MAX);
    let [large, small] = [1, 1].map(|host| world.open(host, STALLED, 0));
    assert!(world.try_take(small, 1 << 20));
    world.fill(large, 64 << 10);
    let newcomer = world.open(1, Flow::default(), 0);
    assert!(world.take_at_last(newcomer, 1 << 20));
    assert!(!world.is_open(large) && world.is_open(small));
}

#[test]
fn a_refusal_of_a_greedy_holder_ends_no_other() {
    let mut world = World::new(MAX);
    let [greedy, other] = [1, 2].map(|host| world.open(host, STALLED, 0));
    assert!(world.try_take(other, 8 << 20));
    world.fill(greedy, 64 << 10);
    for _ in 0..20 {
        assert!(!world.try_take(greedy, 64 << 10));
        world.look();
    }
    assert!(world.is_open(other));
}

#[derive(Debug, Clone, Copy)]
enum Order {
    /// All take a piece in turn.
    Simultaneous,
    /// Each takes all that it gets before the next one comes.
    OneAfterTheOther,
    /// One after the other, while holders leave and come again.
    Churn,
}

fn order() -> impl Strategy<Value = Order> {
    prop_oneof![Just(Order::Simultaneous), Just(Order::OneAfterTheOther), Just(Order::Churn)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The book's `limits.md`, "Shares": whatever came before it, a newcomer among peers that take
    /// nothing gets `1 / (n + 1)` of what can be lent, piece by piece, and no holder that has less
    /// than its fair share loses a connection.
    #[test]
    fn a_newcomer_gets_its_fair_share_in_every_order(
        order in order(),
        piece in 4096u64..200_000,
        max in (16u64 << 20)..(128 << 20),
        hosts in prop::collection::vec((0u8..30, 1u32..4, any::<bool>()), 1..24),
    ) {
        let mut world = World::new(max);
        let mut numbers = Vec::new();
        for (host, connection_count, leaves) in &hosts {
            for _ in 0..*connection_count {
                numbers.push(world.open(*host, STALLED, 0));
                if !matches!(order, Order::Simultaneous) {
                    world.fill(numbers[numbers.len() - 1], piece);
                    world.look();
                }
            }
            if matches!(order, Order::Churn) && *leaves {
                world.connections.pop();
            }
            numbers.retain(|number| world.is_open(*number));
        }
        if matches!(order, Order::Simultaneous) {
            loop {
                let taken = numbers.iter().filter(|number| world.try_take(**number, piece));
                if taken.count() == 0 {
                    break;
                }
            }
        }
        // Reads the last refusal of what came before.
        world.look();
        let newcomer = world.open(NEWCOMER, STALLED, 0);
        // What it had before it came counts in no share.
        let mut held = 0;
        loop {
            let holder_count = world.limit.holdings().len() as u64 + u64::from(held == 0);
            let fair = world.limit.lendable() / (holder_count + 1);
            if held + piece > fair {
                break;
            }
            let safe = world.safe_share(holder_count);
            let is_small = |connection: &&Connection| world.held_by(connection.host) <= safe;
            let small = world.connections.iter().filter(is_small);
            let small: Vec<_> = small.map(|connection| connection.number).collect();
            prop_assert!(world.take_at_last(newcomer, piece), "{held} of {fair}");
            held += piece;
            prop_assert!(small.iter().all(|number| world.is_open(*number)));
        }
        prop_assert!(world.limit.total() <= max);
        prop_assert!(world.held_by(NEWCOMER) + piece > world.fair().min(held + piece));
    }

    /// A newcomer gets its floor without a look at the others while the reserve lasts.
    #[test]
    fn the_reserve_serves_newcomers_at_once(
        hosts in 1u8..30,
        piece in 4096u64..200_000,
        floor in 1u64..(256 << 10),
    ) {
        let mut world = World::new(MAX);
        for host in 0..hosts {
            let number = world.open(host, STALLED, 0);
            world.fill(number, piece);
        }
        // At 64 MiB, 32 holders fit into the reserve with 256 KiB each.
        let newcomer = world.open(NEWCOMER, STALLED, 0);
        prop_assert!(world.try_take(newcomer, floor));
    }
}
