//! A device for unit tests that does only what a test tells it to.
//!
//! It keeps what was posted and writes to posted memory when the test delivers a message, so that
//! Miri sees device writes where a device would make them. Not a simulation: it has no behaviour.

use std::any::Any;
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::{Context, Poll, Waker};

use super::*;
use crate::memory::{Access, Mapping};

/// The address of the device's only GID.
pub(crate) const MOCK_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

/// The test's handle to a mock device.
#[derive(Debug, Clone, Default)]
pub(crate) struct MockDevice(Arc<Mutex<MockState>>);

#[derive(Debug, Default)]
struct MockState {
    regions: Vec<(LocalKey, Memory)>,
    registrations: u32,
    registered_bytes_max: Option<usize>,
    completions: VecDeque<RawCompletion>,
    receives: Vec<RawReceive>,
    receive_calls: usize,
    /// How often, and what of a post of receives is accepted.
    refuse_receives: Option<(usize, PartialPost)>,
    sends: Vec<RawSend>,
    /// The queue pair of each.
    sent_on: Vec<u32>,
    send_calls: usize,
    refuse_sends: Option<PartialPost>,
    errors_set: usize,
    connects: usize,
    queue_pairs: u32,
    windows: u32,
    windows_max: u32,
    windows_live: usize,
    windows_at_destruction: usize,
    destroyed: usize,
    destroy_fails: bool,
    events: VecDeque<AsyncEvent>,
    waker: Option<Waker>,
    is_silent: bool,
    when_armed: Vec<RawCompletion>,
    port_down: bool,
    gid_gone: bool,
    openings: Vec<Weak<MockDevice>>,
}

/// Where a region lies.
#[derive(Debug, Clone, Copy)]
struct Memory {
    base: NonNull<u8>,
    address: u64,
    len: usize,
}

// SAFETY: the pointer is used under the state's lock, by tests that own what they deliver to.
unsafe impl Send for Memory {}

impl MockDevice {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn device(&self) -> Device {
        Device::from_raw(Arc::new(self.clone()))
    }

    pub(crate) fn port(&self, device: &Device) -> Port {
        let attributes = device.port(1).unwrap();
        Port { device: device.clone(), number: 1, gid_index: 0, gid: Gid::default(), attributes }
    }

