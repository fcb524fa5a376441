//! A snapshot of the endpoints, in which callers pick without a lock.
//!
//! A hash ring says which endpoint a key belongs to, so that few keys move when endpoints come or
//! go.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use super::config::Policy;
use super::endpoint::EndpointId;
use super::load::Load;

/// The part of its share that an endpoint has at the start of its rise: a tenth, as Envoy's
/// `min_weight_percent`. With none at all it would never warm up.
const FIRST_PART: f32 = 0.1;

/// The longest schedule of a round robin. Greater sums of weights are scaled down to it, by which
/// no endpoint loses its turn.
const MAX_SCHEDULE: u64 = 4096;

/// Points of the ring for each unit of weight. With 160 the shares of equal endpoints differ by
/// about a tenth (ketama uses as many).
const POINTS: u32 = 160;

/// The longest ring: 64 Ki points of 16 bytes. Heavier lists have fewer points for each weight.
const MAX_POINTS: u64 = 1 << 16;

/// An endpoint that may be picked, with what its channel keeps for it.
#[derive(Debug)]
pub struct Candidate<T> {
    /// Its name.
    pub id: EndpointId,
    /// The channel's handle for the endpoint.
    pub handle: T,
    /// Load of its calls. The caller of [`Picker::pick`] records the call here.
    pub load: Arc<Load>,
    pub(super) weight: u16,
    /// Time at which it became ready. Its slow start counts from there.
    pub(super) ready_since: Instant,
}

/// The result of a pick.
#[derive(Debug)]
pub enum Pick<'a, T> {
    /// This one.
    Endpoint {
        /// The endpoint.
        candidate: &'a Candidate<T>,
        /// True if it is ejected, and picked because no other endpoint lives.
        is_last_resort: bool,
    },
    /// None yet: an endpoint may be connected soon.
    Wait,
    /// None: there is no endpoint, or no attempt to connect has succeeded.
    Fail,
}

/// The first tier that has any endpoints, and only that: what is not here cannot be picked.
#[derive(Debug)]
pub(super) enum Tier<T> {
    Healthy(Box<[Candidate<T>]>),
    Ejected(Box<[Candidate<T>]>),
    Pending,
    Failed,
}

/// A way to choose among candidates.
#[derive(Debug)]
enum Choice {
    LeastLoaded,
    /// The candidates' indices in the order in which they have their turns.
    RoundRobin {
        schedule: Box<[u32]>,
        turn: AtomicUsize,
    },
    First,
    /// For each endpoint of the ring its index among the candidates, if it is one.
    Hash {
        ring: Arc<Ring>,
        candidates: Box<[Option<u32>]>,
    },
}

/// A snapshot of the endpoints of a channel.
#[derive(Debug)]
pub struct Picker<T> {
    tier: Tier<T>,
    choice: Choice,
    /// Length of the rise of a new endpoint's share; zero without one.
    slow_start: Duration,
}

impl<T> Picker<T> {
    /// A picker among the endpoints of `tier`. `ring` holds the endpoints with these names; it is
    /// used by [`Policy::ConsistentHash`] alone. `turn` is where a round robin begins.
    pub(super) fn new(
        tier: Tier<T>,
        policy: Policy,
        slow_start: Duration,
        (ring, ids): (&Arc<Ring>, &[EndpointId]),
        turn: usize,
    ) -> Self {
        let candidates = match &tier {
            Tier::Healthy(candidates) | Tier::Ejected(candidates) => &**candidates,
            Tier::Pending | Tier::Failed => &[],
        };
        let choice = match policy {
            Policy::LeastLoaded => Choice::LeastLoaded,
            Policy::PickFirst => Choice::First,
            Policy::RoundRobin => {
                let weights: Vec<_> = candidates.iter().map(|candidate| candidate.weight).collect();
                Choice::RoundRobin { schedule: schedule(&weights), turn: AtomicUsize::new(turn) }
            }
            Policy::ConsistentHash => {
                let index_of = |id: &EndpointId| {
                    (0..).zip(candidates).find(|(_, it)| it.id == *id).map(|(index, _)| index)
                };
                let candidates = ids.iter().map(index_of).collect();
                Choice::Hash { ring: Arc::clone(ring), candidates }
            }
        };
        Self { tier, choice, slow_start }
    }

