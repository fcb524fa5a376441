//! A snapshot of the endpoints, in which callers pick without a lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use super::config::{Policy, SlowStart};
use super::endpoint::EndpointId;
use super::load::Load;
use super::ring::Ring;

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
    slow_start: SlowStart,
}

/// The longest schedule of a round robin. Greater sums of weights are scaled down to it, by which
/// no endpoint loses its turn.
const MAX_SCHEDULE: u64 = 4096;

impl<T> Picker<T> {
    /// A picker among the endpoints of `tier`. `ring` holds the endpoints with these names; it is
    /// used by [`Policy::ConsistentHash`] alone. `turn` is where a round robin begins.
    pub(super) fn new(
        tier: Tier<T>,
        policy: Policy,
        slow_start: SlowStart,
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
        let window = self.slow_start.window;
        let age = now.saturating_duration_since(candidate.ready_since);
        if age >= window {
            return 1.0;
        }
        (age.as_secs_f32() / window.as_secs_f32()).max(SlowStart::FIRST_PART)
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

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_schedule_gives_turns_by_weight_and_evenly() {
        assert_eq!(*schedule(&[5, 5, 5]), [0, 1, 2]);
        assert_eq!(*schedule(&[2, 1, 1]), [0, 1, 2, 0]);
        assert_eq!(*schedule(&[50, 10]), [0, 0, 0, 1, 0, 0]);
        assert!(schedule(&[]).is_empty());
    }

    #[test]
    fn a_schedule_is_bounded_and_leaves_none_out() {
        let mut weights = vec![1; 1000];
        weights[0] = u16::MAX;
        let turns = schedule(&weights);
        assert!(turns.len() <= 4096 + weights.len());
        assert!((0..1000).all(|index| turns.contains(&index)));
    }

    #[test]
    fn two_draws_differ_and_reach_all_pairs() {
        for count in 2..9 {
            let mut seen = HashSet::new();
            for draw in 0..1000_u64 {
                let random = draw.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let (one, other) = two_of(random, count);
                assert!(one < count && other < count && one != other, "{one}, {other} of {count}");
                seen.insert((one, other));
            }
            assert_eq!(seen.len(), count * (count - 1), "{seen:?}");
        }
    }

    const WINDOW: Duration = Duration::from_secs(10);

    /// A picker of endpoints with these weights that are ready since then, all with a slow start.
    fn picker(policy: Policy, endpoints: &[(u16, Instant)]) -> Picker<usize> {
        let candidate = |(handle, &(weight, ready_since)): (usize, &(u16, Instant))| Candidate {
            id: EndpointId { endpoint: handle as u64, connection: 0 },
            handle,
            load: Arc::new(Load::new(WINDOW, ready_since)),
            weight,
            ready_since,
        };
        let candidates = endpoints.iter().enumerate().map(candidate).collect();
        let ring = Arc::default();
        Picker::new(Tier::Healthy(candidates), policy, SlowStart::new(WINDOW), (&ring, &[]), 0)
    }

    fn load(picker: &Picker<usize>, index: usize) -> &Load {
        let Tier::Healthy(candidates) = &picker.tier else { panic!("{:?}", picker.tier) };
        &candidates[index].load
    }

    fn picked(pick: &Pick<'_, usize>) -> usize {
        let Pick::Endpoint { candidate, is_last_resort: false } = pick else { panic!("{pick:?}") };
        candidate.handle
    }

    /// Returns the number of picks of the second endpoint, of 10,000.
    fn share_of_second(picker: &Picker<usize>, tried: &[EndpointId], now: Instant) -> usize {
        let mut random = fastrand::Rng::with_seed(7);
        let picks = (0..10_000).map(|_| picked(&picker.pick(random.u64(..), None, tried, now)));
        picks.filter(|handle| *handle == 1).count()
    }

    #[test]
    fn load_counts_by_weight() {
        let now = Instant::now();
        let picker = picker(Policy::LeastLoaded, &[(1, now), (3, now)]);
        let later = now + WINDOW;
        load(&picker, 0).start();
        // One call on a weight of 1 is more than two on a weight of 3, and less than six.
        (0..2).for_each(|_| load(&picker, 1).start());
        assert_eq!(share_of_second(&picker, &[], later), 10_000);
        (0..4).for_each(|_| load(&picker, 1).start());
        assert_eq!(share_of_second(&picker, &[], later), 0);
    }

    #[test]
    fn an_endpoint_that_has_just_come_looks_more_loaded() {
        let (now, new) = (Instant::now(), Instant::now() + WINDOW);
        let picker = picker(Policy::LeastLoaded, &[(1, now), (1, new)]);
        (0..8).for_each(|_| load(&picker, 0).start());
        assert_eq!(share_of_second(&picker, &[], new), 0, "9 are less than a tenth's 10");
        assert_eq!(share_of_second(&picker, &[], new + WINDOW / 2), 10_000);
        (0..2).for_each(|_| load(&picker, 0).start());
        assert_eq!(share_of_second(&picker, &[], new), 10_000, "11 are more");
    }

    #[test]
    fn turns_grow_with_the_time_since_an_endpoint_came() {
        let (now, new) = (Instant::now(), Instant::now() + WINDOW);
        let picker = picker(Policy::RoundRobin, &[(1, now), (1, new)]);
        // A turn that is passed on is the other's, beside its own.
        for (age, expected) in
            [(Duration::ZERO, 909), (WINDOW / 2, 3_333), (WINDOW * 4 / 5, 4_444), (WINDOW, 5_000)]
        {
            let share = share_of_second(&picker, &[], new + age);
            assert!(share.abs_diff(expected) < 200, "{share} picks after {age:?}");
        }
    }

    #[test]
    fn a_retry_goes_to_the_less_loaded_of_the_others() {
        let now = Instant::now();
        let picker = picker(Policy::LeastLoaded, &[(1, now), (1, now), (1, now)]);
        let tried = [EndpointId { endpoint: 0, connection: 7 }];
        load(&picker, 2).start();
        assert_eq!(share_of_second(&picker, &tried, now + WINDOW), 10_000);
        // Drawn twice at random, the other one would have some of its share.
        (0..2).for_each(|_| load(&picker, 1).start());
        assert_eq!(share_of_second(&picker, &tried, now + WINDOW), 0);
    }
}
