//! Sums, bounds and the reserve of a quota, whatever is taken and given back.

use proptest::prelude::*;

use super::*;

const DYNAMIC: Bound = Bound::Dynamic { floor: 0 };

/// Takes one by one until it is refused.
fn fill(share: &Arc<Share<u32>>) -> Vec<Charge<u32>> {
    std::iter::from_fn(|| share.try_take(1).ok()).collect()
}

#[test]
fn a_quota_and_a_bound_may_change_while_something_is_taken() {
    let quota = Quota::new(10);
    let share = quota.share(1, Bound::Fixed(u64::MAX));
    let mut taken = fill(&share);
    assert_eq!(taken.len(), 10);
    quota.set_max(4);
    taken.truncate(4);
    assert!(share.try_take(1).is_err(), "what was taken before counts");
    quota.set_max(6);
    taken.append(&mut fill(&share));
    assert_eq!((taken.len(), quota.total()), (6, 6));
    taken.truncate(1);
    assert_eq!(quota.share(1, Bound::Fixed(2)).key(), &1);
    assert_eq!(fill(&share).len(), 1, "its share is 2 now");
}

#[test]
fn a_bound_comes_back_as_it_was_set() {
    for amount in [0, 1, FIXED - 2, u64::MAX] {
        for bound in [Bound::Fixed(amount), Bound::Dynamic { floor: amount }] {
            assert_eq!(AtomicBound::new(bound).get(), bound);
        }
    }
}

#[test]
fn one_greedy_holder_gets_half_and_leaves_as_much_for_the_next() {
    let quota = Quota::new(1000);
    let [greedy, late] = [1, 2].map(|key| quota.share(key, DYNAMIC));
    let taken = fill(&greedy);
    assert_eq!((taken.len(), quota.largest()), (500, Some((1, 500))));
    assert_eq!(fill(&late).len(), 250);
    drop(taken);
    assert_eq!((quota.total(), quota.largest()), (0, None));
}

#[test]
fn greedy_holders_that_take_turns_get_equal_parts_and_leave_one() {
    for count in [2u32, 3, 9] {
        let quota = Quota::new(1000);
        let shares: Vec<_> = (0..count).map(|key| quota.share(key, DYNAMIC)).collect();
        let mut taken = Vec::new();
        loop {
            let before = taken.len();
            taken.extend(shares.iter().filter_map(|share| share.try_take(1).ok()));
            if taken.len() == before {
                break;
            }
        }
        let part = 1000 / u64::from(count + 1);
        assert!(shares.iter().all(|share| share.held().abs_diff(part) <= 1), "{count}");
    }
}

#[test]
fn a_floor_is_had_while_there_is_any_and_a_fixed_bound_is_fixed() {
    let quota = Quota::new(100);
    let floored = quota.share(1, Bound::Dynamic { floor: 80 });
    let fixed = quota.share(2, Bound::Fixed(70));
    let kept = fill(&floored);
    assert_eq!((kept.len(), fill(&fixed).len()), (80, 20));
    drop(kept);
    assert_eq!(fill(&fixed).len(), 70);
    assert_eq!(fill(&quota.share(3, Bound::Fixed(u64::MAX))).len(), 100);
}

#[test]
fn the_reserve_is_for_holders_within_their_floor() {
    let quota = Quota::with_reserve(100, NonZeroU64::new(5).unwrap());
    let share = |key| quota.share(key, Bound::Dynamic { floor: 10 });
    let [greedy, late, last] = [1, 2, 3].map(share);
    let taken = fill(&greedy);
    assert_eq!((taken.len(), fill(&late).len()), (40, 20), "as of a quota of 80");
    let floors = [fill(&late), fill(&last)];
    assert_eq!(floors.map(|taken| taken.len()), [20, 10], "half of the rest each");
    let existing = greedy.take(40);
    assert_eq!(quota.total(), 80);
    let floors = [fill(&late), fill(&last)];
    assert_eq!(floors.map(|taken| taken.len()), [10, 10]);
    drop((taken, existing));
}

#[test]
fn what_can_wait_leaves_half_to_what_cannot() {
    let quota = Quota::new(1000);
    let [one, other] = [1, 2].map(|key| quota.share(key, DYNAMIC));
    let taken = one.try_take(300).unwrap();
    assert!(other.admits_spare(200) && !other.admits_spare(201) && other.admits(201));
    assert!(!other.admits_spare(u64::MAX));
    drop(taken);
}

#[test]
fn a_name_is_forgotten_with_the_last_that_uses_it() {
    let quota = Quota::new(100);
    let charge = quota.share(1, DYNAMIC).try_take(7).unwrap();
    assert_eq!(quota.share(1, DYNAMIC).held(), 7, "the charge keeps it");
    drop(charge);
    assert_eq!(quota.share_count(), 0);
}

