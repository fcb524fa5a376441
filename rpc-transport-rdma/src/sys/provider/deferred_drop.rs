//! Objects whose end is a firmware command, ended by their device's command thread.
//!
//! Many let go of such objects: a lane's task, a connection's last user, an application that
//! drops a message. None of them may wait for firmware, which takes up to 60 s for each object when
//! it hangs. So the value's own type decides where it ends, not the code that drops it.
//!
//! A value is in use by nothing when it is dropped, so its end is in no order with other commands.

use std::fmt::{self, Debug};
use std::ops::{Deref, DerefMut};

use crate::sys::provider::{Device, FirmwareCommand};

/// An object of a device, dropped as a command of its bulk queue.
pub(crate) struct DeferredDrop<T: Send + 'static> {
    /// Taken when it is dropped.
    value: Option<T>,
    device: Device,
    command: FirmwareCommand,
}

impl<T: Send + 'static> DeferredDrop<T> {
    /// Takes an object of `device` that `command` ends.
    pub(crate) fn new(value: T, device: &Device, command: FirmwareCommand) -> Self {
        Self { value: Some(value), device: device.clone(), command }
    }

    /// Drops the value here, for a caller that may wait for firmware.
    pub(crate) fn drop_here(mut self) {
        let _awaited = self.device.commands().await_firmware(self.command);
        drop(self.value.take());
    }
}

impl<T: Send + 'static> Deref for DeferredDrop<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_ref().expect("only dropping takes the value")
    }
}

impl<T: Send + 'static> DerefMut for DeferredDrop<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_mut().expect("only dropping takes the value")
    }
}

impl<T: Send + 'static> Drop for DeferredDrop<T> {
    fn drop(&mut self) {
        let Some(value) = self.value.take() else { return };
        let device = self.device.clone();
        // The device closes after the object has ended.
        let end = move || drop((value, device));
        self.device.commands().bulk.carry_out_soon(self.command, end);
    }
}

impl<T: Debug + Send + 'static> Debug for DeferredDrop<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

#[cfg(all(test, feature = "sim"))]
#[path = "deferred_drop_tests.rs"]
mod tests;
