//! The endpoints of a channel: who is in the list, connected, ejected.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::config::{BalanceConfig, Policy};
use super::endpoint::Ejection;
use super::endpoint::{Connectivity, Endpoint, EndpointId, EndpointStatus};
use super::load::{Load, Suspicion};
use super::picker::Ring;
use super::picker::{Candidate, Picker, Tier};

/// Time that an endpoint has under [`Policy::PickFirst`] before the next one is tried beside it:
/// that of RFC 8305.
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// The changes by a new list of endpoints.
#[derive(Debug)]
pub struct Changes<T> {
    /// Endpoints that are new, in the order of the list.
    pub added: Vec<EndpointId>,
    /// Handles of endpoints that are no longer in the list. Calls that were sent to one go on; it
    /// gets no further call.
    pub removed: Vec<T>,
}

#[derive(Debug)]
struct Member<T> {
    id: EndpointId,
    endpoint: Endpoint,
    handle: T,
    load: Arc<Load>,
    connectivity: Connectivity,
    ejection: Ejection,
    /// Time at which it last became ready, or returned from an ejection.
    ready_since: Instant,
}

/// The endpoints of a channel, each with a handle of the channel's own.
#[derive(Debug)]
pub struct Roster<T> {
    config: BalanceConfig,
    /// In the order of the resolver's list.
    members: Vec<Member<T>>,
    next_endpoint: u64,
    epoch: Instant,
    /// End of the current interval of the outlier detection.
    interval_ends: Instant,
    /// Time at which the endpoint after the one being connected is tried, under
    /// [`Policy::PickFirst`]; `None` once that is due.
    next_attempt: Option<Instant>,
    ring: Arc<Ring>,
    picker: Arc<Picker<T>>,
    /// Randomness of where a round robin begins.
    random: fastrand::Rng,
}

impl<T: Clone> Roster<T> {
    /// A roster without endpoints. `seed` is where the turns of a round robin begin, so that many
    /// clients do not begin with the same server.
    #[must_use]
    pub fn new(config: BalanceConfig, seed: u64, now: Instant) -> Self {
        let (ring, slow_start) = (Arc::new(Ring::default()), config.slow_start.unwrap_or_default());
        let picker = Picker::new(Tier::Failed, config.policy, slow_start, (&ring, &[]), 0);
        Self {
            interval_ends: now + config.outlier_detection.interval,
            next_attempt: None,
            config,
            members: Vec::new(),
            next_endpoint: 0,
            epoch: now,
            ring,
            picker: Arc::new(picker),
            random: fastrand::Rng::with_seed(seed),
        }
    }

    /// Makes `endpoints` the list, each with as many connections as the settings say. `make` makes
    /// what the channel keeps for a new one. Of two with the same address the first counts.
    pub fn set_endpoints(
        &mut self,
        endpoints: impl IntoIterator<Item = Endpoint>,
        now: Instant,
        mut make: impl FnMut(EndpointId, &Endpoint) -> T,
    ) -> Changes<T> {
        let mut old = std::mem::take(&mut self.members);
        let mut added = Vec::new();
        for endpoint in endpoints {
            if self.members.iter().any(|member| member.endpoint.address == endpoint.address) {
                continue;
            }
            let known = old.iter().find(|it| it.endpoint.address == endpoint.address);
            let number = known.map_or(self.next_endpoint, |it| it.id.endpoint);
            self.next_endpoint = self.next_endpoint.max(number + 1);
            for connection in 0..self.config.connections {
                let (endpoint, id) =
                    (endpoint.clone(), EndpointId { endpoint: number, connection });
                let member = match old.iter().position(|it| it.id == id) {
                    Some(index) => Member { endpoint, ..old.swap_remove(index) },
                    None => {
                        added.push(id);
                        let handle = make(id, &endpoint);
                        self.new_member(id, endpoint, handle, now)
                    }
                };
                self.members.push(member);
            }
        }
        if self.config.policy == Policy::ConsistentHash {
            let each = self.members.iter().map(|Member { id, endpoint, .. }| {
                (&*endpoint.address, id.connection, endpoint.weight)
            });
            self.ring = Arc::new(Ring::new(each));
        }
        self.renew();
        Changes { added, removed: old.into_iter().map(|member| member.handle).collect() }
    }

    fn new_member(&self, id: EndpointId, endpoint: Endpoint, handle: T, now: Instant) -> Member<T> {
        Member {
            id,
            endpoint,
            handle,
            load: Arc::new(Load::new(self.config.latency_decay, self.epoch)),
            connectivity: Connectivity::Idle,
            ejection: Ejection::new(),
            ready_since: now,
        }
    }

