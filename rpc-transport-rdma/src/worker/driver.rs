//! The task of a worker: reaps completions, hands them to their connections, and sleeps when there
//! is nothing left to do.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Instant;

use rpc_core::Reason;
use rpc_core::transport::CloseReason;
use tokio::runtime::RuntimeFlavor;

use crate::connection::Connection;
use crate::connection::batching::BatchEnd;
use crate::connection::buffers::Arrival;
use crate::lane::{Command, WorkerShared};
use crate::quota::slots::SlotQuota;
use crate::sys::provider::commands::on_lane;
use crate::verbs::{
    Completion, CompletionQueue, ReceiveError, SharedReceiveQueue, SweepMark, VerbsError, WorkKind,
};
use crate::worker::srq::{REPLENISH_AFTER, Replenish, ReplenishStalled, Watermark};

/// Number of empty polls in a row before the worker reads the clock and lets other tasks of its
/// thread, and the runtime's check for I/O, run.
const POLLS_PER_TURN: u64 = 64;

/// Number of full polls in a row before the handled work is posted. Under load, completions of many
/// connections lie mixed in the queue, and each connection has a post of its own: more polls make
/// fewer posts and delay the first of them.
const POLLS_PER_POST: usize = 8;

/// Why a worker ends by itself.
#[derive(Debug, thiserror::Error)]
enum WorkerError {
    #[error(transparent)]
    Verbs(#[from] VerbsError),
    #[error(transparent)]
    ReplenishStalled(#[from] ReplenishStalled),
}

/// The result of polling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reaped {
    /// There was nothing.
    Nothing,
    /// Everything that there was.
    All,
    /// The maximum that one turn handles.
    Some,
}

/// Why a task no longer serves its worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// The worker was told to end.
    Stopped,
    /// The worker's queues have failed.
    Failed,
    /// A handler blocked this task, and another goes on with the worker.
    TakenOver,
}

/// The state that the worker's task owns, and that another task continues with when a handler
/// blocks this one.
pub(super) struct Driver {
    pub(super) shared: Arc<WorkerShared<Connection>>,
    pub(super) completions: CompletionQueue,
    pub(super) receives: SharedReceiveQueue,
    pub(super) replenish: Replenish,
    pub(super) watermark: Watermark,
    pub(super) batch: Vec<Completion>,
    /// Those whose completions are being handled.
    pub(super) batching: Vec<Arc<Connection>>,
    /// Those that keep batching until the callers that they have woken have run.
    pub(super) held: Vec<Arc<Connection>>,
    /// Messages that are not delivered yet, in the order of arrival.
    pub(super) arrivals: VecDeque<(Arc<Connection>, Arrival)>,
    /// Those whose queue pairs can be destroyed when everything is polled that lay in the
    /// completion queue at that moment.
    pub(super) drained: Vec<(Arc<Connection>, SweepMark)>,
    pub(super) is_stopped: bool,
}

impl Driver {
    /// Serves the worker until it ends, or until another task goes on with it.
    pub(super) async fn run(self: Box<Self>) {
        match self.drive().await {
            Err(ended) => tracing::debug!(
                target: "farcall::rdma", ?ended, "a task stopped serving an RDMA lane"
            ),
            Ok(never) => match never {},
        }
    }

    async fn drive(self: Box<Self>) -> Result<Infallible, Ended> {
        // A delivery that was taken over has left arrivals, and answers that are held back.
        let mut this = self.deliver()?;
        loop {
            this = this.work().await?;
            // Here and not once a turn: nothing would wake a task that has heard it and sleeps.
            if this.is_stopped {
                return Err(Ended::Stopped);
            }
            // The arm race: poll, arm, poll again, and only then sleep.
            this.check(this.completions.arm())?;
            // What completed between the last poll and arming makes no event.
            let has_worked;
            (this, has_worked) = this.turn()?;
            if has_worked {
                give_way().await;
                continue;
            }
            this.shared.last_poll.handle_sleep();
            tokio::select! {
                biased;
                result = this.completions.wait() => {
                    this.check(result)?;
                    this.shared.activity.events.add(1);
                }
                () = this.shared.command_sent.notified() => {}
                // With nothing posted no completion would come.
                () = replenish_after(), if this.receives.idle_count() > 0 => {}
            }
            this.shared.activity.wakeups.add(1);
            // An event that is always there, and no time to spin, must not starve other tasks.
            tokio::task::consume_budget().await;
        }
    }

