//! Learning that the system takes a device away.
//!
//! Here because libibverbs does not say it: the kernel announces a removal to those who have the
//! device open only where its driver can be torn from them, and otherwise waits for them without a
//! word. What it does say, to everybody, is that the device's node is gone: that is a message on a
//! netlink socket, which costs nothing until then.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, socket,
};

use crate::sys::provider::VerbsError;
use crate::sys::provider::ibverbs::readiness::{Readiness, Taken};

/// The kernel's own messages, before udev has seen them.
const KERNEL_GROUP: u32 = 1;

/// Longer than any message: the kernel keeps them within 2 KiB of variables and a path.
const MESSAGE_LEN_MAX: usize = 8 << 10;

/// Folder that lists the nodes of devices.
const NODES: &str = "/sys/class/infiniband_verbs";

/// Waits until one device is taken away.
#[derive(Debug)]
pub(crate) struct Removal {
    /// The name of the device's node, for example `uverbs0`.
    node: String,
    /// Absent where the system does not let us listen.
    socket: OnceLock<Option<OwnedFd>>,
    readiness: Readiness,
    is_reported: AtomicBool,
}

impl Removal {
    pub(crate) fn new(node: String) -> Self {
        let readiness = Readiness::default();
        Self { node, socket: OnceLock::new(), readiness, is_reported: AtomicBool::new(false) }
    }

    /// Ready once, when the device is taken away.
    pub(crate) fn poll(&self, context: &mut Context<'_>) -> Poll<Result<(), VerbsError>> {
        if self.is_reported.load(Ordering::Relaxed) {
            return Poll::Pending;
        }
        let is_first = self.socket.get().is_none();
        let Some(socket) = self.socket.get_or_init(|| self.listen()) else { return Poll::Pending };
        // It may have gone before anybody listened.
        let mut is_removed = is_first && self.is_gone();
        while !is_removed {
            is_removed =
                ready!(self.readiness.poll(socket.as_fd(), context, || self.read(socket)))?;
        }
        self.is_reported.store(true, Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }

    /// Reads the next message. Returns true if it reports that the device is gone.
    fn read(&self, socket: &OwnedFd) -> Result<Taken<bool>, VerbsError> {
        let mut buffer = [0; MESSAGE_LEN_MAX];
        match recv(socket.as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT) {
            Ok(len) => Ok(Taken::Part(says_removed(&buffer[..len], &self.node))),
            // Messages were lost, perhaps the one that matters.
            Err(nix::Error::ENOBUFS) => Ok(Taken::Part(self.is_gone())),
            Err(nix::Error::EINTR) => Ok(Taken::Part(false)),
            Err(nix::Error::EAGAIN) => Ok(Taken::Nothing),
            Err(error) => Err(VerbsError::system("read of removed devices", error.into())),
        }
    }

    fn is_gone(&self) -> bool {
        Path::new(NODES).exists() && !Path::new(NODES).join(&self.node).exists()
    }

    fn listen(&self) -> Option<OwnedFd> {
        let opened = open();
        if let Err(error) = &opened {
            tracing::debug!(
                target: "farcall::rdma",
                %error, node = self.node, "a removed device will not be noticed"
            );
        }
        opened.ok()
    }
}

fn open() -> nix::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let protocol = SockProtocol::NetlinkKObjectUEvent;
    let opened = socket(AddressFamily::Netlink, SockType::Datagram, flags, protocol)?;
    bind(opened.as_raw_fd(), &NetlinkAddr::new(0, KERNEL_GROUP))?;
    Ok(opened)
}

/// Returns true if a message reports that the node of a device is removed. A message is a headline,
/// `action@path`, and variables, each with a zero byte behind it.
fn says_removed(message: &[u8], node: &str) -> bool {
    let mut parts = message.split(|byte| *byte == 0);
    let Some(path) = parts.next().and_then(|headline| headline.strip_prefix(b"remove@")) else {
        return false;
    };
    let is_ours = path.rsplit(|byte| *byte == b'/').next() == Some(node.as_bytes());
    is_ours && parts.any(|part| part == b"SUBSYSTEM=infiniband_verbs")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(action: &str, node: &str, subsystem: &str) -> Vec<u8> {
        let path = format!("/devices/virtual/infiniband_verbs/{node}");
        format!("{action}@{path}\0ACTION={action}\0SUBSYSTEM={subsystem}\0SEQNUM=7\0").into_bytes()
    }

    #[test]
    fn only_the_removal_of_the_node_itself_counts() {
        let removed =
            |action, node, subsystem| says_removed(&message(action, node, subsystem), "uverbs1");
        assert!(removed("remove", "uverbs1", "infiniband_verbs"));
        assert!(!removed("add", "uverbs1", "infiniband_verbs"));
        assert!(!removed("remove", "uverbs10", "infiniband_verbs"));
        assert!(!removed("remove", "uverbs1", "net"));
        for garbage in [&b""[..], b"remove@", b"libudev\0\xfe\xed", b"remove@/a/uverbs1"] {
            assert!(!says_removed(garbage, "uverbs1"));
        }
    }
}
