//! What a server does before it drains.

use std::fmt;

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared, join, ready};

/// What runs once, when the first listener of a server is shut down. Clones are the same.
#[derive(Clone)]
pub(in crate::server) struct BeforeDrain(Shared<BoxFuture<'static, ()>>);

impl BeforeDrain {
    /// The same with another future beside.
    pub(in crate::server) fn and(self, other: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(join(self.0, other).map(drop).boxed().shared())
    }

    /// Runs it, or waits for it where another listener runs it.
    pub(in crate::server) async fn run(&self) {
        self.0.clone().await;
    }
}

impl Default for BeforeDrain {
    fn default() -> Self {
        Self(ready(()).boxed().shared())
    }
}

impl fmt::Debug for BeforeDrain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BeforeDrain")
    }
}