    /// Picks the endpoint of a call.
    ///
    /// `random` are 64 bits that no other pick has, `key` is what [`Policy::ConsistentHash`]
    /// hashes. Endpoints in `tried` are left out, with all their connections, while the tier has
    /// another: a call that is retried goes elsewhere, if there is an elsewhere.
    ///
    /// The pick changes nothing but the turn of a round robin; [`Load::start`] counts the call.
    pub fn pick(
        &self,
        random: u64,
        key: Option<u64>,
        tried: &[EndpointId],
        now: Instant,
    ) -> Pick<'_, T> {
        let (candidates, is_last_resort) = match &self.tier {
            Tier::Healthy(candidates) => (candidates, false),
            Tier::Ejected(candidates) => (candidates, true),
            Tier::Pending => return Pick::Wait,
            Tier::Failed => return Pick::Fail,
        };
        let candidate = match self.retried(candidates, random, key, tried, now) {
            Some(candidate) => candidate,
            None => self.choose(candidates, random, key, now),
        };
        Pick::Endpoint { candidate, is_last_resort }
    }

    /// Returns the name of the policy, the number of endpoints that could be picked, and the number
    /// of calls that are in flight at `candidate`.
    pub(crate) fn describe(&self, candidate: &Candidate<T>) -> (&'static str, usize, u32) {
        let policy = match self.choice {
            Choice::LeastLoaded => "least_loaded",
            Choice::RoundRobin { .. } => "round_robin",
            Choice::First => "pick_first",
            Choice::Hash { .. } => "consistent_hash",
        };
        let candidates = match &self.tier {
            Tier::Healthy(candidates) | Tier::Ejected(candidates) => candidates.len(),
            Tier::Pending | Tier::Failed => 0,
        };
        (policy, candidates, candidate.load.in_flight())
    }

    /// The ids of those that may be picked.
    pub(super) fn is_candidate(&self, id: EndpointId) -> bool {
        match &self.tier {
            Tier::Healthy(candidates) | Tier::Ejected(candidates) => {
                candidates.iter().any(|candidate| candidate.id == id)
            }
            Tier::Pending | Tier::Failed => false,
        }
    }

    /// Returns true if ejected endpoints are picked.
    pub(super) fn is_last_resort(&self) -> bool {
        matches!(self.tier, Tier::Ejected(_))
    }

    /// A pick among those that were not tried; `None` when none was tried, or all were.
    fn retried<'a>(
        &self,
        candidates: &'a [Candidate<T>],
        random: u64,
        key: Option<u64>,
        tried: &[EndpointId],
        now: Instant,
    ) -> Option<&'a Candidate<T>> {
        if tried.is_empty() {
            return None;
        }
        let is_new = |candidate: &&Candidate<T>| {
            !tried.iter().any(|tried| tried.is_of_same_endpoint(candidate.id))
        };
        if let (Choice::Hash { ring, candidates: indices }, Some(key)) = (&self.choice, key) {
            let by_key = ring.preferred(key).filter_map(|index| indices[index as usize]);
            return by_key.map(|index| &candidates[index as usize]).find(is_new);
        }
        let new: Vec<_> = candidates.iter().filter(is_new).collect();
        match (&self.choice, new.len()) {
            (_, 0) => None,
            (Choice::First, _) => Some(new[0]),
            (Choice::LeastLoaded, 2..) => Some(self.less_loaded(&new, random, now)),
            (_, count) => Some(new[below(random_half(random), count)]),
        }
    }

    fn choose<'a>(
        &self,
        candidates: &'a [Candidate<T>],
        random: u64,
        key: Option<u64>,
        now: Instant,
    ) -> &'a Candidate<T> {
        match &self.choice {
            Choice::First => &candidates[0],
            Choice::LeastLoaded if candidates.len() == 1 => &candidates[0],
            Choice::LeastLoaded => {
                let (one, other) = two_of(random, candidates.len());
                self.less_loaded(&[&candidates[one], &candidates[other]], 0, now)
            }
            Choice::RoundRobin { schedule, turn } => {
                self.next_turn(candidates, schedule, turn, random, now)
            }
            Choice::Hash { ring, candidates: indices } => {
                let by_key = |key| ring.preferred(key).find_map(|index| indices[index as usize]);
                match key.and_then(by_key) {
                    Some(index) => &candidates[index as usize],
                    None => &candidates[below(random_half(random), candidates.len())],
                }
            }
        }
    }

    /// The less loaded of two that are drawn by `random`.
    fn less_loaded<'a>(
        &self,
        candidates: &[&'a Candidate<T>],
        random: u64,
        now: Instant,
    ) -> &'a Candidate<T> {
        let (one, other) = two_of(random, candidates.len());
        let (one, other) = (candidates[one], candidates[other]);
        // Without an answer yet an endpoint is taken to be as fast as the one beside it.
        let latency = |of: &Candidate<T>, or: &Candidate<T>| {
            of.load.latency_us(now).or_else(|| or.load.latency_us(now)).unwrap_or(1.0)
        };
        let cost = |of: &Candidate<T>, beside: &Candidate<T>| {
            of.load.score(latency(of, beside), now) / self.share(of, now)
        };
        if cost(other, one) < cost(one, other) { other } else { one }
    }

    /// The next of a round robin. An endpoint in its slow start passes its turn on as often as its
    /// part of a share says, but each has some.
    fn next_turn<'a>(
        &self,
        candidates: &'a [Candidate<T>],
        schedule: &[u32],
        turn: &AtomicUsize,
        random: u64,
        now: Instant,
    ) -> &'a Candidate<T> {
        let next = || {
            let turn = turn.fetch_add(1, Relaxed);
            &candidates[schedule[turn % schedule.len()] as usize]
        };
        let mut candidate = next();
        let mut draws = random;
        for _ in 1..candidates.len() {
            #[expect(clippy::cast_precision_loss, reason = "a chance")]
            let draw = (draws >> 40) as f32 / (1_u64 << 24) as f32;
            if draw < self.part(candidate, now) {
                break;
            }
            draws = draws.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            candidate = next();
        }
        candidate
    }

    /// The share of a candidate beside the others'.
    fn share(&self, candidate: &Candidate<T>, now: Instant) -> f32 {
        f32::from(candidate.weight) * self.part(candidate, now)
    }

    /// The part of its share that a candidate has in its slow start, from a tenth to 1.
    fn part(&self, candidate: &Candidate<T>, now: Instant) -> f32 {
        let age = now.saturating_duration_since(candidate.ready_since);
        if age >= self.slow_start {
            return 1.0;
        }
        (age.as_secs_f32() / self.slow_start.as_secs_f32()).max(FIRST_PART)
    }
}

