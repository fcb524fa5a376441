//! The clock: what happens in a tick, and what is measured in which order.

use std::collections::HashSet;
use std::sync::Arc;

use fastrand::Rng;

use super::end::Message;
use super::lane::Lane;
use super::link::Link;
use super::measured::{Measured, quantile};
use super::plan::{ACTIVE_LOAD, BATCH, NEWCOMERS, Plan, ROUND_TRIP};
use crate::quota::slots::RESERVE;
use crate::stats::lane::ActivityCounters;
use crate::testing::jain;
use crate::testing::scale::link::Wire;
use crate::worker::set::{Choice, Counts, Load, choose};

/// Requests of every greedy connection until windows have settled, and those that are counted
/// then: enough for rounding to be a small part of fairness.
const SETTLING: u32 = 48;
const COUNTED: u32 = 64;

/// Round trips that are waited for a share. What takes longer is told as this.
pub(super) const MAX_WAIT: u64 = 4096;

/// The whole simulation.
#[derive(Debug)]
pub(super) struct Simulation {
    plan: Plan,
    random: Rng,
    now: u64,
    lanes: Vec<Lane>,
    links: Vec<Link>,
    /// Connections that always have something to send.
    greedy: Vec<u32>,
    active: Vec<u32>,
    /// Fraction of a request that the active connections have still to make.
    owed: f64,
    to_lanes: Wire<(u32, Message)>,
    to_peers: Wire<(u32, Message)>,
    peer_tally: Arc<ActivityCounters>,
    /// Durations of active calls, in ticks.
    active_ticks: Vec<u64>,
    emptied: Vec<(u32, Message)>,
    reaped: Vec<(u32, Message)>,
}

impl Simulation {
    pub(super) fn new(plan: &Plan) -> Self {
        let mut this = Self {
            plan: *plan,
            random: Rng::with_seed(plan.seed),
            now: 0,
            lanes: Vec::new(),
            links: Vec::new(),
            greedy: Vec::new(),
            active: Vec::new(),
            owed: 0.0,
            to_lanes: Wire::new(),
            to_peers: Wire::new(),
            peer_tally: Arc::default(),
            active_ticks: Vec::new(),
            emptied: Vec::new(),
            reaped: Vec::new(),
        };
        for _ in 0..plan.connections {
            this.connect();
        }
        this.give_roles();
        this
    }

    /// Lets everything happen and be measured.
    pub(super) fn run(mut self) -> Measured {
        self.run_for(self.plan.ticks_for(SETTLING));
        self.check();
        let received: Vec<u64> = self.links.iter().map(|link| link.received).collect();
        let reaped = self.reaped_count();
        self.active_ticks.clear();
        let ticks = self.plan.ticks_for(COUNTED);
        self.run_for(ticks);
        self.check();
        let mut measured = self.measure(&received);
        let capacity = ticks as f64 * BATCH as f64 * self.lanes.len() as f64;
        measured.busy_part = (self.reaped_count() - reaped) as f64 / capacity;
        let [_, mean, _] = measured.greedy_window;
        self.welcome(&mut measured);
        measured.handover_round_trips = self.hand_over(mean);
        self.check();
        measured.limit_events = self.lanes.iter().map(|lane| lane.limit_events).sum();
        let returned = self.lanes.iter().map(|lane| lane.activity.credits_returned.value());
        measured.credits_returned = returned.sum();
        measured
    }

    /// Makes a connection where the fewest are, and gives its number.
    fn connect(&mut self) -> u32 {
        let loads = self.lanes.iter().map(|lane| Load {
            connections: lane.members.len(),
            has_room: lane.shares.quota().has_room(),
            is_worn: false,
        });
        let spread = self.plan.lane_count() as usize;
        let lane = match choose(loads, Counts { spread, max: spread }) {
            Choice::Existing(index) => index,
            Choice::New => {
                self.lanes.push(Lane::new(&self.plan.shape));
                self.lanes.len() - 1
            }
        };
        let (number, lane_number) = (count(self.links.len()), count(lane));
        let lane = &mut self.lanes[lane];
        let tallies = [&lane.activity, &self.peer_tally];
        let link = Link::connect(lane_number, &lane.shares, tallies);
        self.links.push(link.expect("a plan has lanes for all its connections"));
        lane.members.push(number);
        let is_short = lane.shares.quota().is_short();
        if is_short {
            self.reclaim(lane_number);
        }
        number
    }

