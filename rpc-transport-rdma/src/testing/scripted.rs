//! A simulated device that does only what a test tells it to.
//!
//! What is posted to it waits, and is recorded. It writes to posted memory when the test delivers a
//! message, so that Miri sees device writes where a device would make them.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::OnceLock;

use crate::sim::SimDevice;
use crate::sim::SimDeviceConfig;
use crate::sim::SimFaults;
use crate::sim::SimNetwork;
use crate::sim::SimPort;
use crate::sim::lab;
use crate::sim::state::{NetworkState, Posted, Script};
use crate::sys::provider::{
    AsyncEvent, Device, DeviceAttributes, Gid, PartialPost, Port, RawCompletion, RawSegment,
    RawSend, ReceiveDrain, RemoteKey,
};
use crate::verbs::SimProvider;

/// The address of the device's only GID.
pub(crate) const SCRIPTED_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

/// Name of the device.
const NAME: &str = "sim";

/// The test's handle to a scripted device. Clones are the same device.
#[derive(Debug, Clone)]
pub(crate) struct ScriptedDevice {
    network: SimNetwork,
    device: SimDevice,
    opened: OnceLock<Device>,
}

impl ScriptedDevice {
    pub(crate) fn new() -> Self {
        let network = SimNetwork::new(0);
        let mut config = SimDeviceConfig::new(NAME, &[SCRIPTED_ADDRESS]);
        config.inline_max = 16;
        config.receive_drain = ReceiveDrain::SILENT;
        config.attributes = DeviceAttributes {
            port_count: 1,
            queue_pairs_max: 100,
            send_depth_max: 1000,
            completions_max: 10_000,
            completion_vectors: 4,
            shared_receives_max: 1000,
            windows_max: 0,
            reads_in_max: 8,
            reads_out_max: 4,
            responder_reads_max: 1 << 20,
        };
        let device = network.add_device_with(config);
        device.enter(|state, index| state.devices[index].is_scripted = true);
        Self { network, device, opened: OnceLock::new() }
    }

    /// Returns the provider of this device alone.
    pub(crate) fn provider(&self) -> SimProvider {
        self.network.provider()
    }

    /// An opening of the device, the same one each time.
    pub(crate) fn device(&self) -> Device {
        let open = || Device::open(&self.provider(), NAME).unwrap();
        self.opened.get_or_init(open).clone()
    }

    pub(crate) fn port(&self, device: &Device) -> Port {
        let attributes = device.port(1).unwrap();
        Port { device: device.clone(), number: 1, gid_index: 0, gid: Gid::default(), attributes }
    }

    fn script<R>(&self, change: impl FnOnce(&mut Script) -> R) -> R {
        self.device.enter(|state, index| change(&mut state.devices[index].script))
    }

    pub(crate) fn registrations(&self) -> u32 {
        self.script(|script| script.registrations)
    }

    pub(crate) fn registered_bytes(&self) -> usize {
        usize::try_from(self.network.census().registered_bytes).unwrap()
    }

    pub(crate) fn limit_registered_bytes(&self, max: usize) {
        self.device.enter(|state, _| state.faults.memory_lock_bytes = Some(max as u64));
    }

    pub(crate) fn posted_receives(&self) -> usize {
        self.receive_ids().len()
    }

    pub(crate) fn receive_calls(&self) -> usize {
        self.script(|script| script.receive_calls)
    }

    /// Makes the next posts of receives end early.
    pub(crate) fn refuse_receives(&self, times: usize, accepted: usize, errno: i32) {
        let refused = Some((times, PartialPost { accepted, errno }));
        self.script(|script| script.refused_receives = refused);
    }

    /// Makes no completion events from here on.
    pub(crate) fn silence_events(&self) {
        self.script(|script| script.is_silent = true);
    }

    /// Lets every poll find as much as it takes, from here on.
    pub(crate) fn flood(&self, completion: RawCompletion) {
        self.script(|script| script.flood = Some(completion));
    }

