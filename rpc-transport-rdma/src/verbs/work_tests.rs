//! Work that names memory of another device.

use std::collections::VecDeque;
use std::sync::Arc;

use super::*;
use crate::ConnectOptions;
use crate::memory::{Access, RegionPool, SlotPool};
use crate::testing::scripted::ScriptedDevice;
use crate::verbs::{
    CompletionQueue, QueuePair, QueuePairConfig, SharedReceiveQueue, SharedReceiveQueueConfig,
};

/// A connected queue pair, and what it has to outlive.
fn queue_pair(sim: &ScriptedDevice) -> (QueuePair, SharedReceiveQueue, CompletionQueue) {
    let device = sim.device();
    let completions = CompletionQueue::new(&device, 64).unwrap();
    let config = SharedReceiveQueueConfig { slot_count: 2, slot_len: 64, tag: 1 };
    let receives = SharedReceiveQueue::new(&completions, &config).unwrap();
    let config = QueuePairConfig { send_depth: 4, tag: 7, ..QueuePairConfig::default() };
    let port = sim.port(&device);
    let mut queue_pair = QueuePair::new(&receives.attachment(), &port, &config).unwrap();
    let remote = queue_pair.endpoint();
    queue_pair.connect(&remote, &ConnectOptions::default()).unwrap();
    (queue_pair, receives, completions)
}

fn send(slots: &Arc<SlotPool>) -> Work {
    Work::Send { slot: slots.try_take().unwrap(), len: 1, invalidate: None }
}

fn read(sinks: &Arc<RegionPool>) -> Work {
    let sink = Arc::new(Sink::new(sinks.try_take(100).unwrap()));
    let remote = RemoteMemory { address: 4096, key: RemoteKey(1) };
    Work::Read { sink, offset: 0, len: 100, remote }
}

#[test]
fn memory_of_another_device_is_not_posted() {
    let (ours, theirs) = (ScriptedDevice::new(), ScriptedDevice::new());
    let (mut queue_pair, ..) = queue_pair(&ours);
    let device = theirs.device();
    let slots = SlotPool::new(&device, 1, 64).unwrap();
    let sinks = RegionPool::new(&device, Access::Sink, 1 << 20);
    let own_slots = SlotPool::new(&ours.device(), 1, 64).unwrap();
    for foreign in [send(&slots), read(&sinks)] {
        let mut batch = VecDeque::from([send(&own_slots), foreign]);
        let error = queue_pair.post(&mut batch).expect_err("a key means nothing elsewhere");
        assert!(error.to_string().contains("request 1"), "{error}");
        assert!(error.to_string().contains("of another device"), "{error}");
        assert_eq!((batch.len(), ours.sends().len()), (2, 0), "nothing was posted");
    }
}