    /// Records where the connection to an endpoint stands. One that has left the list is ignored.
    pub fn set_connectivity(&mut self, id: EndpointId, state: Connectivity, now: Instant) {
        let Some(member) = self.members.iter_mut().find(|member| member.id == id) else { return };
        if member.connectivity == state {
            return;
        }
        let is_ready = |state: &Connectivity| matches!(state, Connectivity::Ready { .. });
        if is_ready(&state) && !is_ready(&member.connectivity) {
            member.ready_since = now;
        }
        if state == Connectivity::Connecting {
            self.next_attempt = Some(now + ATTEMPT_DELAY);
        }
        member.connectivity = state;
        self.renew();
    }

    /// Records what a call's end has shown of an endpoint.
    pub fn handle_suspicion(&mut self, id: EndpointId, suspicion: Suspicion, now: Instant) {
        match suspicion {
            Suspicion::None => {}
            Suspicion::ConsecutiveFailures => self.eject(id, now),
        }
    }

    /// Returns the time at which [`handle_timer`](Self::handle_timer) is due, if it is.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        let is_on = self.config.outlier_detection.is_on() && !self.members.is_empty();
        let interval_ends = is_on.then_some(self.interval_ends);
        let next_attempt = self.next_attempt.filter(|_| self.waits_for_first());
        interval_ends.into_iter().chain(next_attempt).min()
    }

    /// Ends the interval of the outlier detection, and the head start of an endpoint that is being
    /// connected, if they are over.
    pub fn handle_timer(&mut self, now: Instant) {
        self.next_attempt = self.next_attempt.filter(|due| now < *due);
        if now < self.interval_ends || !self.config.outlier_detection.is_on() {
            return;
        }
        self.interval_ends = now + self.config.outlier_detection.interval;
        for id in self.failing() {
            self.eject(id, now);
        }
        for member in &mut self.members {
            if member.ejection.handle_interval(now) {
                member.ready_since = now;
                member.load.clear_consecutive();
            }
        }
        self.renew();
    }

    /// The picker of this moment.
    #[must_use]
    pub fn picker(&self) -> Arc<Picker<T>> {
        Arc::clone(&self.picker)
    }

    /// Endpoints that want a connection and have none: all of them, but under
    /// [`Policy::PickFirst`] one at a time while no other is connected. Each has a head start of
    /// 250 ms before the next one is tried beside it.
    #[must_use]
    pub fn wanted(&self) -> Vec<EndpointId> {
        let idle = self.members.iter().filter(|it| it.connectivity == Connectivity::Idle);
        if self.config.policy != Policy::PickFirst {
            return idle.map(|member| member.id).collect();
        }
        match self.waits_for_first() && self.next_attempt.is_some() || self.has_ready() {
            true => Vec::new(),
            false => idle.map(|member| member.id).take(1).collect(),
        }
    }

    /// Returns true if an endpoint needs no connection, because another one has it under
    /// [`Policy::PickFirst`].
    #[must_use]
    pub fn is_superfluous(&self, id: EndpointId) -> bool {
        let is_ready = |it: &Member<T>| matches!(it.connectivity, Connectivity::Ready { .. });
        self.config.policy == Policy::PickFirst
            && self.members.iter().any(|it| it.id != id && is_ready(it))
    }

    /// Returns true while a first connection is being made under [`Policy::PickFirst`].
    fn waits_for_first(&self) -> bool {
        let is_connecting = |it: &Member<T>| it.connectivity == Connectivity::Connecting;
        self.config.policy == Policy::PickFirst
            && !self.has_ready()
            && self.members.iter().any(is_connecting)
    }

    fn has_ready(&self) -> bool {
        self.members.iter().any(|it| matches!(it.connectivity, Connectivity::Ready { .. }))
    }

    /// The handles of all endpoints, in the order of the list.
    pub fn handles(&self) -> impl Iterator<Item = &T> {
        self.members.iter().map(|member| &member.handle)
    }

    /// The handle of the first endpoint of the list that is connected.
    #[must_use]
    pub fn first_ready(&self) -> Option<T> {
        let is_ready = |it: &&Member<T>| matches!(it.connectivity, Connectivity::Ready { .. });
        self.members.iter().find(is_ready).map(|member| member.handle.clone())
    }

    /// The state of the channel as a whole.
    #[must_use]
    pub fn connectivity(&self) -> Connectivity {
        Connectivity::best_of(self.members.iter().map(|member| member.connectivity))
    }

    /// Returns the status of each endpoint, in the order of the list.
    #[must_use]
    pub fn status(&self) -> Vec<EndpointStatus> {
        let status = |member: &Member<T>| EndpointStatus {
            connection: member.id.connection,
            id: member.id,
            ejected_until: member.ejection.until(),
            is_last_resort: self.picker.is_last_resort() && self.picker.is_candidate(member.id),
            in_flight: member.load.in_flight(),
            latency: member.load.latency(),
            // Its subchannel knows the rest.
            ..EndpointStatus::single(member.endpoint.clone(), member.connectivity)
        };
        self.members.iter().map(status).collect()
    }

    /// The settings.
    #[must_use]
    pub fn config(&self) -> &BalanceConfig {
        &self.config
    }

    /// Ejects an endpoint, unless too many are ejected already.
    fn eject(&mut self, id: EndpointId, now: Instant) {
        let rules = self.config.outlier_detection;
        let ejected = self.members.iter().filter(|member| member.ejection.is_ejected()).count();
        let Some(member) = self.members.iter().position(|member| member.id == id) else { return };
        if ejected * 100 >= self.members.len() * rules.max_ejection_percent as usize {
            // It starts a new row: after as many further failures there may be room.
            self.members[member].load.clear_consecutive();
            return;
        }
        let member = &mut self.members[member];
        member.ejection.eject(&rules, now);
        member.load.clear_consecutive();
        self.renew();
    }

    /// Endpoints whose share of failures in this interval ejects them. Begins the next interval.
    fn failing(&self) -> Vec<EndpointId> {
        let counts = self.members.iter().map(|member| (member, member.load.take_interval()));
        let counts: Vec<_> = counts.collect();
        let rule = &self.config.outlier_detection;
        let Some(threshold) = rule.threshold else { return Vec::new() };
        let total = |(answers, failures): (u32, u32)| u64::from(answers) + u64::from(failures);
        let enough = u64::from(rule.request_volume.max(1));
        let looked_at: Vec<_> =
            counts.into_iter().filter(|(_, counts)| total(*counts) >= enough).collect();
        if looked_at.len() < rule.minimum_hosts as usize {
            return Vec::new();
        }
        let is_failing =
            |counts: (u32, u32)| u64::from(counts.1) * 100 > total(counts) * u64::from(threshold);
        let failing = looked_at.into_iter().filter(|(_, counts)| is_failing(*counts));
        failing.map(|(member, _)| member.id).collect()
    }

    /// Makes the picker anew.
    fn renew(&mut self) {
        let ids: Vec<_> = self.members.iter().map(|member| member.id).collect();
        let picker = Picker::new(
            self.tier(),
            self.config.policy,
            self.config.slow_start.unwrap_or_default(),
            (&self.ring, &ids),
            self.random.usize(..1 << 32),
        );
        self.picker = Arc::new(picker);
    }

    /// The first tier that has endpoints.
    fn tier(&self) -> Tier<T> {
        let with = |is_in: &dyn Fn(&Member<T>) -> bool| -> Box<[Candidate<T>]> {
            self.members.iter().filter(|member| is_in(member)).map(candidate).collect()
        };
        let is_ready =
            |member: &Member<T>| matches!(member.connectivity, Connectivity::Ready { .. });
        let is_upgraded =
            |member: &Member<T>| member.connectivity == Connectivity::Ready { is_upgraded: true };
        let is_pending = |member: &Member<T>| {
            matches!(member.connectivity, Connectivity::Idle | Connectivity::Connecting)
        };
        if self.config.prefer_upgraded {
            let upgraded = with(&|it| is_upgraded(it) && !it.ejection.is_ejected());
            if !upgraded.is_empty() {
                return Tier::Healthy(upgraded);
            }
        }
        let healthy = with(&|it| is_ready(it) && !it.ejection.is_ejected());
        if !healthy.is_empty() {
            return Tier::Healthy(healthy);
        }
        if self.members.iter().any(|it| is_pending(it) && !it.ejection.is_ejected()) {
            return Tier::Pending;
        }
        let ejected = with(&is_ready);
        match ejected.is_empty() {
            false => Tier::Ejected(ejected),
            true if self.members.iter().any(is_pending) => Tier::Pending,
            true => Tier::Failed,
        }
    }
}

fn candidate<T: Clone>(member: &Member<T>) -> Candidate<T> {
    Candidate {
        id: member.id,
        handle: member.handle.clone(),
        load: Arc::clone(&member.load),
        weight: member.endpoint.weight.max(1),
        ready_since: member.ready_since,
    }
}
