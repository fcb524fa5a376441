//! Many connections over one worker's slots.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;
use crate::quota::slots::{BASE, RESERVE};
use crate::testing::jain;

/// The window that the peers of a worker promise back.
const PEER_WINDOW: u32 = 8;

fn clock() -> Clock {
    Clock::new(Instant::now)
}

impl HeldQuota {
    /// Takes more slots than a connection begins with.
    pub(crate) fn widen(&mut self, count: u32) {
        self.extra += self.shares.change(|quota| quota.grow(self.window(), count));
    }
}

/// A worker with its connections, each with its peer and what is on its way between them.
struct World {
    shares: Arc<SharedQuota>,
    activity: Arc<ActivityCounters>,
    slots: u32,
    links: Vec<Link>,
}

struct Link {
    window: FlowWindow,
    peer: Credits,
    to_us: VecDeque<(MessageKind, Grant)>,
    to_peer: VecDeque<(MessageKind, Grant)>,
    /// Messages that the peer has to send.
    backlog: u32,
    received: u32,
}

impl World {
    fn new(slots: u32, count_max: u32, window_max: u32) -> Self {
        let shares = Arc::new(SharedQuota::new(SlotQuota::new(slots, count_max, window_max)));
        Self { shares, activity: Arc::default(), slots, links: Vec::new() }
    }

    fn connect(&mut self) -> bool {
        let Ok(holding) = HeldQuota::take(&self.shares) else { return false };
        let peer = Credits::new(PEER_WINDOW, holding.window());
        self.links.push(Link {
            window: FlowWindow::new(holding, PEER_WINDOW, Arc::clone(&self.activity)),
            peer,
            to_us: VecDeque::new(),
            to_peer: VecDeque::new(),
            backlog: 0,
            received: 0,
        });
        true
    }

    /// Reclaims credits, like the worker when newcomers find few.
    fn reclaim(&mut self) {
        for link in &mut self.links {
            link.window.reclaim();
            link.settle();
        }
    }

    /// Lets everything arrive, and every peer send what it has, for some rounds.
    fn run(&mut self, rounds: usize) {
        for _ in 0..rounds {
            for link in &mut self.links {
                link.send_backlog();
                link.receive(usize::MAX);
                link.receive_at_peer(usize::MAX);
            }
            self.check();
        }
    }

    fn check(&self) {
        let ledger_promised = self.shares.quota().promised();
        let held: u32 = self.links.iter().map(|link| link.window.holding.window() + RESERVE).sum();
        assert_eq!(ledger_promised, held, "every slot is accounted for");
        assert!(held <= self.slots, "{held} promised of {}", self.slots);
        let on_the_way: usize = self.links.iter().map(|link| link.to_us.len()).sum();
        assert!(on_the_way <= self.slots as usize, "{on_the_way} messages on their way");
        for link in &self.links {
            let outstanding = link.window.credits.outstanding();
            assert!(outstanding <= link.window.holding.window(), "promised more than is held");
            let ordinary = link.to_us.iter().filter(|(kind, _)| !kind.is_reserved()).count();
            assert!(link.peer.available() as usize + ordinary <= outstanding as usize);
            assert!(link.to_us.len() - ordinary <= RESERVE as usize);
        }
    }

    fn is_quiet(&self) -> bool {
        let is_quiet =
            |link: &Link| link.backlog == 0 && link.to_us.is_empty() && link.to_peer.is_empty();
        self.links.iter().all(is_quiet)
    }

    fn windows(&self) -> Vec<u32> {
        self.links.iter().map(|link| link.window.credits.window()).collect()
    }
}

impl Link {
    fn send_backlog(&mut self) {
        while self.backlog > 0 && self.send_from_peer(MessageKind::Frame) {
            self.backlog -= 1;
        }
    }

    fn send_from_peer(&mut self, kind: MessageKind) -> bool {
        let credits = &mut self.peer;
        let may = if kind.is_reserved() { credits.try_take_reserved() } else { credits.try_take() };
        if may {
            self.to_us.push_back((kind, credits.announce(self.backlog.saturating_sub(1) as usize)));
        }
        may
    }

    fn send(&mut self, kind: MessageKind) -> bool {
        let window = &mut self.window;
        let may = if kind.is_reserved() {
            window.try_take_reserved()
        } else {
            window.try_take(&mut clock())
        };
        if may {
            self.to_peer.push_back((kind, window.announce(0)));
        }
        may
    }

