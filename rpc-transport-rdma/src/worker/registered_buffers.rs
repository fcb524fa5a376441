//! A worker's memory for large frames, as applications ask for it with [`rpc_core::buffer`].

use std::sync::Arc;

use futures::future::BoxFuture;
use rpc_core::{BufferMemory, BufferSource, offer_source};

use super::shared::WorkerShared;
use crate::connection::Connection;

/// Offers a worker's memory for as long as the worker exists.
pub(crate) fn offer_buffers(worker: &Arc<WorkerShared<Connection>>) {
    let source: Arc<dyn BufferSource> = Arc::<WorkerShared<Connection>>::clone(worker);
    offer_source(&source);
}

impl BufferSource for WorkerShared<Connection> {
    fn rank(&self) -> usize {
        self.connection_count()
    }

    fn buffer(self: Arc<Self>, len: usize) -> BoxFuture<'static, Option<Box<dyn BufferMemory>>> {
        Box::pin(async move {
            // A worker that has ended sends nothing.
            let lent = if self.is_dead() { None } else { self.sources.lend(len).await };
            lent.map(|memory| Box::new(memory) as Box<dyn BufferMemory>)
        })
    }
}
