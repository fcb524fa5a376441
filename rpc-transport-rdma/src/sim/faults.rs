//! Faults that come by chance.

use std::time::Duration;

/// Probabilities of faults, from 0.0, never, to 1.0, always. The default is none at all.
///
/// Fields are set one by one: `let mut faults = SimFaults::default(); faults.packet_loss = 0.01;`
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct SimFaults {
    /// A request or an answer is lost; the queue pair tries again after its timeout, and fails
    /// with `RetryExceeded` after its retries.
    pub packet_loss: f64,
    /// A request or an answer of another traffic class than
    /// [`lossless_class`](Self::lossless_class) is lost, as with
    /// [`packet_loss`](Self::packet_loss).
    pub lossy_class: f64,
    /// The lossless traffic class. Those with the same DSCP, the upper six bits, are lossless, too.
    /// 106 by default, the class of farcall's packets on RoCE hardware without a setting.
    pub lossless_class: u8,
    /// A part of a request is lost, and sent again as soon as the gap is noticed: it, and all
    /// behind it, arrive later by up to
    /// [`retransmission_delay_max`](Self::retransmission_delay_max).
    pub retransmission: f64,
    /// The longest such delay; 4 ms by default, about the round trips of some gaps in a row.
    pub retransmission_delay_max: Duration,
    /// A message or a READ is cut in the middle: the first of its bytes are written, the rest
    /// never comes, and both queue pairs are lost to it, the requester's with
    /// `RetryExceeded`.
    pub cut_transfer: f64,
    /// A READ completes with success although a part of its end was never written, as
    /// Soft-RoCE does it on Linux 6.12.
    pub short_read: f64,
    /// A READ completes with success although one bit of its bytes is wrong.
    pub corrupt_read: f64,
    /// A READ completes with success although one packet of its answer was never written: the
    /// memory keeps the bytes that it had there.
    pub stale_read: f64,
    /// A message finds the receiver not ready although a receive is posted.
    pub receiver_not_ready: f64,
    /// A completion event is held back for up to [`event_delay_max`](Self::event_delay_max);
    /// meanwhile others become one with it.
    pub delayed_event: f64,
    /// The longest delay of an event; 10 ms by default.
    pub event_delay_max: Duration,
    /// A completion event waits until up to 16 completions more have come, as with a device that
    /// moderates its interrupts, or for [`event_delay_max`](Self::event_delay_max).
    pub coalesced_event: f64,
    /// Arming a completion queue makes an event although nothing completes.
    pub spurious_event: f64,
    /// Received or read bytes are written at the last legal moment, when the completion is
    /// polled; until then the memory holds rubbish.
    pub late_write: f64,
    /// A completion overtakes those of other queues that wait to be polled.
    pub reordered_completion: f64,
    /// A send queue with work in flight says `ENOMEM` in the middle of a post.
    pub full_send_queue: f64,
    /// A post to a send queue ends early with `EIO`.
    pub refused_post: f64,
    /// A post to a shared receive queue ends early with `ENOMEM`.
    pub refused_receive: f64,
    /// Registering memory fails with `ENOMEM`.
    pub refused_registration: f64,
    /// Deallocating a memory window fails with `EIO`, and the peer may go on reading through it.
    pub kept_window: f64,
    /// Opening a device fails with `EBUSY`.
    pub busy_device: f64,
    /// A request breaks its queue pair.
    pub broken_queue_pair: f64,
    /// Destroying a queue pair throws its completions out of the completion queue that were not
    /// polled, as libmlx5, mlx4, hns, bnxt_re and irdma do. The program never hears of their
    /// receives.
    pub purge_on_destroy: f64,
    /// A queue pair in the error state keeps the receive that it was filling, and the event of its
    /// last receive comes later by up to
    /// [`last_receive_delay_max`](Self::last_receive_delay_max).
    pub late_last_receive: f64,
    /// The longest such delay; 2 s by default, longer than a worker waits.
    pub last_receive_delay_max: Duration,
    /// The event of a queue pair's last receive never comes, as with Soft-RoCE of Linux 6.1.
    pub missing_last_receive: f64,
    /// The receive that a cut message was being written to never completes, as with Soft-RoCE of
    /// Linux 6.12: the slot is the device's until the queue pair is destroyed.
    pub lost_receive: f64,
    /// Verbs that destroy say `EIO` after the device was lost, as those of a device that the
    /// kernel has torn from its users: it has freed everything by then.
    pub destroy_fails_after_loss: bool,
    /// A window that is bound again gets the key of its first bind, and not the one that the
    /// request names.
    pub rebind_stale_key: bool,
    /// Bytes that can be locked with one device before it says `ENOMEM`, by regions and by queues
    /// whose queue memory counts; `None`, the default, is no limit.
    pub memory_lock_bytes: Option<u64>,
}

impl Default for SimFaults {
    fn default() -> Self {
        Self {
            packet_loss: 0.0,
            lossy_class: 0.0,
            lossless_class: 106,
            retransmission: 0.0,
            retransmission_delay_max: Duration::from_millis(4),
            cut_transfer: 0.0,
            short_read: 0.0,
            corrupt_read: 0.0,
            stale_read: 0.0,
            receiver_not_ready: 0.0,
            delayed_event: 0.0,
            coalesced_event: 0.0,
            event_delay_max: Duration::from_millis(10),
            spurious_event: 0.0,
            late_write: 0.0,
            reordered_completion: 0.0,
            full_send_queue: 0.0,
            refused_post: 0.0,
            refused_receive: 0.0,
            refused_registration: 0.0,
            kept_window: 0.0,
            busy_device: 0.0,
            broken_queue_pair: 0.0,
            purge_on_destroy: 0.0,
            late_last_receive: 0.0,
            last_receive_delay_max: Duration::from_secs(2),
            missing_last_receive: 0.0,
            lost_receive: 0.0,
            destroy_fails_after_loss: false,
            rebind_stale_key: false,
            memory_lock_bytes: None,
        }
    }
}

impl SimFaults {
    /// Often every fault that costs time and nothing else: no connection may end by it.
    #[must_use]
    pub fn harmless() -> Self {
        Self {
            packet_loss: 0.01,
            retransmission: 0.02,
            receiver_not_ready: 0.05,
            delayed_event: 0.1,
            coalesced_event: 0.1,
            spurious_event: 0.1,
            late_write: 0.5,
            reordered_completion: 0.3,
            full_send_queue: 0.05,
            ..Self::default()
        }
    }
}
