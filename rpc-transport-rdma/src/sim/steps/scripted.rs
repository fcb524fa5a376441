//! A device that a test plays: its requests wait, and complete by the test's word alone.

use crate::sim::state::{Entry, NetworkState, Origin, Script};
use crate::sys::provider::{PartialPost, RawCompletion, RawReceive, RawSend};

impl NetworkState {
    /// The script of a device that a test plays.
    pub(crate) fn script(&mut self, device: usize) -> Option<&mut Script> {
        let device = &mut self.devices[device];
        device.is_scripted.then_some(&mut device.script)
    }

    pub(crate) fn is_scripted(&self, device: usize) -> bool {
        self.devices[device].is_scripted
    }

    /// Accepts sends as far as the script says, and leaves them to the test.
    pub(crate) fn record_sends(
        &mut self,
        id: u32,
        device: usize,
        requests: &[RawSend],
    ) -> Result<(), PartialPost> {
        let number = self.queue_pairs.get(&id).map_or(0, |queue_pair| queue_pair.number);
        let script = &mut self.devices[device].script;
        script.send_calls += 1;
        let refused = script.refused_sends.take();
        let accepted = refused.map_or(requests.len(), |partial| partial.accepted);
        for (index, request) in requests.iter().take(accepted).enumerate() {
            let posted = self.post_send(id, request);
            posted.map_err(|errno| PartialPost { accepted: index, errno })?;
            self.devices[device].script.sends.push((number, *request));
        }
        refused.map_or(Ok(()), Err)
    }

    /// Takes the part of a post of receives that a script accepts, and how the post ends.
    pub(crate) fn scripted_receives<'a>(
        &mut self,
        device: usize,
        requests: &'a [RawReceive],
    ) -> (&'a [RawReceive], Result<(), PartialPost>) {
        let Some(script) = self.script(device) else { return (requests, Ok(())) };
        script.receive_calls += 1;
        let Some((times, partial)) = script.refused_receives.take() else {
            return (requests, Ok(()));
        };
        script.refused_receives = (times > 1).then_some((times - 1, partial));
        (&requests[..partial.accepted.min(requests.len())], Err(partial))
    }

    /// Puts a completion into the queue of its queue pair, or into the device's first for a queue
    /// pair that is not there.
    pub(crate) fn complete_by_script(&mut self, device: usize, raw: RawCompletion) {
        let number = raw.queue_pair_number;
        let found =
            self.queue_pairs.iter_mut().find(|(_, it)| it.device == device && it.number == number);
        let (queue, origin) = match found {
            Some((id, state)) => {
                let position = state.requests.iter().position(|it| it.work_id == raw.work_id);
                let ended = position.map_or(0, |position| position + 1);
                state.requests.drain(..ended);
                (Some(state.completion_queue), Origin::Send { queue_pair: *id, ended })
            }
            None => {
                let queue = self.completion_queues.iter().find(|(_, it)| it.device == device);
                (queue.map(|(id, _)| *id), Origin::Send { queue_pair: 0, ended: 0 })
            }
        };
        if let Some(queue) = queue {
            self.complete(queue, Entry { raw, origin, writes: Vec::new() });
        }
    }
}