    /// Works while there is work, and as much longer as the configuration says.
    async fn work(self: Box<Self>) -> Result<Box<Self>, Ended> {
        let mut this = self;
        let spin = this.shared.config.spin;
        // The first since the last work starts the clock.
        let (mut spins, mut empty_polls, mut idle_since) = (0_u64, 0_u64, None);
        while !this.is_stopped {
            let has_worked;
            (this, has_worked) = this.turn()?;
            if has_worked {
                spins += std::mem::take(&mut empty_polls);
                idle_since = None;
                // The tasks that the work has woken run now. What they send has often completed by
                // the time they are done, and then needs no event of its own.
                give_way().await;
                continue;
            }
            if spin.is_zero() {
                break;
            }
            // What ends a wait is most often a message: the clock is for when none comes.
            if empty_polls.is_multiple_of(POLLS_PER_TURN) {
                let now = Instant::now();
                this.shared.last_poll.handle_poll(now);
                if now.duration_since(*idle_since.get_or_insert(now)) >= spin {
                    break;
                }
            }
            empty_polls += 1;
            if empty_polls.is_multiple_of(POLLS_PER_TURN) {
                match this.shared.runtime.runtime_flavor() {
                    // Where a handler of another worker may block this thread, the worker waits
                    // where other threads find it. They look for I/O.
                    RuntimeFlavor::MultiThread => give_way().await,
                    _ => tokio::task::yield_now().await,
                }
            }
            std::hint::spin_loop();
        }
        this.shared.activity.spins.add(spins + empty_polls);
        Ok(this)
    }

    /// Ends the worker and its connections where its queues fail.
    fn check<T>(&self, result: Result<T, impl Into<WorkerError>>) -> Result<T, Ended> {
        result.map_err(|error| {
            let (error, device) = (error.into(), self.shared.attachment.device().name());
            tracing::error!(target: "farcall::rdma", %error, device, "an RDMA lane has failed");
            let message = format!("an RDMA lane of {device} has failed: {error}");
            self.shared.lose(&CloseReason::Failed(Reason::new(message, error)));
            Ended::Failed
        })
    }

    /// Handles what there is; false when there was nothing.
    fn turn(mut self: Box<Self>) -> Result<(Box<Self>, bool), Ended> {
        let on_lane = on_lane();
        // The tasks that the turn before has woken have had theirs since.
        self.shared.forget_woken();
        // The lists keep their memory from turn to turn.
        let mut held = std::mem::take(&mut self.held);
        for connection in held.drain(..) {
            if connection.end_batch() {
                self.drained.push((connection, self.completions.mark()));
            }
        }
        self.held = held;
        let has_commands = self.serve_commands();
        let reaped = self.reap();
        let reaped = self.check(reaped)?;
        let has_reaped = reaped != Reaped::Nothing || has_commands;
        if has_reaped {
            // From here on other tasks run, and user code in this one.
            self.shared.last_poll.handle_poll(Instant::now());
        }
        // User code that blocks may do as it likes.
        drop(on_lane);
        let mut this = self.deliver()?;
        this.end_drained();
        let has_worked = has_reaped || !this.drained.is_empty();
        Ok((this, has_worked))
    }

    /// Ends those that are drained and of which nothing lies in the completion queue any more that
    /// a driver would throw out when it destroys their queue pairs.
    fn end_drained(&mut self) {
        if self.drained.is_empty() {
            return;
        }
        let _on_lane = on_lane();
        let mut drained = std::mem::take(&mut self.drained);
        drained.retain(|(connection, mark)| {
            let is_swept = self.completions.has_swept(*mark);
            if is_swept {
                self.end(connection);
            }
            !is_swept
        });
        self.drained = drained;
    }

