//! C3 and C7: many clients that send large messages to one server at once, held against one that
//! does it alone, while a neighbour in a process of its own makes small calls.

use anyhow::{Context as _, Result, bail};

use super::{MIB, SMALL, descriptors, on_devices, split};
use crate::driver::{Bench, Pair, Sample, Setting, Side, medians};
use crate::figures::{Goal, Part, Sides};
use crate::rdma::caller::setting;
use crate::rounds::interleaved;
use crate::statistics::{Spread, ratios};
use crate::worker::{Load, Operation, Span};

/// Connections that send at once, each one message at a time.
const CLIENTS: usize = 32;

/// The shortest measurement: every client has to get some messages through.
const MILLIS_MIN: u64 = 1000;

/// C3, against tonic.
pub(super) fn over_tcp(bench: &Bench, goal: &Goal) -> Result<Vec<Part>> {
    let sides = bench.sides(&["tonic"], &["tonic-tuned", "tarpc"])?;
    measure(bench, goal, &sides, Crowd { clients: CLIENTS, setting: Setting::free() })
}

/// C7, against tonic over TCP on the same cable.
pub(super) fn over_rdma(bench: &Bench, goal: &Goal) -> Result<Vec<Part>> {
    let crowd = Crowd { clients: CLIENTS, setting: setting() };
    measure(bench, goal, &on_devices(bench)?, crowd)
}

/// The number of clients, and their place.
#[derive(Clone, Copy)]
struct Crowd {
    clients: usize,
    setting: Setting,
}

/// A side's work with messages of one size.
struct Rounds {
    one: Vec<Sample>,
    all: Vec<Sample>,
    /// The p99 of the neighbour's small calls meanwhile, in microseconds, and without.
    beside_us: Vec<f64>,
    alone_us: Vec<f64>,
    /// By how much the server's memory ever grew, over what is in flight.
    memory: f64,
}

fn measure(bench: &Bench, goal: &Goal, sides: &[Side], crowd: Crowd) -> Result<Vec<Part>> {
    descriptors::require(crowd.clients)?;
    let (mut values, mut all) = (Vec::new(), Sides::new());
    let mut parts = goal.parts.iter().peekable();
    while let Some(part) = parts.peek() {
        let (size, _) = split(part.name)?;
        let measured = sized(bench, sides, crowd, bytes(size)?)?;
        for (side, rounds) in sides.iter().zip(&measured) {
            show(&mut all, &format!("{}, {size}", side.name()), crowd, rounds)?;
        }
        let is_measured = |name| split(name).is_ok_and(|(other, _)| other == size);
        while let Some(part) = parts.next_if(|part| is_measured(part.name)) {
            values.push(part_rounds(split(part.name)?.1, &measured)?);
        }
    }
    let parts = goal.parts.iter().zip(values);
    parts.map(|(part, rounds)| Part::new(part, rounds, all.clone())).collect()
}

fn bytes(size: &str) -> Result<usize> {
    let count = size.strip_suffix(" MiB").and_then(|count| count.parse::<usize>().ok());
    Ok(MIB * count.with_context(|| format!("{size} is no size in MiB"))?)
}

fn part_rounds(what: &str, measured: &[Rounds]) -> Result<Vec<f64>> {
    let (ours, theirs) = (measured.first(), measured.get(1));
    let (ours, theirs) = ours.zip(theirs).context("no other side to compare with")?;
    let rate = |samples: &[Sample]| -> Vec<f64> {
        samples.iter().map(Sample::megabytes_per_second).collect()
    };
    Ok(match what {
        "goodput" => ratios(&rate(&ours.all), &rate(&ours.one)),
        "fairness" => ours.all.iter().map(|sample| sample.client.fairness).collect(),
        "p99 beside" => ratios(&ours.beside_us, &theirs.beside_us),
        "server's memory" => vec![ours.memory],
        other => bail!("{other} is measured nowhere"),
    })
}