    fn receive(&mut self, count: usize) {
        for _ in 0..count {
            let Some((kind, grant)) = self.to_us.pop_front() else { break };
            self.window.handle_grant(grant).unwrap();
            match kind {
                MessageKind::Frame => self.window.handle_message().unwrap(),
                kind => self.window.handle_control(kind).unwrap(),
            }
            self.received += u32::from(kind == MessageKind::Frame);
        }
        // Grants go out when a batch has been handled.
        self.settle();
    }

    fn settle(&mut self) {
        while self.window.is_due()
            && let Some(kind) = self.window.take_due()
        {
            self.to_peer.push_back((kind, self.window.announce(0)));
        }
    }

    fn receive_at_peer(&mut self, count: usize) {
        for _ in 0..count {
            let Some((kind, grant)) = self.to_peer.pop_front() else { break };
            self.peer.handle_grant(grant).unwrap();
            if kind.is_reserved() {
                self.peer.handle_reserved().unwrap();
                continue;
            }
            self.peer.handle_message().unwrap();
            if let MessageKind::Reclaim { keep } = kind {
                self.peer.handle_reclaim(keep);
            }
        }
        while let Some(kind) = self.peer.take_due() {
            self.to_us.push_back((kind, self.peer.announce(self.backlog as usize)));
        }
    }
}

fn greedy(world: &mut World, count: usize) {
    for _ in 0..count {
        assert!(world.connect());
        world.links.last_mut().unwrap().backlog = u32::MAX;
    }
}

#[test]
fn alternating_sides_need_no_pure_grants() {
    let mut world = World::new(1024, 256, 32);
    assert!(world.connect());
    let Link { window, peer, .. } = &mut world.links[0];
    let mut lone_rounds = Vec::new();
    for round in 0..20 {
        assert!(peer.try_take(), "the peer answers");
        window.handle_grant(peer.announce(0)).unwrap();
        window.handle_message().unwrap();
        if window.is_due() {
            assert_eq!(window.take_due(), Some(MessageKind::Grant));
            peer.handle_grant(window.announce(0)).unwrap();
            peer.handle_reserved().unwrap();
            lone_rounds.push(round);
        }
        assert!(window.try_take(&mut clock()), "we ask");
        peer.handle_grant(window.announce(0)).unwrap();
        peer.handle_message().unwrap();
    }
    assert_eq!(lone_rounds, [0, 1], "the window is wide enough after that");
}

#[test]
fn eight_greedy_peers_get_the_most_and_newcomers_always_fit() {
    let mut world = World::new(1024, 256, 32);
    greedy(&mut world, 8);
    world.run(50);
    assert_eq!(world.windows(), [32; 8]);
    for count in 9..=256 {
        assert!(world.connect(), "connection {count}");
        world.run(1);
    }
    assert!(!world.connect(), "as many as the configuration says");
    world.run(50);
    let windows = world.windows();
    println!("8 greedy among 256: windows {:?}", &windows[..8]);
    assert!(windows[..8].iter().all(|window| *window >= 16), "{windows:?}");
    assert!(windows[8..].iter().all(|window| *window == WINDOW_MIN));
}

#[test]
fn greedy_peers_share_alike() {
    for count in [2, 8, 16, 64, 200] {
        let mut world = World::new(1024, 256, 32);
        greedy(&mut world, count);
        world.run(300);
        let received: Vec<u32> = world.links.iter().map(|link| link.received).collect();
        let jain = jain(received.iter().copied().map(f64::from));
        let windows = world.windows();
        let (least, most) = (received.iter().min().unwrap(), received.iter().max().unwrap());
        println!("{count} greedy: Jain's index {jain:.4}, {least} to {most} messages");
        println!(
            "  windows {} to {}",
            windows.iter().min().unwrap(),
            windows.iter().max().unwrap()
        );
        assert!(*least > 0 && jain > 0.95, "{count}: {received:?}");
    }
}