    /// Finds receive slots that were lost with queue pairs that died.
    fn settle(&mut self) {
        let Some(settled) = self.receives.settle() else { return };
        let (shared, missing) = (&self.shared, self.shared.missing_slots());
        shared.activity.slots_lost.add(settled.lost as u64);
        shared.activity.slots_reclaimed.add(settled.reclaimed as u64);
        shared.shares.change(|quota| quota.set_missing(missing));
        if shared.is_worn() {
            let device = shared.attachment.device().name();
            rpc_core::limited_log!(
                target: "farcall::rdma",
                process_wide,
                WARN,
                "a lane has lost a tenth of its receive slots or more",
                device,
                missing
            );
        }
    }

    /// Posts what was held back while completions and what came with them were handled.
    pub(super) fn end_batch(&mut self) {
        let (mut held, mut batching) =
            (std::mem::take(&mut self.held), std::mem::take(&mut self.batching));
        for connection in batching.drain(..) {
            match connection.hold_or_post() {
                // Work was found, so another turn follows as soon as other tasks have run.
                BatchEnd::Held => held.push(connection),
                BatchEnd::Posted => {}
                BatchEnd::Drained => {
                    self.drained.push((connection, self.completions.mark()));
                }
            }
        }
        (self.held, self.batching) = (held, batching);
    }

    /// Handles what has completed.
    fn reap(&mut self) -> Result<Reaped, WorkerError> {
        for polls in 0..POLLS_PER_POST {
            let count = self.completions.poll(&mut self.batch)?;
            if count > 0 {
                self.shared.activity.polls.add(1);
                self.shared.activity.completions.add(count as u64);
                let mut batch = std::mem::take(&mut self.batch);
                for completion in batch.drain(..) {
                    self.dispatch(completion);
                }
                self.batch = batch;
            }
            self.settle();
            // Slots go back before grants for them go out.
            self.replenish()?;
            self.relieve(count);
            if count < CompletionQueue::BATCH {
                let is_nothing = polls == 0 && count == 0;
                return Ok(if is_nothing { Reaped::Nothing } else { Reaped::All });
            }
        }
        Ok(Reaped::Some)
    }

    /// Posts the slots that are free again.
    fn replenish(&mut self) -> Result<(), WorkerError> {
        let posted = self.receives.repost()?;
        let idle_count = self.receives.idle_count();
        if self.replenish.handle_attempt(posted, idle_count, tokio::time::Instant::now)? {
            self.shared.activity.refills_refused.add(1);
            let device = self.shared.attachment.device().name();
            tracing::debug!(
                target: "farcall::rdma",
                device, idle_count, "the device accepts no more receives for now"
            );
        }
        Ok(())
    }

    fn serve_commands(&mut self) -> bool {
        // Most often there is none, and to look costs less than to swap.
        let has_commands = self.shared.has_commands.load(Ordering::Relaxed)
            && self.shared.has_commands.swap(false, Ordering::Acquire);
        if has_commands {
            self.shared.take_commands().into_iter().for_each(|command| self.serve(command));
        }
        has_commands
    }

    fn serve(&mut self, command: Command<Connection>) {
        let connection = match command {
            Command::Open(connection) => {
                let early = connection.open().into_iter();
                self.arrivals.extend(early.map(|arrival| (Arc::clone(&connection), arrival)));
                connection
            }
            Command::Check(connection) => connection,
            // What it has left in the completion queue is polled first, if it has drained since.
            Command::End(connection) if connection.is_drained() => connection,
            Command::End(connection) => return self.end(&connection),
            Command::TellEnd(connection) => return connection.tell_end_early(),
            Command::Withheld(connection, prefix, reason) => {
                connection.handle_withheld(&prefix, reason);
                connection
            }
            Command::Reclaim => {
                // Before the connections are asked: one that comes meanwhile asks again.
                self.shared.is_reclaiming.store(false, Ordering::Release);
                return self.reclaim();
            }
            Command::ReceiveLimit => return self.handle_receive_limit(),
            Command::Stop => return self.is_stopped = true,
        };
        if connection.is_drained() {
            self.drained.push((connection, self.completions.mark()));
        }
    }

    /// Sees to it that windows suit the queue, after `count` completions.
    fn relieve(&mut self, count: usize) {
        if self.watermark.handle_completions(count) {
            self.shared.shares.change(SlotQuota::relax);
            if self.shared.shares.take_pressed() {
                self.reclaim();
            }
        }
        if let Some(limit) = self.watermark.limit_to_arm(count) {
            self.receives.request_limit(limit, &self.shared.runtime);
        }
    }

