//! The task that a manager runs in, which its driver outlives.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::driver::Driver;
use crate::connect::{ConnectError, ConnectFault};

/// Where a channel's driver lies while no task runs it.
#[derive(Debug, Default)]
pub(super) struct Parked(Mutex<Option<Driver>>);

impl Parked {
    pub(super) fn new(driver: Driver) -> Self {
        Self(Mutex::new(Some(driver)))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Driver>> {
        // The driver is moved in or out in one statement.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn take(&self) -> Option<Driver> {
        self.lock().take()
    }

    #[cfg(test)]
    pub(super) fn has_driver(&self) -> bool {
        self.lock().is_some()
    }
}

/// A driver in its task. Whatever ends the task, the driver is parked again, as long as there is a
/// channel.
pub(super) struct ManagerTask {
    driver: Option<Driver>,
    parked: Weak<Parked>,
}

impl ManagerTask {
    pub(super) fn new(driver: Driver, parked: &Arc<Parked>) -> Self {
        Self { driver: Some(driver), parked: Arc::downgrade(parked) }
    }

    /// Makes the first connection.
    ///
    /// # Errors
    ///
    /// When it cannot be made.
    ///
    /// # Cancel safety
    ///
    /// This method is cancel safe: the attempt is torn down with the task.
    pub(super) async fn connect(&mut self) -> Result<(), ConnectError> {
        match &mut self.driver {
            Some(driver) => driver.connect().await,
            None => Err(ConnectError::from(ConnectFault::RuntimeEnded)),
        }
    }

    /// Runs until there is nothing to wait for, or no channel.
    pub(super) async fn run(mut self) {
        while let Some(driver) = &mut self.driver {
            if driver.step().await.is_err() {
                return;
            }
            if driver.is_idle() {
                self.park();
            }
        }
    }

    /// Parks the driver, unless a caller has asked it meanwhile.
    fn park(&mut self) {
        let Some(parked) = self.parked.upgrade() else { return };
        let mut place = parked.lock();
        // Under this lock: a caller counts its request before it looks whether the driver is
        // parked. So either the request is seen here, or that caller finds the driver.
        if self.driver.as_ref().is_some_and(|driver| !driver.is_asked()) {
            *place = self.driver.take();
        }
    }
}

/// Reached with a driver when the runtime ends before the task does, or refuses to start it.
impl Drop for ManagerTask {
    fn drop(&mut self) {
        let Some(mut driver) = self.driver.take() else { return };
        let Some(parked) = self.parked.upgrade() else { return };
        let mut place = parked.lock();
        // Under this lock: a caller that is told so asks again, and has to find the driver.
        driver.abandon();
        *place = Some(driver);
    }
}