#[test]
fn what_idle_connections_hold_goes_to_the_busy() {
    let mut world = World::new(1024, 256, 32);
    greedy(&mut world, 40);
    world.run(50);
    for link in &mut world.links {
        link.backlog = 0;
    }
    world.run(50);
    let held_idle = world.shares.quota().promised();
    greedy(&mut world, 4);
    world.run(50);
    let before = world.windows()[43];
    world.reclaim();
    world.reclaim();
    world.run(50);
    let windows = world.windows();
    println!("idle ones held {held_idle}; a busy one had {before}, has {}", windows[43]);
    assert_eq!(windows[..40], [WINDOW_MIN; 40]);
    assert_eq!(windows[40..], [32; 4]);
    assert_eq!(world.shares.quota().promised(), 40 * BASE + 4 * (32 + RESERVE));
    assert!(world.activity.credits_returned.value() > 0);
}

#[test]
fn a_thousand_slots_take_three_hundred_idle_connections() {
    let mut world = World::new(1024, 1000, 32);
    let count = (0..).take_while(|_| world.connect()).count();
    assert_eq!(count, 341);
    world.check();
}

#[test]
fn a_queue_that_ran_low_halves_windows_until_it_has_recovered() {
    let mut world = World::new(1024, 256, 32);
    greedy(&mut world, 2);
    world.run(50);
    world.shares.change(SlotQuota::squeeze);
    world.run(50);
    assert_eq!(world.windows(), [16; 2]);
    world.shares.change(SlotQuota::relax);
    world.run(50);
    assert_eq!(world.windows(), [32; 2]);
}

#[test]
fn a_long_wait_is_told_once() {
    let mut world = World::new(64, 4, 8);
    assert!(world.connect());
    let window = &mut world.links[0].window;
    while window.try_take(&mut clock()) {}
    let (now, limit) = (Instant::now(), Duration::from_secs(5));
    assert!(window.waits_since().is_some());
    assert_eq!(window.stall(now, limit), None, "not yet");
    let text = window.stall(now + limit, limit).unwrap();
    assert!(text.contains("no credit for") && text.contains("granted: 8"), "{text}");
    assert_eq!(window.stall(now + 2 * limit, limit), None, "told");
    let grant = Grant { count: PEER_WINDOW + 1, control_seen: 0, wants_more: false };
    window.handle_grant(grant).unwrap();
    assert!(window.try_take(&mut clock()) && window.waits_since().is_none());
    let activity = world.activity.snapshot();
    assert_eq!((activity.credit_waits, activity.credit_stalls), (1, 1));
}

#[test]
fn a_wait_is_a_stall_from_its_limit_on() {
    let mut world = World::new(64, 4, 8);
    assert!(world.connect());
    let window = &mut world.links[0].window;
    let (now, limit) = (Instant::now(), Duration::from_secs(5));
    assert_eq!((window.waits_since(), window.stall(now, limit)), (None, None));
    window.wait = Some(Wait { since: now, is_reported: false });
    assert_eq!(window.waits_since(), Some(now));
    assert_eq!(window.stall(now + limit - Duration::from_nanos(1), limit), None);
    assert!(window.stall(now + limit, limit).is_some());
}

#[test]
fn control_messages_have_the_reserve_and_no_more() {
    let mut world = World::new(64, 4, 8);
    assert!(world.connect());
    let link = &mut world.links[0];
    for _ in 0..RESERVE {
        assert!(link.send(MessageKind::Grant));
    }
    assert!(!link.send(MessageKind::Grant), "the peer has not seen one");
    link.receive_at_peer(usize::MAX);
    assert!(link.send_from_peer(MessageKind::Frame));
    link.receive(usize::MAX);
    assert!(link.window.try_take_reserved(), "now it has");
}

#[test]
fn a_reclaimed_window_returns_credits_and_counts_sends() {
    let mut world = World::new(64, 4, 8);
    assert!(world.connect());
    let window = &mut world.links[0].window;
    assert_eq!(window.outstanding(), WINDOW_MIN);
    window.handle_reclaim(WINDOW_MIN);
    let returned = PEER_WINDOW - WINDOW_MIN - 1;
    assert_eq!(window.take_due(), Some(MessageKind::Return { returned }));
    window.handle_message().unwrap();
    assert_eq!(window.take_due(), Some(MessageKind::Grant));
    let sent = [window.activity().grants_sent.value(), world.activity.recalls_sent.value()];
    assert_eq!(sent, [1, 0]);
}

