//! Checks a device's memory windows by using them.
//!
//! What a device says of itself proves nothing: some claim windows that do not work, and some do
//! not report the key that a message took away, without which a revoked key cannot be told from a
//! live one. So two queue pairs on one port go through several lives of a window: bound, read
//! through, taken away by a message or by its owner, bound again under another key, and refused in
//! the end.
//!
//! It waits without sleeping, for at most half a second; a few milliseconds are usual.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::memory::{Access, LargeBuffer, PoolError, RegionPool, Sink, SlotPool};
use crate::verbs::{
    Binding, Completion, CompletionError, CompletionQueue, ConnectError, ConnectOptions, Done,
    Port, PostError, QueuePair, QueuePairConfig, RemoteKey, RemoteMemory, SharedReceiveQueue,
    SharedReceiveQueueConfig, VerbsError, Window, Work, WorkKind,
};

/// Maximum time of the whole check.
const LIMIT: Duration = Duration::from_millis(500);

/// Bytes that are read: more than one packet on any path, and an odd number.
const LEN: u32 = 6001;

const SLOT_COUNT: u16 = 4;
const SLOT_LEN: u32 = 64;
const SEND_DEPTH: u32 = 4;

/// Completions of the slots, and of both queue pairs with their markers.
const COMPLETIONS: u32 = SLOT_COUNT as u32 + 2 * (SEND_DEPTH + 1);

