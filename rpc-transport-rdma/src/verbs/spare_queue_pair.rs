//! Queue pairs that were made before there is a connection for them.
//!
//! A spare is in INIT, and not in RESET: creating a queue pair and taking it to INIT are two
//! commands of the firmware, and INIT needs nothing of the peer. It fixes the port, the position of
//! the partition in the port's table, and the access flags, which are the same for all queue pairs.
//! A handshake that takes a spare gives neither command. The next command has the addresses, packet
//! numbers and the MTU, which may have changed since.
//!
//! A spare completes nothing. It has no part of the completion queue before it is used.

use super::{
    Attachment, FirmwareCommand, Partition, Port, QueuePairConfig, QueuePairRequest, RawQueuePair,
    VerbsError,
};

/// A queue pair in INIT that has no connection.
#[derive(Debug)]
pub(crate) struct SpareQueuePair {
    /// Taken when it is used or destroyed.
    pub(super) raw: Option<Box<dyn RawQueuePair>>,
    pub(super) config: QueuePairConfig,
    port: u8,
    partition: Partition,
    /// Dropped after the queue pair was destroyed.
    pub(super) attachment: Attachment,
}

impl SpareQueuePair {
    /// Makes a spare. It may wait for the device's firmware.
    ///
    /// # Errors
    ///
    /// Returns the system's error.
    pub(crate) fn make(
        attachment: &Attachment,
        port: &Port,
        config: &QueuePairConfig,
    ) -> Result<Self, VerbsError> {
        Ok(Self::new(create(attachment, port, config)?, config, port, attachment))
    }

    pub(super) fn new(
        raw: Box<dyn RawQueuePair>,
        config: &QueuePairConfig,
        port: &Port,
        attachment: &Attachment,
    ) -> Self {
        let (attachment, partition) = (attachment.clone(), port.attributes.partition);
        Self { raw: Some(raw), config: *config, port: port.number, partition, attachment }
    }

    /// Returns true if it can serve a connection through `port`.
    pub(crate) fn fits(&self, port: &Port) -> bool {
        self.port == port.number
            && self.partition == port.attributes.partition
            && self.attachment.device().is_same(&port.device)
    }
}

/// Makes a queue pair of the device, in INIT.
pub(super) fn create(
    attachment: &Attachment,
    port: &Port,
    config: &QueuePairConfig,
) -> Result<Box<dyn RawQueuePair>, VerbsError> {
    let device = attachment.device();
    let _awaited = device.commands().await_firmware(FirmwareCommand::CreateQueuePair);
    device.raw().create_queue_pair(&QueuePairRequest {
        port: port.number,
        partition_index: port.attributes.partition.index,
        completion_queue: &attachment.completion_queue().raw,
        shared_receive_queue: attachment.shared_receive_queue(),
        // One more for the drain WR, which must find room when everything else is in flight.
        send_depth: config.completions(),
        inline_max: config.inline_max,
    })
}

impl Drop for SpareQueuePair {
    fn drop(&mut self) {
        let destroyed = self.raw.take().map_or(Ok(()), RawQueuePair::destroy);
        if let Err(error) = destroyed {
            // It is leaked, and has nothing of ours.
            rpc_core::limited_log!(
                target: "farcall::rdma",
                process_wide, WARN, "cannot destroy a spare queue pair", %error
            );
        }
    }
}
