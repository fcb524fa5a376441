//! The Soft-RoCE virtual machine: a Linux guest with RDMA devices in software, over the files of
//! this host.
//!
//! A program built on the host runs in it unchanged: the guest's root is the host's root over 9p,
//! read-only, with a file system in memory on top. Soft-RoCE needs only a kernel module, and qemu's
//! emulation needs no privilege and no hardware support, so this works wherever qemu does.
//!
//! `machine` boots and waits, `qemu` writes the command line, `exchange` is the folder through
//! which host and guest talk, `stream` brings the guest's output out, and `initramfs` packs
//! `init.sh`. `guest.sh` runs in the guest.

mod exchange;
mod initramfs;
mod machine;
mod options;
mod qemu;
mod stream;

pub(crate) use exchange::SHARE_IN_GUEST;
pub(crate) use machine::{VmEnd, run};
pub(crate) use options::VmOptions;
pub(crate) use qemu::INSTRUCTION_NANOS;