/// Two servers of a side: one client calls the first, many and a neighbour the second.
struct Servers {
    one: Pair,
    all: Pair,
    resident_kib: u64,
    clients: usize,
    loads: Loads,
    rounds: Rounds,
}

#[derive(Clone, Copy)]
struct Loads {
    one: Load,
    all: Load,
    small: Load,
}

impl Loads {
    fn new(bench: &Bench, clients: usize, size: usize) -> Self {
        let millis = bench.effort.millis.max(MILLIS_MIN);
        let one = Load::new(Operation::Upload, size, Span::Millis(millis));
        // Begun a little later and ended before, so that there are large messages all the while.
        let small = Load::new(Operation::Echo, SMALL, Span::Millis(millis * 3 / 4));
        Self { one, all: one.with_in_flight(clients), small }
    }
}

impl Servers {
    fn start(bench: &Bench, side: &Side, crowd: Crowd, size: usize) -> Result<Self> {
        let Crowd { clients, setting } = crowd;
        let loads = Loads::new(bench, clients, size);
        let warm_up = Load { span: bench.effort.warm_up(), ..loads.one };
        let mut one = Pair::start(side, &setting)?;
        one.load(&warm_up)?;
        let mut all = Pair::start_with_neighbour(side, &setting.with_connections(clients))?;
        all.load_neighbour(&loads.small)?;
        let resident_kib = all.server_usage()?.context("no server of its own")?.resident_kib;
        all.load(&warm_up.with_in_flight(clients))?;
        let (beside_us, alone_us) = (Vec::new(), Vec::new());
        let rounds = Rounds { one: vec![], all: vec![], beside_us, alone_us, memory: 0.0 };
        Ok(Self { one, all, resident_kib, clients, loads, rounds })
    }

    fn round(&mut self) -> Result<()> {
        let Loads { one, all, small } = self.loads;
        self.rounds.one.push(self.one.load(&one)?);
        self.rounds.alone_us.push(self.all.load_neighbour(&small)?.p99_us);
        let (sample, beside) = self.all.load_both(&all, &small)?;
        self.rounds.all.push(sample);
        self.rounds.beside_us.push(beside.p99_us);
        Ok(())
    }

    fn end(mut self) -> Result<Rounds> {
        let peak = self.all.server_usage()?.context("no server of its own")?.peak_kib;
        let in_flight_kib = (self.clients * self.loads.all.size / 1024) as f64;
        self.rounds.memory = peak.saturating_sub(self.resident_kib) as f64 / in_flight_kib;
        Ok(self.rounds)
    }
}

fn sized(bench: &Bench, sides: &[Side], crowd: Crowd, size: usize) -> Result<Vec<Rounds>> {
    let start = |side| Servers::start(bench, side, crowd, size);
    let mut servers = sides.iter().map(start).collect::<Result<Vec<_>>>()?;
    interleaved(sides.len(), bench.effort.round_count, |index| servers[index].round())?;
    servers.into_iter().map(Servers::end).collect()
}

fn show(all: &mut Sides, name: &str, crowd: Crowd, rounds: &Rounds) -> Result<()> {
    let median = |values: &[f64]| {
        Spread::of(values).map(|spread| spread.median).context("a side without rounds")
    };
    let with = |samples: &[Sample], connections: usize| {
        let mut values = medians(samples);
        values.insert("connections".to_owned(), connections as f64);
        values
    };
    let mut many = with(&rounds.all, crowd.clients);
    many.insert("small_p99_us".to_owned(), median(&rounds.beside_us)?);
    many.insert("small_alone_p99_us".to_owned(), median(&rounds.alone_us)?);
    many.insert("memory_of_in_flight".to_owned(), rounds.memory);
    all.insert(format!("{name}, at once"), many);
    all.insert(format!("{name}, alone"), with(&rounds.one, 1));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_from_names() {
        assert_eq!(bytes("8 MiB").unwrap(), 8 << 20);
        assert!(bytes("8 KiB").is_err());
    }
}