#[test]
fn a_busy_connection_is_not_asked_for_what_it_holds() {
    let mut world = World::new(1024, 4, 32);
    greedy(&mut world, 1);
    world.run(20);
    let window = &mut world.links[0].window;
    assert!(window.outstanding() >= 16, "half of a window is granted anew");
    window.reclaim();
    assert_eq!(window.window(), 32);
    window.reclaim();
    assert_eq!((window.window(), window.held()), (WINDOW_MIN, 32), "nothing came in between");
    assert_eq!(window.take_due(), Some(MessageKind::Reclaim { keep: WINDOW_MIN }));
    assert_eq!(world.activity.recalls_sent.value(), 1);
}

/// Its slots tell the others that it presses, so that idle ones return what they hold.
#[test]
fn a_window_that_cannot_grow_presses() {
    let wants = Grant { count: PEER_WINDOW, control_seen: 0, wants_more: true };
    let mut ample = World::new(1024, 4, 32);
    assert!(ample.connect());
    ample.links[0].window.handle_grant(wants).unwrap();
    let _ = ample.links[0].window.announce(0);
    assert_eq!((ample.windows(), ample.shares.take_pressed()), (vec![2], false));
    let mut scarce = World::new(BASE, 1, 32);
    assert!(scarce.connect());
    scarce.links[0].window.handle_grant(wants).unwrap();
    let _ = scarce.links[0].window.announce(0);
    assert_eq!((scarce.windows(), scarce.shares.take_pressed()), (vec![1], true));
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Connect,
    Leave(prop::sample::Index),
    Demand(prop::sample::Index, u32),
    SendToPeer(prop::sample::Index),
    Receive(prop::sample::Index, usize),
    ReceiveAtPeer(prop::sample::Index, usize),
    Reclaim,
    Squeeze,
    Relax,
}

fn step() -> impl Strategy<Value = Step> {
    let which = any::<prop::sample::Index>;
    prop_oneof![
        3 => Just(Step::Connect),
        1 => which().prop_map(Step::Leave),
        6 => (which(), 1u32..80).prop_map(|(link, count)| Step::Demand(link, count)),
        3 => which().prop_map(Step::SendToPeer),
        9 => (which(), 1usize..8).prop_map(|(link, count)| Step::Receive(link, count)),
        9 => (which(), 1usize..8).prop_map(|(link, count)| Step::ReceiveAtPeer(link, count)),
        1 => Just(Step::Reclaim),
        1 => Just(Step::Squeeze),
        1 => Just(Step::Relax),
    ]
}

fn apply(world: &mut World, step: Step) {
    let link = |links: &mut Vec<Link>, which: prop::sample::Index| {
        (!links.is_empty()).then(|| which.index(links.len()))
    };
    let links = &mut world.links;
    match step {
        Step::Connect => drop(world.connect()),
        Step::Leave(which) => {
            link(links, which).map(|at| links.swap_remove(at));
        }
        Step::Demand(which, count) => {
            let Some(at) = link(links, which) else { return };
            links[at].backlog += count;
            links[at].send_backlog();
        }
        Step::SendToPeer(which) => {
            let Some(at) = link(links, which) else { return };
            links[at].send(MessageKind::Frame);
        }
        Step::Receive(which, count) => {
            let Some(at) = link(links, which) else { return };
            links[at].receive(count);
        }
        Step::ReceiveAtPeer(which, count) => {
            let Some(at) = link(links, which) else { return };
            links[at].receive_at_peer(count);
            links[at].send_backlog();
        }
        Step::Reclaim => world.reclaim(),
        Step::Squeeze => world.shares.change(SlotQuota::squeeze),
        Step::Relax => world.shares.change(SlotQuota::relax),
    }
}

proptest! {
    #[test]
    fn promises_never_exceed_the_slots_and_everybody_gets_through(
        slots in 0u32..200,
        window_max in 0u32..64,
        steps in prop::collection::vec(step(), 0..400),
    ) {
        let mut world = World::new(slots, 24, window_max);
        for step in steps {
            apply(&mut world, step);
            world.check();
        }
        // Every peer gets rid of what it has, however small its window is.
        for _ in 0..60 {
            world.run(50);
            if world.is_quiet() {
                break;
            }
        }
        prop_assert!(world.is_quiet());
        prop_assert!(world.links.iter().all(|link| link.peer.available() > 0));
        world.links.clear();
        prop_assert_eq!(world.shares.quota().promised(), 0);
    }
}