    /// Asks connections that are idle for the slots that they hold.
    fn reclaim(&self) {
        for connection in self.shared.connections() {
            connection.reclaim();
        }
    }

    fn handle_receive_limit(&mut self) {
        if self.watermark.handle_limit() {
            let device = self.shared.attachment.device().name();
            rpc_core::limited_log!(
                target: "farcall::rdma",
                process_wide,
                WARN,
                "a shared receive queue ran low, so the lane is behind: halved the windows",
                device
            );
        }
        self.shared.shares.change(SlotQuota::squeeze);
    }

    fn dispatch(&mut self, completion: Completion) {
        let number = completion.queue_pair_number();
        if completion.kind() != WorkKind::Receive {
            let tag = completion.tag();
            let place = self.begin_batch(|other| other.tag == tag, |worker| worker.by_tag(tag));
            if let Some(place) = place {
                let connection = &self.batching[place];
                let whole = connection.handle_completion(completion).into_iter();
                self.arrivals.extend(whole.map(|arrival| (Arc::clone(connection), arrival)));
            }
            return;
        }
        // Messages of a queue pair that is gone still arrive; their slots go back like any.
        let place =
            self.begin_batch(|other| other.has_number(number), |worker| worker.by_number(number));
        let connection = place.map(|place| &self.batching[place]);
        let taken_key = completion.invalidated_key();
        let received = self.receives.receive(completion, |message| {
            if let Some(connection) = connection
                && let Some(arrival) = connection.handle_message(number, message, taken_key)
            {
                self.arrivals.push_back((Arc::clone(connection), arrival));
            }
        });
        match (received, connection) {
            (Err(ReceiveError::Failed(error)), _) if error.is_flush() => {}
            (Err(error), Some(connection)) => connection.handle_bad_receive(error),
            (Err(error), None) => tracing::debug!(
                target: "farcall::rdma", %error, number, "ignored a receive"
            ),
            (Ok(()), _) => {}
        }
    }

    /// The index in `batching` of the connection that has a completion: the one that `is_it`, or
    /// else the one that the worker finds, which begins a batch. No connection leaves the worker's
    /// table while completions are handled, so a batching connection's tag cannot have been reused.
    fn begin_batch(
        &mut self,
        is_it: impl Fn(&Connection) -> bool,
        find: impl FnOnce(&WorkerShared<Connection>) -> Option<Arc<Connection>>,
    ) -> Option<usize> {
        let place = self.batching.iter().position(|other| is_it(other));
        place.or_else(|| {
            let connection = find(&self.shared)?;
            connection.begin_batch();
            self.batching.push(connection);
            Some(self.batching.len() - 1)
        })
    }

    fn end(&self, connection: &Arc<Connection>) {
        // Only the first time: the place may be another's by now.
        if connection.end() {
            self.shared.remove(connection.tag);
        }
    }
}

/// Also when the runtime goes away: no task will handle the connections' completions any more.
impl Drop for Driver {
    fn drop(&mut self) {
        let connections = {
            let mut table = self.shared.table();
            // Under one lock, so that a connection is either in the list or refused by `register`.
            table.is_dead = true;
            table.connections()
        };
        // The device's task has to know that its device has a worker less.
        self.shared.stop.cancel();
        for connection in connections {
            self.end(&connection);
        }
        self.shared.close_spares();
        // Breaks a circle of handles: commands hold connections, which hold what the worker shares,
        // which holds the commands. Taken last, so that commands sent meanwhile go with them.
        let commands = self.shared.commands().take();
        drop(commands);
    }
}

/// Until receives are posted again that the device did not take.
async fn replenish_after() {
    // Made where it is polled, which is rare, and not with every sleep of the worker.
    tokio::time::sleep(REPLENISH_AFTER).await;
}

/// Lets the tasks that are ready run first. Unlike [`tokio::task::yield_now`] it does not make the
/// runtime look for I/O before it goes on, which is a system call for each message; the runtime
/// does that by itself after so many tasks. And it waits in the run queue, from where other threads
/// steal, and not in a list of this thread's, where nothing runs it while a handler blocks.
async fn give_way() {
    let mut has_given_way = false;
    poll_fn(|context| {
        if std::mem::replace(&mut has_given_way, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