    fn state(&self) -> MutexGuard<'_, MockState> {
        self.0.lock().unwrap()
    }

    pub(crate) fn registrations(&self) -> u32 {
        self.state().registrations
    }

    pub(crate) fn registered_bytes(&self) -> usize {
        self.state().registered_bytes()
    }

    pub(crate) fn limit_registered_bytes(&self, max: usize) {
        self.state().registered_bytes_max = Some(max);
    }

    pub(crate) fn posted_receives(&self) -> usize {
        self.state().receives.len()
    }

    pub(crate) fn receive_calls(&self) -> usize {
        self.state().receive_calls
    }

    /// Makes the next posts of receives end early.
    pub(crate) fn refuse_receives(&self, times: usize, accepted: usize, errno: i32) {
        self.state().refuse_receives = Some((times, PartialPost { accepted, errno }));
    }

    /// Makes no completion events from here on.
    pub(crate) fn silence_events(&self) {
        self.state().is_silent = true;
    }

    /// Lets something complete just before the queue is armed the next time.
    pub(crate) fn complete_when_armed(&self, completion: RawCompletion) {
        self.state().when_armed.push(completion);
    }

    /// All send requests that were accepted.
    pub(crate) fn sends(&self) -> Vec<RawSend> {
        self.state().sends.clone()
    }

    /// The send requests that one queue pair accepted.
    pub(crate) fn sends_on(&self, number: u32) -> Vec<RawSend> {
        let state = self.state();
        let sends = state.sends.iter().zip(&state.sent_on).filter(|(_, on)| **on == number);
        sends.map(|(send, _)| *send).collect()
    }

    pub(crate) fn send_calls(&self) -> usize {
        self.state().send_calls
    }

    /// Makes the next post of sends end early.
    pub(crate) fn refuse_sends(&self, accepted: usize, errno: i32) {
        self.state().refuse_sends = Some(PartialPost { accepted, errno });
    }

    pub(crate) fn fail_destroying(&self) {
        self.state().destroy_fails = true;
    }

    pub(crate) fn destroyed(&self) -> usize {
        self.state().destroyed
    }

    /// Makes the device say that it has windows.
    pub(crate) fn claim_windows(&self) {
        self.state().windows_max = 1000;
    }

    pub(crate) fn windows(&self) -> usize {
        self.state().windows_live
    }

    /// How many windows there were when queue pairs were destroyed, in all.
    pub(crate) fn windows_at_destruction(&self) -> usize {
        self.state().windows_at_destruction
    }

    /// Lets an event happen to the device.
    pub(crate) fn happen(&self, event: AsyncEvent) {
        let mut state = self.state();
        state.events.push_back(event);
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
    }

    /// Takes the port down or up, without an event.
    pub(crate) fn set_port_down(&self, is_down: bool) {
        self.state().port_down = is_down;
    }

    /// Takes the port's only GID away or gives it back, without an event.
    pub(crate) fn set_gid_gone(&self, is_gone: bool) {
        self.state().gid_gone = is_gone;
    }

    /// How often the device was opened, and how many of these openings are not closed.
    pub(crate) fn openings(&self) -> (usize, usize) {
        let state = self.state();
        let open = state.openings.iter().filter(|opening| opening.strong_count() > 0);
        (state.openings.len(), open.count())
    }

    /// How many queue pairs were made, and how many connected.
    pub(crate) fn queue_pairs(&self) -> (u32, usize) {
        let state = self.state();
        (state.queue_pairs, state.connects)
    }

    pub(crate) fn errors_set(&self) -> usize {
        self.state().errors_set
    }

    /// Puts a completion into the queue.
    pub(crate) fn complete(&self, completion: RawCompletion) {
        self.state().completions.push_back(completion);
    }

    /// The receives that are posted, by work id.
    pub(crate) fn receive_ids(&self) -> Vec<u64> {
        self.state().receives.iter().map(|receive| receive.work_id).collect()
    }

    /// The completions that wait to be polled, by work id.
    pub(crate) fn completion_ids(&self) -> Vec<u64> {
        self.state().completions.iter().map(|completion| completion.work_id).collect()
    }

    /// Throws out the completions of a queue pair.
    pub(crate) fn purge(&self, number: u32) {
        self.state().completions.retain(|completion| completion.queue_pair_number != number);
    }

    /// Consumes the receive at `index` of those posted; returns a successful completion for it.
    pub(crate) fn take_receive(&self, index: usize, queue_pair_number: u32) -> RawCompletion {
        let receive = self.state().receives.remove(index);
        let (work_id, opcode) = (receive.work_id, 128);
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
        let segment = self.state().receives[index].segment;
        self.write(segment, message);
        let byte_len = u32::try_from(message.len()).unwrap();
        RawCompletion { byte_len, ..self.take_receive(index, number) }
    }

    /// Writes to posted memory as a device does.
    pub(crate) fn write(&self, segment: RawSegment, bytes: &[u8]) {
        assert!(bytes.len() <= segment.len as usize);
        let state = self.state();
        let (_, memory) = state.regions.iter().find(|(key, _)| *key == segment.key).unwrap();
        let offset = usize::try_from(segment.address - memory.address).unwrap();
        assert!(offset + segment.len as usize <= memory.len);
        // SAFETY: the range was checked above.
        let to = unsafe { memory.base.as_ptr().add(offset) };
        // SAFETY: the region is registered, so it is mapped, and the segment is posted, so nothing
        // else touches it.
        unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }
}

impl MockState {
    fn registered_bytes(&self) -> usize {
        self.regions.iter().map(|(_, memory)| memory.len).sum()
    }
}

// SAFETY: the one device that it opens keeps the contract, as said below.
unsafe impl Provider for MockDevice {
    fn devices(&self) -> Result<Vec<DeviceInfo>, VerbsError> {
        Ok(vec![DeviceInfo { name: "mock".to_owned() }])
    }

    fn open(&self, _name: &str) -> Result<Arc<dyn RawDevice>, VerbsError> {
        let opening = Arc::new(self.clone());
        self.state().openings.push(Arc::downgrade(&opening));
        Ok(opening)
    }
}

// SAFETY: it writes to memory only when a test delivers to a posted request.
unsafe impl RawDevice for MockDevice {
    fn name(&self) -> &str {
        "mock"
    }