    /// Lets something complete just before the queue is armed the next time.
    pub(crate) fn complete_when_armed(&self, completion: RawCompletion) {
        self.script(|script| script.when_armed.push(completion));
    }

    /// All send requests that were accepted.
    pub(crate) fn sends(&self) -> Vec<RawSend> {
        self.script(|script| script.sends.iter().map(|(_, send)| *send).collect())
    }

    /// The send requests that one queue pair accepted.
    pub(crate) fn sends_on(&self, number: u32) -> Vec<RawSend> {
        self.script(|script| {
            let sends = script.sends.iter().filter(|(on, _)| *on == number);
            sends.map(|(_, send)| *send).collect()
        })
    }

    pub(crate) fn send_calls(&self) -> usize {
        self.script(|script| script.send_calls)
    }

    /// Makes the next post of sends end early.
    pub(crate) fn refuse_sends(&self, accepted: usize, errno: i32) {
        self.script(|script| script.refused_sends = Some(PartialPost { accepted, errno }));
    }

    /// Fails all destructions of queue pairs from here on.
    pub(crate) fn fail_destroying(&self) {
        lab::fail_destructions(&self.device, u32::MAX);
    }

    pub(crate) fn destroyed(&self) -> usize {
        self.script(|script| script.destroyed)
    }

    /// Returns the number of queue pairs that were made and not destroyed.
    pub(crate) fn queue_pairs_left(&self) -> usize {
        self.queue_pairs().0 as usize - self.destroyed()
    }

    /// Makes the device say that it has windows.
    pub(crate) fn claim_windows(&self) {
        self.device.enter(|state, index| state.devices[index].config.attributes.windows_max = 1000);
    }

    pub(crate) fn set_faults(&self, faults: SimFaults) {
        self.network.set_faults(faults);
    }

    pub(crate) fn windows(&self) -> usize {
        self.network.census().windows
    }

    /// Returns the number of windows that existed when queue pairs were destroyed, in all.
    pub(crate) fn windows_at_destruction(&self) -> usize {
        self.script(|script| script.windows_at_destruction)
    }

    /// Lets an event happen to the device.
    pub(crate) fn happen(&self, event: AsyncEvent) {
        self.device.enter(|state, index| state.raise_in_all(index, event));
    }

    /// Takes the port down or up, without an event.
    pub(crate) fn set_port_down(&self, is_down: bool) {
        self.device.enter(|state, index| state.devices[index].is_link_up = !is_down);
    }

    /// Takes the port's only GID away or gives it back, without an event.
    pub(crate) fn set_gid_gone(&self, is_gone: bool) {
        let addresses = if is_gone { &[][..] } else { &[SCRIPTED_ADDRESS] };
        let port = SimPort::new(addresses);
        self.device.enter(|state, index| state.devices[index].config.ports = vec![port]);
    }

    /// Returns how often the device was opened, and the number of openings that are not closed.
    pub(crate) fn openings(&self) -> (usize, usize) {
        (self.script(|script| script.openings), self.network.census().contexts)
    }

    /// Returns the number of queue pairs that were made, and of those that were connected.
    pub(crate) fn queue_pairs(&self) -> (u32, usize) {
        self.script(|script| (script.queue_pairs, script.connects))
    }

    pub(crate) fn errors_set(&self) -> usize {
        self.script(|script| script.halts)
    }

    /// Puts a completion into the queue.
    pub(crate) fn complete(&self, completion: RawCompletion) {
        self.device.enter(|state, index| state.complete_by_script(index, completion));
    }

    /// The receives that are posted, by work id.
    pub(crate) fn receive_ids(&self) -> Vec<u64> {
        self.device.enter(|state, index| {
            let queues: Vec<u32> = state.receive_queues_of(index).collect();
            let posted = queues.iter().flat_map(|id| &state.receive_queues[id].posted);
            posted.map(|posted| posted.receive.work_id).collect()
        })
    }