/// Endpoints on a ring of 2^64 places.
#[derive(Debug, Default)]
pub(super) struct Ring {
    /// Sorted by place. The index is that of the list that the ring was built from.
    points: Box<[(u64, u32)]>,
}

impl Ring {
    /// The ring of endpoints with these addresses, numbers of their connections, and weights.
    pub(super) fn new<'a>(endpoints: impl Iterator<Item = (&'a str, u16, u16)> + Clone) -> Self {
        let total: u64 = endpoints.clone().map(|(.., weight)| u64::from(weight)).sum();
        let per_weight = f64::from(POINTS).min(MAX_POINTS as f64 / total.max(1) as f64);
        let mut points = Vec::new();
        for (index, (address, connection, weight)) in (0..).zip(endpoints) {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "at most 2^24"
            )]
            let count = ((f64::from(weight) * per_weight) as u32).max(1);
            // The first connection has the places that an endpoint with one has.
            let seed = hash(address.as_bytes()) ^ (u64::from(connection) << 48);
            points.extend((0..count).map(|point| (mix(seed ^ mix(u64::from(point))), index)));
        }
        points.sort_unstable();
        Self { points: points.into_boxed_slice() }
    }

    /// The endpoints in the order in which `key` prefers them. An endpoint comes up more than once.
    fn preferred(&self, key: u64) -> impl Iterator<Item = u32> {
        // Mixed: keys that users count up lie side by side.
        let place = mix(key);
        let start = self.points.partition_point(|&(at, _)| at < place);
        let (before, after) = self.points.split_at(start);
        after.iter().chain(before).map(|&(_, index)| index)
    }
}

/// A number below `count` from 32 random bits, without a division.
fn below(random: u32, count: usize) -> usize {
    let count = u64::try_from(count).unwrap_or(u64::MAX) & 0xffff_ffff;
    usize::try_from((u64::from(random) * count) >> 32).unwrap_or(0)
}

#[expect(clippy::cast_possible_truncation, reason = "the lower half")]
fn random_half(random: u64) -> u32 {
    random as u32
}

/// Two numbers below `count` that differ, if `count` is at least 2.
fn two_of(random: u64, count: usize) -> (usize, usize) {
    let one = below(random_half(random), count);
    let step = below(random_half(random >> 32), count.saturating_sub(1));
    let other = one + 1 + step;
    (one, if other >= count { other - count } else { other })
}

/// The order in which endpoints of these weights have their turns: each as often as its weight, and
/// as evenly as can be (smooth weighted round robin, as nginx has it).
fn schedule(weights: &[u16]) -> Box<[u32]> {
    let total: u64 = weights.iter().map(|&weight| u64::from(weight)).sum();
    if weights.windows(2).all(|pair| pair[0] == pair[1]) {
        return (0..).take(weights.len()).collect();
    }
    let divisor = weights.iter().fold(0, |a, &b| gcd(a, u64::from(b))).max(1);
    let scale = divisor.max(total.div_ceil(MAX_SCHEDULE));
    let weights: Vec<i64> = weights
        .iter()
        .map(|&weight| i64::try_from((u64::from(weight) / scale).max(1)).unwrap_or(1))
        .collect();
    let total: i64 = weights.iter().sum();
    let mut credit = vec![0; weights.len()];
    let turns = (0..total).map(|_| {
        credit.iter_mut().zip(&weights).for_each(|(credit, weight)| *credit += weight);
        let next = (0..credit.len()).max_by_key(|&index| (credit[index], credit.len() - index));
        let next = next.unwrap_or(0);
        credit[next] -= total;
        u32::try_from(next).unwrap_or(0)
    });
    turns.collect()
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// FNV-1a. Addresses come from the resolver, and a bad share is all that an odd one can cause.
fn hash(bytes: &[u8]) -> u64 {
    let fold = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, fold)
}

/// The finalizer of splitmix64: every bit of the input changes half of the output.
fn mix(mut value: u64) -> u64 {
    value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
#[path = "picker_tests.rs"]
mod tests;