    fn attributes(&self) -> DeviceAttributes {
        DeviceAttributes {
            port_count: 1,
            queue_pairs_max: 100,
            send_depth_max: 1000,
            completions_max: 10_000,
            shared_receives_max: 1000,
            windows_max: self.state().windows_max,
            reads_in_max: 8,
            reads_out_max: 4,
        }
    }

    fn receive_drain(&self) -> ReceiveDrain {
        ReceiveDrain::SILENT
    }

    fn port(&self, _number: u8) -> Result<PortAttributes, VerbsError> {
        Ok(PortAttributes {
            state: if self.state().port_down { PortState::Inactive(1) } else { PortState::Active },
            active_mtu: Mtu::B4096,
            message_len_max: 1 << 23,
            lid: 0,
            link_layer: LinkLayer::Ethernet,
        })
    }

    fn gid_table(&self) -> Result<Vec<GidEntry>, VerbsError> {
        if self.state().gid_gone {
            return Ok(Vec::new());
        }
        let gid = Gid::from_ip(MOCK_ADDRESS);
        Ok(vec![GidEntry { port: 1, index: 0, gid, kind: GidKind::RoceV2 }])
    }

    fn poll_async_event(&self, context: &mut Context<'_>) -> Poll<Result<AsyncEvent, VerbsError>> {
        let mut state = self.state();
        if let Some(event) = state.events.pop_front() {
            return Poll::Ready(Ok(event));
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }

    fn allocate_window(&self) -> Result<Box<dyn RawMemoryWindow>, VerbsError> {
        let key = {
            let mut state = self.state();
            state.windows += 1;
            state.windows_live += 1;
            RemoteKey(state.windows << 8 | 0xfe)
        };
        Ok(Box::new(MockWindow { key, device: self.clone() }))
    }

    fn register(
        &self,
        mapping: Mapping,
        _access: Access,
    ) -> Result<Box<dyn RawMemoryRegion>, VerbsError> {
        let mut state = self.state();
        let len = mapping.len();
        let max = state.registered_bytes_max.unwrap_or(usize::MAX);
        if state.registered_bytes() + len > max {
            let source = std::io::Error::from_raw_os_error(libc::ENOMEM);
            return Err(VerbsError::registration(source, len, Some(max as u64)));
        }
        state.registrations += 1;
        let key = state.registrations;
        let memory = Memory { base: mapping.base(), address: mapping.address(), len };
        state.regions.push((LocalKey(key), memory));
        Ok(Box::new(MockRegion { mapping, key, device: self.clone() }))
    }

    fn create_completion_queue(
        &self,
        capacity: u32,
    ) -> Result<Arc<dyn RawCompletionQueue>, VerbsError> {
        Ok(Arc::new(MockCompletionQueue { device: self.clone(), capacity }))
    }

    fn create_shared_receive_queue(
        &self,
        _depth: u32,
        memory: Arc<dyn Any + Send + Sync>,
    ) -> Result<Arc<dyn RawSharedReceiveQueue>, VerbsError> {
        Ok(Arc::new(MockSharedReceiveQueue { device: self.clone(), _memory: memory }))
    }

    fn create_queue_pair(
        &self,
        request: &QueuePairRequest<'_>,
    ) -> Result<Box<dyn RawQueuePair>, VerbsError> {
        self.state().queue_pairs += 1;
        let number = self.state().queue_pairs;
        let keep = Arc::clone(request.shared_receive_queue);
        Ok(Box::new(MockQueuePair { device: self.clone(), number, _keep: keep }))
    }
}

#[derive(Debug)]
struct MockRegion {
    mapping: Mapping,
    key: u32,
    device: MockDevice,
}

// SAFETY: the mapping is dropped with this value, after `drop` took it off the device's list.
unsafe impl RawMemoryRegion for MockRegion {
    fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    fn local_key(&self) -> LocalKey {
        LocalKey(self.key)
    }

    fn remote_key(&self) -> RemoteKey {
        RemoteKey(self.key)
    }

    fn handle(&self) -> ObjectHandle {
        ObjectHandle(NonNull::dangling())
    }
}

#[derive(Debug)]
struct MockWindow {
    key: RemoteKey,
    device: MockDevice,
}

// SAFETY: the mock only records requests to bind, and looks at none of their handles.
unsafe impl RawMemoryWindow for MockWindow {
    fn handle(&self) -> ObjectHandle {
        ObjectHandle(NonNull::dangling())
    }