/// Why a device's memory windows are not used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WindowFault {
    /// The device says that it has none.
    #[error("the device has no memory windows")]
    None,
    /// An object that the check needs could not be made, the window included.
    #[error("a check of its memory windows could not be set up: {0}")]
    Setup(#[from] VerbsError),
    /// There is no memory for the check.
    #[error("a check of its memory windows could not be set up: {0}")]
    Memory(#[from] PoolError),
    /// The port cannot be connected with itself.
    #[error("a check of its memory windows could not be set up: {0}")]
    Connect(#[from] ConnectError),
    /// The device refused a request.
    #[error("a check of its memory windows failed: {0}")]
    Post(#[from] PostError),
    /// The device did not answer.
    #[error("a check of its memory windows did not end within {} ms", LIMIT.as_millis())]
    Timeout,
    /// A step failed that should not have.
    #[error("memory windows do not work: {step}: {error}")]
    Step {
        /// The operation that failed.
        step: &'static str,
        /// The device's error.
        #[source]
        error: CompletionError,
    },
    /// The bytes read through a window were not those that it was bound to.
    #[error("memory windows do not work: a READ through one returned other bytes")]
    WrongBytes,
    /// A message took a key away, and the device does not say so or says another.
    #[error("a SEND with invalidate is not reported as one")]
    NotReported,
    /// A READ succeeded under a key that had been taken away.
    #[error("memory windows do not work: an invalidated key still opens memory")]
    StillOpen,
}

/// Goes through the lives of a window on a port.
///
/// # Errors
///
/// [`WindowFault`] says what is not as it should be.
pub fn check_windows(port: &Port) -> Result<(), WindowFault> {
    if port.device.attributes().windows_max == 0 {
        return Err(WindowFault::None);
    }
    Check::new(port)?.run()
}

/// The queue pair that posted the work. The number is its tag.
#[derive(Clone, Copy)]
enum Side {
    Owner = 0,
    Reader = 1,
}

/// The sides that end the lives of one window, in turn: its key is taken away by a message, by its
/// owner, and by a message again. Each life begins from the key that the one before has left, and a
/// provider that forgets it works once.
const LIVES: [Side; 3] = [Side::Reader, Side::Owner, Side::Reader];

struct Check {
    completions: CompletionQueue,
    receives: SharedReceiveQueue,
    queue_pairs: [QueuePair; 2],
    slots: Arc<SlotPool>,
    sinks: Arc<RegionPool>,
    source: LargeBuffer,
    polled: Vec<Completion>,
    done: Vec<Done>,
    /// The key that each message took away.
    invalidated: Vec<Option<RemoteKey>>,
    deadline: Instant,
}

impl Check {
    fn new(port: &Port) -> Result<Self, WindowFault> {
        let device = &port.device;
        let completions = CompletionQueue::new(device, COMPLETIONS)?;
        let config =
            SharedReceiveQueueConfig { slot_count: SLOT_COUNT, slot_len: SLOT_LEN, tag: 2 };
        let receives = SharedReceiveQueue::new(&completions, &config)?;
        let queue_pair = |side| {
            let config = QueuePairConfig {
                send_depth: SEND_DEPTH,
                tag: side as u32,
                ..QueuePairConfig::default()
            };
            QueuePair::new(&receives.attachment(), port, &config)
        };
        let mut queue_pairs = [queue_pair(Side::Owner)?, queue_pair(Side::Reader)?];
        let [owner, reader] = &mut queue_pairs;
        let (here, there) = (owner.endpoint(), reader.endpoint());
        owner.connect(&there, &ConnectOptions::default())?;
        reader.connect(&here, &ConnectOptions::default())?;
        let pool = |access| RegionPool::new(device, access, u64::from(LEN.next_multiple_of(8192)));
        let mut source = pool(Access::Windowed).try_take(LEN as usize)?;
        for (byte, value) in source.iter_mut().zip((0..=u8::MAX).cycle()) {
            *byte = value;
        }
        Ok(Self {
            slots: SlotPool::new(device, 1, SLOT_LEN as usize)?,
            sinks: pool(Access::Sink),
            source,
            completions,
            receives,
            queue_pairs,
            polled: Vec::new(),
            done: Vec::new(),
            invalidated: Vec::new(),
            deadline: Instant::now() + LIMIT,
        })
    }

    fn run(mut self) -> Result<(), WindowFault> {
        let mut window = self.queue_pairs[Side::Owner as usize].allocate_window()?;
        let mut dead = None;
        for end in LIVES {
            let mut binding = self.bind(window)?;
            let remote = binding.remote();
            let read = self.read(remote, "a READ through a window")?;
            if read[..] != self.source[..] {
                return Err(WindowFault::WrongBytes);
            }
            drop(read);
            match end {
                Side::Reader => {
                    self.take_away(remote.key)?;
                    // Otherwise it is not the key that was taken away, which was checked.
                    let _ = binding.handle_invalidated(remote.key);
                }
                Side::Owner => binding = self.invalidate(binding)?,
            }
            window = binding.into_window().map_err(|_| WindowFault::NotReported)?;
            dead = Some(remote);
        }
        // Last, because it ends both queue pairs.
        let Some(dead) = dead else { return Ok(()) };
        match self.read(dead, "a READ under a dead key") {
            Err(WindowFault::Step { .. }) => Ok(()),
            Ok(_) => Err(WindowFault::StillOpen),
            Err(other) => Err(other),
        }
    }

    fn invalidate(&mut self, binding: Binding) -> Result<Binding, WindowFault> {
        match self.step(Side::Owner, Work::Invalidate(binding), "an invalidation")? {
            Work::Invalidate(binding) => Ok(binding),
            other => unreachable!("a queue pair gives back what was posted, not {other:?}"),
        }
    }

    fn bind(&mut self, window: Window) -> Result<Binding, WindowFault> {
        let binding = self.source.bind(window);
        match self.step(Side::Owner, Work::Bind(binding), "a bind")? {
            Work::Bind(binding) => Ok(binding),
            other => unreachable!("a queue pair gives back what was posted, not {other:?}"),
        }
    }

    fn read(
        &mut self,
        remote: RemoteMemory,
        step: &'static str,
    ) -> Result<LargeBuffer, WindowFault> {
        let sink = Arc::new(Sink::new(self.sinks.try_take(LEN as usize)?));
        let work = Work::Read { sink: Arc::clone(&sink), offset: 0, len: LEN, remote };
        drop(self.step(Side::Reader, work, step)?);
        Ok(Arc::into_inner(sink).expect("the READ has ended").into_buffer())
    }

    fn take_away(&mut self, key: RemoteKey) -> Result<(), WindowFault> {
        let slot = self.slots.try_take().expect("the check sends one message");
        let work = Work::Send { slot, len: 1, invalidate: Some(key) };
        self.step(Side::Reader, work, "a message that takes a key away")?;
        self.poll_until(|check| !check.invalidated.is_empty())?;
        if std::mem::take(&mut self.invalidated) != [Some(key)] {
            return Err(WindowFault::NotReported);
        }
        Ok(())
    }

    /// Posts one piece of work and waits for it to come back.
    fn step(&mut self, side: Side, work: Work, step: &'static str) -> Result<Work, WindowFault> {
        self.queue_pairs[side as usize].post(&mut VecDeque::from([work]))?;
        self.poll_until(|check| !check.done.is_empty())?;
        let Done { work, outcome } = self.done.remove(0);
        outcome.map_err(|error| WindowFault::Step { step, error })?;
        Ok(work)
    }

    fn poll_until(&mut self, is_done: impl Fn(&Self) -> bool) -> Result<(), WindowFault> {
        while !is_done(self) {
            if Instant::now() > self.deadline {
                return Err(WindowFault::Timeout);
            }
            if self.completions.poll(&mut self.polled)? == 0 {
                // A software device may need this very processor.
                std::thread::yield_now();
            }
            for completion in std::mem::take(&mut self.polled) {
                self.handle(completion);
            }
        }
        Ok(())
    }

    fn handle(&mut self, completion: Completion) {
        if completion.kind() == WorkKind::Receive {
            let key = completion.invalidated_key();
            if self.receives.receive(completion, |_| ()).is_ok() {
                self.invalidated.push(key);
            }
            return;
        }
        if let Some(queue_pair) = self.queue_pairs.get_mut(completion.tag() as usize) {
            // An unknown completion ends nothing, and the deadline is near.
            let _ = queue_pair.handle_completion(completion, &mut self.done);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RkeyScope;
    use crate::device::{PortQuery, find_port};
    use crate::sim::{SimCensus, SimFaults, SimNetwork};
    use crate::testing::scripted::ScriptedDevice;

    #[test]
    fn a_device_without_windows_is_not_asked() {
        let sim = ScriptedDevice::new();
        let port = sim.port(&sim.device());
        assert!(matches!(check_windows(&port), Err(WindowFault::None)));
        assert_eq!(sim.registrations(), 0);
    }

    #[test]
    fn a_device_that_never_answers_is_given_up() {
        let sim = ScriptedDevice::new();
        sim.claim_windows();
        let port = sim.port(&sim.device());
        assert!(matches!(check_windows(&port), Err(WindowFault::Timeout)));
        assert_eq!((sim.destroyed(), sim.windows(), sim.registered_bytes()), (2, 0, 0));
    }

    /// Checks a simulated device with these faults.
    fn check(faults: SimFaults) -> Result<(), WindowFault> {
        let network = SimNetwork::new(5);
        let address = [10, 0, 0, 1].into();
        network.add_device("sim", &[address]);
        network.set_faults(faults);
        let provider = network.provider();
        let port = find_port(&provider, PortQuery { address, device: None }).unwrap();
        let checked = check_windows(&port);
        drop(port);
        assert_eq!((network.violations(), network.census()), (vec![], SimCensus::default()));
        checked
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks for the addresses of interfaces")]
    fn windows_that_work_pass() {
        check(SimFaults::default()).unwrap();
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks for the addresses of interfaces")]
    fn a_window_that_can_be_bound_only_once_is_found_out() {
        let faults = SimFaults { rebind_stale_key: true, ..SimFaults::default() };
        let error = check(faults).expect_err("the second large call would fail");
        assert!(error.to_string().contains("memory windows do not work"), "{error}");
    }

    #[test]
    fn required_windows_that_do_not_work_are_an_error() {
        let sim = ScriptedDevice::new();
        let port = sim.port(&sim.device());
        assert_eq!(RkeyScope::Auto.on(&port).unwrap(), RkeyScope::Region);
        assert_eq!(RkeyScope::Region.on(&port).unwrap(), RkeyScope::Region);
        let error = RkeyScope::Window.on(&port).unwrap_err();
        assert!(error.to_string().contains("no memory windows"), "{error}");
    }
}
