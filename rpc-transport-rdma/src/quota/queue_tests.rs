//! The order of service, and that every claim is served that can be.

use proptest::prelude::*;

use super::*;

const DYNAMIC: Bound = Bound::Dynamic { floor: 0 };

fn claim(holder: u32, amount: u64) -> Claim<u32> {
    Claim { holder, bound: DYNAMIC, amount }
}

impl FairQueue<u32> {
    /// Takes one by one until it is refused; gives how many.
    fn fill(&mut self, holder: u32) -> u64 {
        (0..).take_while(|_| self.try_take(claim(holder, 1))).count() as u64
    }

    fn wait(&mut self, holder: u32, amount: u64) -> Ticket<u32> {
        self.join(claim(holder, amount)).expect("there is as much")
    }

    /// The holders that are served now, in order.
    fn serve(&mut self) -> Vec<u32> {
        std::iter::from_fn(|| self.next()).map(|(ticket, _)| ticket.holder).collect()
    }
}

#[test]
fn a_greedy_holder_gets_half_and_a_later_one_half_of_the_rest() {
    let mut queue = FairQueue::new(16);
    assert_eq!((queue.fill(1), queue.fill(2)), (8, 4));
    queue.wait(1, 1);
    assert_eq!(queue.serve(), [0; 0]);
    assert_eq!(queue.fill(3), 2, "the greedy holder waits for its own share");
}

#[test]
fn a_holder_that_has_nothing_may_have_more_than_its_share() {
    let mut queue = FairQueue::new(16);
    assert!(queue.try_take(claim(1, 15)));
    assert!(!queue.try_take(claim(1, 1)));
    assert!(queue.try_take(claim(2, 1)));
    assert!(!queue.try_take(claim(3, 1)), "nothing is left");
    assert_eq!(queue.join(claim(3, 17)), None, "there is never as much");
}

#[test]
fn small_claims_do_not_overtake_an_empty_holders_long_one() {
    let mut queue = FairQueue::new(16);
    assert!(queue.try_take(claim(1, 4)) && queue.try_take(claim(2, 4)));
    queue.wait(3, 12);
    queue.give_back(1, 4);
    assert!(queue.serve() == [3] && queue.total() == 16);
    queue.wait(1, 1);
    queue.give_back(2, 4);
    queue.wait(2, 16);
    assert_eq!(queue.serve(), [1]);
    assert!(!queue.try_take(claim(4, 1)), "it has asked after the second holder");
    queue.give_back(3, 12);
    queue.give_back(1, 1);
    assert_eq!(queue.serve(), [2]);
}

#[test]
fn a_poorer_holder_is_served_before_an_earlier_richer_one() {
    let mut queue = FairQueue::new(16);
    assert_eq!((queue.fill(1), queue.fill(2)), (8, 4));
    queue.wait(1, 1);
    queue.wait(2, 1);
    queue.give_back(2, 1);
    assert_eq!(queue.serve(), [2]);
    queue.give_back(1, 4);
    assert_eq!(queue.serve(), [1], "its own share has room again");
}

#[test]
fn claims_of_one_holder_are_served_in_order() {
    let mut queue = FairQueue::new(16);
    assert!(queue.try_take(claim(1, 6)));
    let tickets = [queue.wait(1, 3), queue.wait(1, 1)];
    assert_eq!((queue.next(), queue.try_take(claim(1, 1))), (None, false));
    queue.give_back(1, 6);
    let served = [queue.next(), queue.next()].map(|served| served.map(|(ticket, _)| ticket));
    assert_eq!(served, tickets.map(Some));
}

#[test]
fn a_claim_that_leaves_stands_in_no_way() {
    let mut queue = FairQueue::new(16);
    assert!(queue.try_take(claim(1, 8)));
    let long = queue.wait(2, 16);
    let short = queue.wait(3, 1);
    assert_eq!(queue.next(), None);
    assert!(queue.leave(long) && !queue.leave(long));
    assert_eq!(queue.next(), Some((short, 1)));
    assert!(!queue.leave(short), "it is served");
    queue.give_back(3, 1);
    queue.give_back(1, 8);
    assert_eq!((queue.total(), queue.holders.len(), queue.heads.len()), (0, 0, 0));
}

#[test]
fn no_amount_overflows() {
    let mut queue = FairQueue::new(u64::MAX);
    assert!(queue.try_take(claim(1, u64::MAX)));
    assert!(!queue.try_take(claim(1, u64::MAX)) && !queue.try_take(claim(2, u64::MAX)));
    queue.wait(1, u64::MAX);
    assert_eq!(queue.next(), None);
}