    /// Chooses who is greedy and who is active.
    fn give_roles(&mut self) {
        let mut numbers: Vec<u32> = (0..self.plan.connections).collect();
        self.random.shuffle(&mut numbers);
        let (greedy, others) = numbers.split_at(self.plan.greedy_count() as usize);
        self.active = others[..self.plan.active_count().min(count(others.len())) as usize].to_vec();
        for &number in greedy {
            self.start_greedy(number);
        }
    }

    fn start_greedy(&mut self, number: u32) {
        self.links[number as usize].be_greedy();
        self.greedy.push(number);
        self.flush_peer(number);
    }

    /// Makes those idle that became greedy last.
    fn stop_greedy(&mut self, count: usize) {
        let kept = self.greedy.len().saturating_sub(count);
        for number in self.greedy.split_off(kept) {
            self.links[number as usize].be_idle();
        }
    }

    fn run_for(&mut self, ticks: u64) {
        (0..ticks).for_each(|_| self.tick());
    }

    fn tick(&mut self) {
        self.now += 1;
        let mut arrived = self.to_lanes.arrive(self.now, std::mem::take(&mut self.emptied));
        for (number, message) in arrived.drain(..) {
            let lane = self.links[number as usize].lane;
            self.lanes[lane as usize].receive(number, message);
        }
        (0..count(self.lanes.len())).for_each(|lane| self.work(lane));
        let mut arrived = self.to_peers.arrive(self.now, arrived);
        for (number, message) in arrived.drain(..) {
            let link = &mut self.links[number as usize];
            self.active_ticks.extend(link.handle_at_peer(message, self.now));
            self.flush_peer(number);
        }
        self.emptied = arrived;
        self.ask();
    }

    /// A lane's turn: all messages first, then what they let go out, once for each connection.
    fn work(&mut self, lane: u32) {
        let mut reaped = std::mem::take(&mut self.reaped);
        self.lanes[lane as usize].reap(&mut reaped);
        for &(number, message) in &reaped {
            self.links[number as usize].handle_at_server(message);
        }
        for &(number, _) in &reaped {
            self.flush_server(number);
        }
        let must_reclaim = self.lanes[lane as usize].relieve(reaped.len());
        reaped.clear();
        self.reaped = reaped;
        if must_reclaim {
            self.reclaim(lane);
        }
    }

    /// Asks the idle of a lane for what they hold.
    fn reclaim(&mut self, lane: u32) {
        for index in 0..self.lanes[lane as usize].members.len() {
            let number = self.lanes[lane as usize].members[index];
            self.links[number as usize].reclaim();
            self.flush_server(number);
        }
    }

    fn flush_server(&mut self, number: u32) {
        while let Some(message) = self.links[number as usize].next_of_server() {
            self.to_peers.send(self.now, (number, message));
        }
    }

    fn flush_peer(&mut self, number: u32) {
        while let Some(message) = self.links[number as usize].next_of_peer() {
            self.to_lanes.send(self.now, (number, message));
        }
    }

    /// Lets chance decide which of the active call now.
    fn ask(&mut self) {
        if self.active.is_empty() {
            return;
        }
        self.owed += ACTIVE_LOAD * (BATCH * self.lanes.len()) as f64;
        while self.owed >= 1.0 {
            self.owed -= 1.0;
            let number = self.active[self.random.usize(..self.active.len())];
            self.links[number as usize].ask(self.now);
            self.flush_peer(number);
        }
    }

    /// Checks that exactly one connection holds each promised slot.
    fn check(&self) {
        let mut held = vec![0_u64; self.lanes.len()];
        for link in &self.links {
            assert!(link.held() >= link.window() + RESERVE, "a window without slots");
            held[link.lane as usize] += u64::from(link.held());
        }
        for (lane, held) in self.lanes.iter().zip(held) {
            let promised = u64::from(lane.shares.quota().promised());
            assert_eq!(promised, held, "every slot is accounted for");
            assert!(promised <= u64::from(self.plan.shape.slots), "more promised than there is");
            assert!(lane.filled() as u64 <= promised, "more filled than promised");
        }
    }

