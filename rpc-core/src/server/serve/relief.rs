//! The task that makes room in a server's memory budget.

use std::convert::Infallible;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::shared::Shared;
use crate::limited_log;
use crate::limits::memory::Relief;
use crate::transport::CloseReason;

/// The pause between two looks: a quarter of the time in which a connection has to move.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// Makes room whenever memory is short, and never returns.
pub(super) async fn relieve(shared: &Shared) -> Infallible {
    loop {
        shared.memory.pressure().raised().await;
        let _turn = shared.memory.relief.lock().await;
        let mut relief = Relief::default();
        while look(shared, &mut relief) {
            sleep(LOOK_INTERVAL).await;
        }
    }
}

/// Ends the connections that have to give way. Returns true if another look is due.
fn look(shared: &Shared, relief: &mut Relief) -> bool {
    let want = shared.memory.pressure().take();
    let (now, usage) = (Instant::now().into_std(), shared.memory.usage());
    let holdings = shared.connections.holdings();
    let ended = relief.look(now, usage, &holdings, want);
    for connection in shared.connections.with_numbers(&ended) {
        let addresses = connection.info().addresses;
        connection.abort(CloseReason::MemoryShort);
        let setting = "server.max_memory";
        limited_log!(
            target: "farcall::server",
            shared.log, WARN, "closed a connection that reads too little while memory is short",
            %addresses, setting
        );
    }
    relief.is_needed(&shared.memory.usage())
}