/// Peers that hold what they have for ever, and honest ones that give it back at once: what the
/// honest ones have at a time with one of the former, and without.
#[test]
fn one_that_gives_nothing_back_costs_the_others_at_most_half() {
    for honest in 1..12 {
        let at_a_time = |slow: u32| {
            let mut queue = FairQueue::new(1200);
            let slow: u64 = (100..100 + slow).map(|holder| queue.fill(holder)).sum();
            // Each has as much as it gets, one by one, in turns.
            let mut turn = 0;
            while (0..honest).any(|_| {
                turn = (turn + 1) % honest;
                queue.try_take(claim(turn, 1))
            }) {}
            queue.total() - slow
        };
        let (with, without) = (at_a_time(1), at_a_time(0));
        assert!(2 * with + u64::from(honest) >= without, "{honest}: {with} of {without}");
    }
}

#[derive(Debug, Clone)]
enum Step {
    Take { holder: u32, amount: u64 },
    Join { holder: u32, amount: u64 },
    Leave { at: usize },
    GiveBack { at: usize },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0u32..5, 0u64..40).prop_map(|(holder, amount)| Step::Take { holder, amount }),
        4 => (0u32..5, 0u64..130).prop_map(|(holder, amount)| Step::Join { holder, amount }),
        1 => any::<usize>().prop_map(|at| Step::Leave { at }),
        5 => any::<usize>().prop_map(|at| Step::GiveBack { at }),
    ];
    prop::collection::vec(step, 0..150)
}

/// A test's model of a queue.
#[derive(Default)]
struct Model {
    held: Vec<(u32, u64)>,
    waiting: Vec<(Ticket<u32>, u64)>,
}

impl Model {
    fn of(&self, holder: u32) -> u64 {
        self.held.iter().filter(|(of, _)| *of == holder).map(|(_, amount)| amount).sum()
    }

    /// Serves all that may be served, and checks each.
    fn serve(&mut self, queue: &mut FairQueue<u32>) -> Result<(), TestCaseError> {
        while let Some((ticket, served)) = queue.next() {
            let index = self.waiting.iter().position(|(waiting, _)| *waiting == ticket);
            let index = index.expect("it waits");
            for (earlier, _) in &self.waiting[..index] {
                prop_assert!(earlier.holder != ticket.holder, "out of its holder's order");
                let after = self.of(ticket.holder) + self.waiting[index].1;
                prop_assert!(after <= self.of(earlier.holder), "{ticket:?} before {earlier:?}");
            }
            let (_, amount) = self.waiting.remove(index);
            prop_assert_eq!(served, amount);
            self.add(queue, ticket.holder, amount)?;
        }
        // Nothing is left waiting that could be served.
        let is_idle = queue.total() == 0;
        prop_assert!(!is_idle || self.waiting.is_empty(), "{:?} wait for nothing", self.waiting);
        Ok(())
    }

    fn add(
        &mut self,
        queue: &FairQueue<u32>,
        holder: u32,
        amount: u64,
    ) -> Result<(), TestCaseError> {
        let before = self.of(holder);
        self.held.push((holder, amount));
        let (held, total) = (before + amount, queue.total());
        prop_assert!(total <= queue.max());
        prop_assert!(before == 0 || held <= queue.max() - total, "{holder} has {held}");
        Ok(())
    }
}

proptest! {
    /// Whatever happens in whatever order: the sums are right, no holder gets more than its share
    /// unless it had nothing, the order is kept, and every claim that waits is served once what is
    /// held comes back.
    #[test]
    fn every_claim_is_served_once_and_in_order(steps in steps(), max in 1u64..130) {
        let (mut queue, mut model) = (FairQueue::new(max), Model::default());
        for step in steps {
            match step {
                Step::Take { holder, amount } => {
                    if queue.try_take(claim(holder, amount)) {
                        let has_claims = model.waiting.iter().any(|(of, _)| of.holder == holder);
                        prop_assert!(!has_claims, "it went before its own claims");
                        model.add(&queue, holder, amount)?;
                    }
                }
                Step::Join { holder, amount } => match queue.join(claim(holder, amount)) {
                    Some(ticket) => model.waiting.push((ticket, amount)),
                    None => prop_assert!(amount > max),
                },
                Step::Leave { at } if !model.waiting.is_empty() => {
                    let (ticket, _) = model.waiting.remove(at % model.waiting.len());
                    prop_assert!(queue.leave(ticket) && !queue.leave(ticket));
                }
                Step::GiveBack { at } if !model.held.is_empty() => {
                    let (holder, amount) = model.held.swap_remove(at % model.held.len());
                    queue.give_back(holder, amount);
                }
                Step::Leave { .. } | Step::GiveBack { .. } => {}
            }
            model.serve(&mut queue)?;
            prop_assert_eq!(queue.total(), model.held.iter().map(|(_, held)| held).sum::<u64>());
            for holder in 0..5 {
                prop_assert_eq!(queue.held(holder), model.of(holder));
            }
        }
        // Holders give back in the order of taking, however much waits.
        while !model.held.is_empty() {
            let (holder, amount) = model.held.remove(0);
            queue.give_back(holder, amount);
            model.serve(&mut queue)?;
        }
        prop_assert!(model.waiting.is_empty(), "never served: {:?}", model.waiting);
        prop_assert_eq!((queue.total(), queue.holders.len(), queue.heads.len()), (0, 0, 0));
    }
}
