//! Picks among tiers, weights and kinds of load, and the keys of a ring.

use std::collections::HashSet;

use super::*;

const WINDOW: Duration = Duration::from_secs(10);
const KEYS: u64 = 10_000;

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
    Picker::new(Tier::Healthy(candidates), policy, WINDOW, (&ring, &[]), 0)
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

fn addresses(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("tcp://10.0.0.{number}:7000")).collect()
}

fn ring(addresses: &[String]) -> Ring {
    Ring::new(addresses.iter().map(|address| (address.as_str(), 0, 1)))
}

fn owner(ring: &Ring, key: u64) -> u32 {
    ring.preferred(key).next().expect("the ring has endpoints")
}

#[test]
fn shares_of_equal_endpoints_are_alike() {
    let ring = ring(&addresses(10));
    let mut shares = [0_u64; 10];
    (0..KEYS).for_each(|key| shares[owner(&ring, key) as usize] += 1);
    assert!(shares.iter().all(|share| (600..1500).contains(share)), "{shares:?}");
}

#[test]
fn a_weight_is_a_share() {
    let ring = Ring::new([("a", 0, 1_u16), ("b", 0, 3)].into_iter());
    let heavy = (0..KEYS).filter(|&key| owner(&ring, key) == 1).count();
    assert!((6500..8500).contains(&heavy), "{heavy}");
}

#[test]
fn the_keys_of_others_stay_where_one_endpoint_goes() {
    let all = addresses(10);
    let (before, after) = (ring(&all), ring(&all[..9]));
    for key in 0..KEYS {
        let owner_before = owner(&before, key);
        if owner_before != 9 {
            assert_eq!(owner(&after, key), owner_before, "key {key}");
        }
    }
}

#[test]
fn every_endpoint_comes_up_and_a_long_list_is_bounded() {
    let ring = Ring::new(addresses(300).iter().map(|address| (address.as_str(), 0, u16::MAX)));
    assert!(ring.points.len() <= 65_536 + 300);
    let mut seen: Vec<u32> = ring.preferred(7).collect();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 300);
    assert_eq!(Ring::default().preferred(7).next(), None);
}

/// Clients that are updated one after the other have to agree on the owner of a key.
#[test]
fn places_are_those_of_the_published_functions() {
    assert_eq!(hash(b""), 0xcbf2_9ce4_8422_2325);
    assert_eq!(hash(b"a"), 0xaf63_dc4c_8601_ec8c);
    assert_eq!(hash(b"foobar"), 0x8594_4171_f739_67e8);
    assert_eq!(mix(0), 0xe220_a839_7b1d_cdaf);
    assert_eq!(mix(1_234_567), 6_457_827_717_110_365_317);
}