    fn key(&self) -> RemoteKey {
        self.key
    }

    fn set_key(&mut self, key: RemoteKey) {
        self.key = key;
    }
}

impl Drop for MockWindow {
    fn drop(&mut self) {
        self.device.state().windows_live -= 1;
    }
}

impl Drop for MockRegion {
    fn drop(&mut self) {
        let mut state = self.device.state();
        state.regions.retain(|(key, _)| key.0 != self.key);
        state.receives.retain(|receive| receive.segment.key.0 != self.key);
    }
}

#[derive(Debug)]
struct MockCompletionQueue {
    device: MockDevice,
    capacity: u32,
}

// SAFETY: it reports what the test says; the tests of duplicates lie on purpose and read nothing.
unsafe impl RawCompletionQueue for MockCompletionQueue {
    fn capacity(&self) -> u32 {
        self.capacity
    }

    fn poll(&self, out: &mut [RawCompletion]) -> Result<usize, VerbsError> {
        let mut state = self.device.state();
        let count = state.completions.len().min(out.len());
        for (to, from) in out.iter_mut().zip(state.completions.drain(..count)) {
            *to = from;
        }
        Ok(count)
    }

    fn arm(&self) -> Result<(), VerbsError> {
        let mut state = self.device.state();
        let completed = std::mem::take(&mut state.when_armed);
        state.completions.extend(completed);
        Ok(())
    }

    fn poll_event(&self, _context: &mut Context<'_>) -> Poll<Result<(), VerbsError>> {
        if self.device.state().is_silent { Poll::Pending } else { Poll::Ready(Ok(())) }
    }

    /// Those of a silenced device too.
    fn has_event(&self) -> bool {
        !self.device.state().completions.is_empty()
    }
}

#[derive(Debug)]
struct MockSharedReceiveQueue {
    device: MockDevice,
    _memory: Arc<dyn Any + Send + Sync>,
}

// SAFETY: it keeps the memory.
unsafe impl RawSharedReceiveQueue for MockSharedReceiveQueue {
    unsafe fn post_receive(&self, requests: &[RawReceive]) -> Result<(), PartialPost> {
        let mut state = self.device.state();
        state.receive_calls += 1;
        let Some((times, partial)) = state.refuse_receives.take() else {
            state.receives.extend(requests);
            return Ok(());
        };
        state.refuse_receives = (times > 1).then_some((times - 1, partial));
        state.receives.extend(&requests[..partial.accepted]);
        Err(partial)
    }

    fn arm_limit(&self, _limit: u32) -> Result<(), VerbsError> {
        Ok(())
    }
}

#[derive(Debug)]
struct MockQueuePair {
    device: MockDevice,
    number: u32,
    _keep: Arc<dyn RawSharedReceiveQueue>,
}

// SAFETY: it only records, and the tests complete in order.
unsafe impl RawQueuePair for MockQueuePair {
    fn number(&self) -> u32 {
        self.number
    }

    fn inline_max(&self) -> u32 {
        16
    }

    fn connect(&mut self, _path: &PathAttributes) -> Result<(), VerbsError> {
        self.device.state().connects += 1;
        Ok(())
    }

    fn set_error(&mut self) -> Result<(), VerbsError> {
        self.device.state().errors_set += 1;
        Ok(())
    }

    unsafe fn post_send(&mut self, requests: &[RawSend]) -> Result<(), PartialPost> {
        let mut state = self.device.state();
        state.send_calls += 1;
        let partial = state.refuse_sends.take();
        let accepted = partial.map_or(requests.len(), |partial| partial.accepted);
        state.sends.extend(&requests[..accepted.min(requests.len())]);
        let sent_count = state.sends.len();
        state.sent_on.resize(sent_count, self.number);
        partial.map_or(Ok(()), Err)
    }

    fn destroy(self: Box<Self>) -> Result<(), VerbsError> {
        if self.device.state().destroy_fails {
            std::mem::forget(self);
            let source = std::io::Error::from_raw_os_error(libc::EIO);
            return Err(VerbsError::system("destroy a queue pair", source));
        }
        let mut state = self.device.state();
        state.destroyed += 1;
        state.windows_at_destruction += state.windows_live;
        Ok(())
    }
}
