//! farcall's processes as a contestant.

use anyhow::Result;

use super::contestant::{Contestant, Values};
use crate::driver::{Bench, Pair, Setting, Side};
use crate::worker::Load;

/// Time for which a side polls before it sleeps, in microseconds: longer than any round trip, and
/// short enough to leave the processors to the tools.
const POLLING: &str = "2000";

/// A way for farcall to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// It polls as long as calls come.
    Polling,
    /// It sleeps until the device's event.
    Events,
    /// It polls for a while and sleeps then, as configured by itself.
    Adaptive,
}

/// farcall over RDMA. Its servers take RDMA or nothing, so that nothing else is measured.
pub(crate) fn over_rdma(bench: &Bench, wait: Wait) -> Side {
    let side = bench.farcall(&bench.place.address("rdma"));
    match wait {
        Wait::Polling => side.with_arguments(&["--spin-us", POLLING]),
        Wait::Events => side.with_arguments(&["--spin-us", "0"]),
        Wait::Adaptive => side,
    }
}

/// The same over TCP on the same cable.
pub(crate) fn over_tcp(bench: &Bench) -> Side {
    bench.farcall(&bench.place.address("tcp")).named("farcall over TCP")
}

/// Returns the setting of farcall's processes: one thread each, because the devices are software
/// and take the rest of the processors.
pub(crate) fn setting() -> Setting {
    Setting::free().with_threads(0)
}

/// A server and a client, connected and warm, and what they are asked to do.
#[derive(Debug)]
pub(super) struct Caller {
    pair: Pair,
    load: Load,
}

impl Caller {
    /// Starts both and warms them up.
    ///
    /// # Errors
    ///
    /// Returns an error if one cannot be started, or calls fail.
    pub(super) fn start(bench: &Bench, side: &Side, load: Load) -> Result<Self> {
        let mut pair = Pair::start(side, &setting())?;
        pair.load(&Load { span: bench.effort.warm_up(), ..load })?;
        Ok(Self { pair, load })
    }

    /// The same, to stand beside others.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`start`](Self::start).
    pub(super) fn boxed(
        bench: &Bench,
        side: &Side,
        load: Load,
    ) -> Result<Box<dyn Contestant + 'static>> {
        Ok(Box::new(Self::start(bench, side, load)?))
    }
}

impl Contestant for Caller {
    fn name(&self) -> &str {
        self.pair.name()
    }

    fn measure(&mut self) -> Result<Values> {
        Ok(self.pair.load(&self.load)?.by_name())
    }
}
