//! A lane's memory for large frames, as applications ask for it with [`rpc_core::buffer`].

use std::sync::Arc;

use futures::future::BoxFuture;
use rpc_core::{BufferMemory, BufferSource, offer_source};

use super::shared::LaneShared;

/// Offers a lane's memory for as long as the lane exists.
pub(crate) fn offer_buffers(lane: &Arc<LaneShared>) {
    let source: Arc<dyn BufferSource> = Arc::<LaneShared>::clone(lane);
    offer_source(&source);
}

impl BufferSource for LaneShared {
    fn rank(&self) -> usize {
        self.connection_count()
    }

    fn buffer(self: Arc<Self>, len: usize) -> BoxFuture<'static, Option<Box<dyn BufferMemory>>> {
        Box::pin(async move {
            // Nobody sends by a lane that has ended.
            let lent = if self.is_dead() { None } else { self.sources.lend(len).await };
            lent.map(|memory| Box::new(memory) as Box<dyn BufferMemory>)
        })
    }
}