    /// The completions that wait to be polled, by work id.
    pub(crate) fn completion_ids(&self) -> Vec<u64> {
        let id = |raw: &RawCompletion| raw.work_id;
        self.device.enter(|state, _| completions(state).map(id).collect())
    }

    /// Throws out the completions of a queue pair.
    pub(crate) fn purge(&self, number: u32) {
        self.device.enter(|state, _| {
            for queue in state.completion_queues.values_mut() {
                queue.completions.retain(|entry| entry.raw.queue_pair_number != number);
            }
        });
    }

    /// Consumes the receive at `index` of those posted; returns a successful completion for it.
    pub(crate) fn take_receive(&self, index: usize, queue_pair_number: u32) -> RawCompletion {
        let posted = self
            .device
            .enter(|state, device| state.take_receive_at(device, index, queue_pair_number));
        let (work_id, opcode) = (posted.unwrap().receive.work_id, 128);
        RawCompletion { work_id, opcode, queue_pair_number, ..Default::default() }
    }

    /// Writes a message into the receive at `index` and completes it.
    pub(crate) fn deliver(&self, index: usize, message: &[u8], number: u32) -> RawCompletion {
        self.deliver_taking(index, message, number, None)
    }

    /// Writes a message that takes a key away into the receive at `index` and completes it.
    pub(crate) fn deliver_taking(
        &self,
        index: usize,
        message: &[u8],
        number: u32,
        invalidated_key: Option<RemoteKey>,
    ) -> RawCompletion {
        let raw = RawCompletion { invalidated_key, ..self.fill(index, message, number) };
        self.complete(raw);
        raw
    }

    /// Writes a message into the receive at `index`; returns the completion that it is to have.
    pub(crate) fn fill(&self, index: usize, message: &[u8], number: u32) -> RawCompletion {
        let segment = self.device.enter(|state, device| {
            let queue = state.scripted_receive_queue(device, number).unwrap();
            state.receive_queues[&queue].posted[index].receive.segment
        });
        self.write(segment, message);
        let byte_len = u32::try_from(message.len()).unwrap();
        RawCompletion { byte_len, ..self.take_receive(index, number) }
    }

    /// Writes to posted memory as a device does.
    pub(crate) fn write(&self, segment: RawSegment, bytes: &[u8]) {
        assert!(bytes.len() <= segment.len as usize);
        self.device.enter(|state, _| {
            assert!(state.gather(segment).is_some(), "no such memory: {segment:?}");
            state.scatter(segment, bytes);
        });
    }
}

fn completions(state: &NetworkState) -> impl Iterator<Item = &RawCompletion> {
    let entries = state.completion_queues.values().flat_map(|queue| &queue.completions);
    entries.map(|entry| &entry.raw)
}

impl NetworkState {
    /// Consumes a receive, by its place among those posted to the queue of a queue pair, or to the
    /// device's first for a queue pair that is not there.
    fn take_receive_at(&mut self, device: usize, index: usize, number: u32) -> Option<Posted> {
        let queue = self.scripted_receive_queue(device, number)?;
        let posted = self.receive_queues.get_mut(&queue)?.posted.remove(index)?;
        self.reap_receive(queue, posted.span);
        Some(posted)
    }

    /// The receive queue of a queue pair, or the device's first.
    fn scripted_receive_queue(&self, device: usize, number: u32) -> Option<u32> {
        let mut queue_pairs = self.queue_pairs.values();
        let found = queue_pairs.find(|it| it.device == device && it.number == number);
        found.map(|it| it.receive_queue).or_else(|| self.receive_queues_of(device).next())
    }

    /// The shared receive queues of a device.
    fn receive_queues_of(&self, device: usize) -> impl Iterator<Item = u32> {
        let is_of_it = move |context: u32| {
            self.contexts.get(&context).is_some_and(|context| context.device == device)
        };
        let all = self.receive_queues.iter();
        all.filter(move |(_, queue)| is_of_it(queue.context)).map(|(id, _)| *id)
    }
}
