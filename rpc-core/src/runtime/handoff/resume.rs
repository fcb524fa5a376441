//! What another task needs to go on with a driver.

use std::any::Any;

use futures::future::BoxFuture;
use tokio::runtime::Handle;

/// The driver of one connection, or of several, which any task can go on with between two
/// deliveries. It owns everything that reading and delivering need.
pub trait Resume: Any + Send {
    /// The runtime that the driver's tasks run on.
    fn runtime(&self) -> &Handle;

    /// Goes on where the driver was released: what the interrupted delivery held back is sent,
    /// what was read before is delivered, then reading goes on until the connection ends.
    fn resume(self: Box<Self>) -> BoxFuture<'static, ()>;
}