    fn measure(&mut self, received: &[u64]) -> Measured {
        let shape = self.plan.shape;
        let (lanes, slot_len) = (self.lanes.len() as f64, f64::from(shape.slot_len));
        let (connections, slots) = (self.links.len() as f64, f64::from(shape.slots));
        let all_promised = self.lanes.iter().map(|lane| lane.shares.quota().promised());
        let promised: f64 = all_promised.map(f64::from).sum();
        let filled_max = self.lanes.iter().map(|lane| lane.filled_max).max().unwrap_or(0);
        let a_connection = lanes * slots / connections;
        Measured {
            lanes: count(self.lanes.len()),
            receive_bytes_per_connection: a_connection * slot_len,
            promised_bytes_per_connection: promised / connections * slot_len,
            part_of_own_queues: a_connection / f64::from(shape.credits_max + RESERVE),
            greedy_window: self.greedy_window(),
            promised_part: promised / (lanes * slots),
            filled_part_max: filled_max as f64 / slots,
            busy_part: 0.0,
            fairness: self.fairness(received),
            active_round_trips: self.round_trips([0.5, 0.99]),
            first_answer_round_trips: [0.0; 2],
            half_share_round_trips: [0.0; 2],
            handover_round_trips: None,
            limit_events: 0,
            credits_returned: 0,
        }
    }

    /// The least, mean and greatest window of the greedy.
    fn greedy_window(&self) -> [f64; 3] {
        let greedy = self.greedy.iter().map(|&number| &self.links[number as usize]);
        let windows: Vec<u32> = greedy.map(Link::window).collect();
        let [least, most] = [windows.iter().min(), windows.iter().max()]
            .map(|window| window.map_or(0.0, |window| f64::from(*window)));
        let sum: f64 = windows.iter().map(|window| f64::from(*window)).sum();
        [least, sum / windows.len().max(1) as f64, most]
    }

    /// Of the worst lane: lanes differ by how many greedy connections chance gave them.
    fn fairness(&self, before: &[u64]) -> f64 {
        let fairness = |lane: &Lane| {
            let members = lane.members.iter().map(|&number| number as usize);
            let greedy = members.filter(|&number| self.links[number].is_greedy());
            jain(greedy.map(|number| (self.links[number].received - before[number]) as f64))
        };
        self.lanes.iter().map(fairness).fold(1.0, f64::min)
    }

    fn round_trips(&mut self, parts: [f64; 2]) -> [f64; 2] {
        parts.map(|part| quantile(&mut self.active_ticks, part) / ROUND_TRIP as f64)
    }

    /// Returns true if a connection has half the window that the greedy ones have now. Checked once
    /// a round trip, because it takes the sum of theirs.
    fn has_half_a_share(&self, number: u32) -> bool {
        self.now.is_multiple_of(ROUND_TRIP as u64)
            && f64::from(self.links[number as usize].window()) >= self.greedy_window()[1] / 2.0
    }

    /// Makes newcomers, one after the other, and measures how long they wait.
    fn welcome(&mut self, measured: &mut Measured) {
        let (mut first, mut half) = (Vec::new(), Vec::new());
        for _ in 0..NEWCOMERS {
            let number = self.connect();
            let started = self.now;
            self.start_greedy(number);
            let is_answered = self.run_until(|this| this.links[number as usize].answered > 0);
            assert!(is_answered, "a newcomer got no answer in {MAX_WAIT} round trips");
            first.push(self.now - started);
            self.run_until(|this| this.has_half_a_share(number));
            half.push(self.now - started);
            self.stop_greedy(1);
        }
        let round_trips =
            |values: &mut [u64]| [0.5, 1.0].map(|part| quantile(values, part) / ROUND_TRIP as f64);
        measured.first_answer_round_trips = round_trips(&mut first);
        measured.half_share_round_trips = round_trips(&mut half);
    }

    /// Lets the greedy become idle and as many others greedy, and measures how long it takes until
    /// those have half the windows.
    fn hand_over(&mut self, mean: f64) -> Option<f64> {
        let count = self.greedy.len();
        let busy: HashSet<u32> = self.greedy.iter().chain(&self.active).copied().collect();
        let idle = (0..self.plan.connections).filter(|number| !busy.contains(number));
        let mut idle: Vec<u32> = idle.collect();
        self.random.shuffle(&mut idle);
        idle.truncate(count);
        if idle.len() < count || count == 0 {
            return None;
        }
        self.stop_greedy(count);
        let started = self.now;
        idle.iter().for_each(|&number| self.start_greedy(number));
        self.run_until(|this| {
            this.now.is_multiple_of(ROUND_TRIP as u64) && this.greedy_window()[1] >= mean / 2.0
        });
        Some((self.now - started) as f64 / ROUND_TRIP as f64)
    }

    /// Goes on until something has come; false when it has not in time.
    fn run_until(&mut self, is_done: impl Fn(&Self) -> bool) -> bool {
        let end = self.now + MAX_WAIT * ROUND_TRIP as u64;
        while !is_done(self) && self.now < end {
            self.tick();
        }
        self.now < end
    }

    fn reaped_count(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.reaped).sum()
    }
}

/// A number of lanes or connections, of which there are a few hundred thousand.
fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