#[test]
fn a_refused_attempt_of_one_holder_is_none_of_another() {
    let quota = Quota::new(1000);
    let [huge, small] = [1, 2].map(|key| quota.share(key, DYNAMIC));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            (0..100_000).for_each(|_| assert!(huge.try_take(999).is_err()));
        });
        scope.spawn(|| {
            (0..100_000).for_each(|_| drop(small.try_take(400).unwrap()));
        });
    });
    assert_eq!((quota.total(), huge.held(), small.held()), (0, 0, 0));
}

#[test]
fn no_amount_overflows() {
    let quota = Quota::new(u64::MAX);
    let share = quota.share(1, Bound::Fixed(u64::MAX));
    let charge = share.try_take(u64::MAX).unwrap();
    assert!(share.try_take(1).is_err() && !share.admits(1));
    drop(charge);
    let small = Quota::new(10).share(1, DYNAMIC);
    assert!(small.try_take(u64::MAX).is_err() && !small.admits(u64::MAX));
}

#[derive(Debug, Clone)]
enum Step {
    TryTake { key: u32, amount: u64 },
    Take { key: u32, amount: u64 },
    Set { at: usize, amount: u64 },
    Drop { at: usize },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0u32..4, 0u64..60).prop_map(|(key, amount)| Step::TryTake { key, amount }),
        1 => (0u32..4, 0u64..60).prop_map(|(key, amount)| Step::Take { key, amount }),
        1 => (any::<usize>(), 0u64..60).prop_map(|(at, amount)| Step::Set { at, amount }),
        3 => any::<usize>().prop_map(|at| Step::Drop { at }),
    ];
    prop::collection::vec(step, 0..200)
}

proptest! {
    /// Whatever happens in whatever order: the sums are right, no holder has more than its
    /// bound allowed when it got it, and in the end all is as it was.
    #[test]
    fn what_is_held_is_what_was_taken_and_not_given_back(
        steps in steps(),
        max in 0u64..300,
        floor in 0u64..100,
        reserve_part in prop::option::of(1u64..10),
    ) {
        let quota = match reserve_part.and_then(NonZeroU64::new) {
            Some(part) => Quota::with_reserve(max, part),
            None => Quota::new(max),
        };
        let bound = Bound::Dynamic { floor };
        let lendable = max - reserve_part.map_or(0, |part| max / part);
        prop_assert_eq!(quota.lendable(), lendable);
        let mut charges: Vec<Charge<u32>> = Vec::new();
        for step in steps {
            match step {
                Step::TryTake { key, amount } => {
                    let share = quota.share(key, bound);
                    let is_admitted = share.admits(amount);
                    let taken = share.try_take(amount);
                    prop_assert_eq!(taken.is_ok(), is_admitted);
                    if taken.is_ok() {
                        let (held, total) = (share.held(), quota.total());
                        prop_assert!(total <= max);
                        prop_assert!(held <= floor || held + total <= lendable);
                    }
                    charges.extend(taken);
                }
                Step::Take { key, amount } => {
                    charges.push(quota.share(key, bound).take(amount));
                }
                Step::Set { at, amount } if !charges.is_empty() => {
                    let at = at % charges.len();
                    charges[at].set(amount);
                }
                Step::Drop { at } if !charges.is_empty() => {
                    drop(charges.swap_remove(at % charges.len()));
                }
                Step::Set { .. } | Step::Drop { .. } => {}
            }
            prop_assert_eq!(quota.total(), charges.iter().map(Charge::amount).sum::<u64>());
            for key in 0..4 {
                let of_key = charges.iter().filter(|charge| *charge.share.key() == key);
                let held = quota.share(key, bound).held();
                prop_assert_eq!(held, of_key.map(Charge::amount).sum::<u64>());
            }
        }
        charges.clear();
        prop_assert_eq!((quota.total(), quota.share_count()), (0, 0));
    }
}

fn key(peer: &str) -> PeerKey {
    PeerKey::new(Some(peer.parse().unwrap()))
}

#[test]
fn a_host_is_one_peer_whatever_address_of_its_network_it_takes() {
    assert_eq!(key("192.0.2.1:1"), key("192.0.2.1:2"));
    assert_eq!(key("192.0.2.1:1"), key("[::ffff:192.0.2.1]:1"));
    assert_ne!(key("192.0.2.1:1"), key("192.0.2.2:1"));
    assert_eq!(key("[2001:db8::1]:1"), key("[2001:db8::ffff:1:2:3]:9"));
    assert_ne!(key("[2001:db8::1]:1"), key("[2001:db8:0:1::1]:1"));
    assert_eq!(PeerKey::new(None), PeerKey::Local);
}

#[test]
fn its_name_is_an_address() {
    assert_eq!(key("192.0.2.1:1").to_string(), "192.0.2.1");
    assert_eq!(key("[2001:db8:0:1::1]:1").to_string(), "2001:db8:0:1::/64");
}
