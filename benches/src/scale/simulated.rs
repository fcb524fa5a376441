//! C4: up to 100,000 connections, simulated with the machines that share receive slots, beside a
//! model of them.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail};
use rpc_transport_rdma::testing::scale::{
    Forecast, Measured, Mix, Plan, Shape, forecast, simulate,
};

use super::connections;
use crate::driver::Bench;
use crate::figures::{Goal, Part, Sides};
use crate::statistics::Spread;

/// A tenth always has something to send, three tenths call now and then, the others are idle.
const MIX: Mix = Mix { greedy_percent: 10, active_percent: 30 };

/// Beside the numbers of the goal, for the curve.
const FURTHER: &[u32] = &[100, 300, 3000, 30_000];

/// The lengths of one queue for a thousand connections: from little more than they hold at the
/// least to the longest.
const QUEUE_SLOTS: &[u32] = &[3200, 4096, 6144, 8192, 16_384, 32_768, 65_535];

/// Simulations of the same plan with different seeds.
const SEEDS_MAX: usize = 3;

type Values = BTreeMap<String, f64>;

/// C4: receive memory, fairness, and how long a newcomer waits.
pub(super) fn measure(bench: &Bench, goal: &Goal) -> Result<Vec<Part>> {
    let seeds = 1..=bench.effort.round_count.min(SEEDS_MAX) as u64;
    let (mut all, mut rounds) = (Sides::new(), BTreeMap::new());
    let goal_counts = goal.parts.iter().map(|part| connections(part.name).map(|(count, _)| count));
    let mut counts = goal_counts.collect::<Result<Vec<usize>>>()?;
    counts.extend(FURTHER.iter().map(|&count| count as usize));
    counts.sort_unstable();
    counts.dedup();
    for count in counts {
        let connections = u32::try_from(count).context("so many connections")?;
        let usual = Plan { seed: 0, connections, mix: MIX, shape: Shape::usual() };
        let measured = run(&usual, seeds.clone());
        add(&mut all, ("usual lanes", count), &usual, &measured);
        rounds.insert(count, (forecast(&usual), measured));
        let pooled = Plan { shape: Shape::pooled(connections), ..usual };
        add(&mut all, ("long queues", count), &pooled, &run(&pooled, seeds.clone()));
    }
    let greedy = Mix { greedy_percent: 100, active_percent: 0 };
    let plan = Plan { seed: 0, connections: 100_000, mix: greedy, shape: Shape::usual() };
    add(&mut all, ("usual lanes with greedy ones alone", 100_000), &plan, &run(&plan, 1..=1));
    add_queues(&mut all, seeds);
    let part = |part: &'static crate::figures::PartGoal| {
        let (count, what) = connections(part.name)?;
        let (model, measured) = &rounds[&count];
        let values = measured.iter().map(|measured| value(what, model, measured));
        Part::new(part, values.collect::<Result<Vec<f64>>>()?, all.clone())
    };
    goal.parts.iter().map(part).collect()
}

fn run(plan: &Plan, seeds: std::ops::RangeInclusive<u64>) -> Vec<Measured> {
    seeds.map(|seed| simulate(&Plan { seed, ..*plan })).collect()
}

fn value(what: &str, model: &Forecast, measured: &Measured) -> Result<f64> {
    Ok(match what {
        "receive memory" => measured.part_of_own_queues,
        "fairness" => measured.fairness,
        "a newcomer's wait" => measured.half_share_round_trips[0] / model.half_share_round_trips[1],
        other => bail!("{other} is simulated nowhere"),
    })
}

/// A thousand connections over one queue of different lengths.
fn add_queues(all: &mut Sides, seeds: std::ops::RangeInclusive<u64>) {
    for &slots in QUEUE_SLOTS {
        let shape = Shape::usual().with_slots(slots);
        let plan = Plan { seed: 0, connections: 1000, mix: MIX, shape };
        let name = |of: &str| format!("{of}, {slots} slots");
        let with_slots = |mut values: Values| {
            values.remove("connections");
            values.insert("slots".to_owned(), slots.into());
            values
        };
        let lanes = medians(&run(&plan, seeds.clone()), &plan);
        all.insert(name("one queue for 1000"), with_slots(lanes));
        for (end, values) in modelled(&plan) {
            all.insert(name(&format!("model, one queue, {end}")), with_slots(values));
        }
    }
}

fn add(all: &mut Sides, (name, count): (&str, usize), plan: &Plan, measured: &[Measured]) {
    all.insert(format!("{name}, {count}"), medians(measured, plan));
    for (end, values) in modelled(plan) {
        all.insert(format!("model, {name}, {end}, {count}"), values);
    }
}

/// The two ends of the model; one where they are the same.
fn modelled(plan: &Plan) -> Vec<(&'static str, Values)> {
    let model = forecast(plan);
    let end = |index: usize| {
        Values::from([
            ("connections".to_owned(), plan.connections.into()),
            ("greedy_window".to_owned(), model.greedy_window[index]),
            kib("promised_kib_per_connection", model.promised_bytes_per_connection[index]),
            ("first_answer_round_trips".to_owned(), model.first_answer_round_trips[index]),
            ("half_share_round_trips".to_owned(), model.half_share_round_trips[index]),
        ])
    };
    let ends = [("least", end(0)), ("most", end(1))];
    let is_one = ends[0].1 == ends[1].1;
    ends.into_iter().skip(usize::from(is_one)).collect()
}

fn kib(name: &str, bytes: f64) -> (String, f64) {
    (name.to_owned(), bytes / 1024.0)
}

fn medians(measured: &[Measured], plan: &Plan) -> Values {
    let median = |of: fn(&Measured) -> f64| {
        let values: Vec<f64> = measured.iter().map(of).collect();
        Spread::of(&values).map_or(0.0, |spread| spread.median)
    };
    let mut values = Values::from([
        ("connections".to_owned(), plan.connections.into()),
        ("lanes".to_owned(), median(|m| f64::from(m.lanes))),
        kib("receive_kib_per_connection", median(|m| m.receive_bytes_per_connection)),
        kib("promised_kib_per_connection", median(|m| m.promised_bytes_per_connection)),
        ("greedy_window".to_owned(), median(|m| m.greedy_window[1])),
        ("fairness".to_owned(), median(|m| m.fairness)),
        ("promised_percent".to_owned(), median(|m| m.promised_part * 100.0)),
        ("filled_percent".to_owned(), median(|m| m.filled_part_max * 100.0)),
        ("busy_percent".to_owned(), median(|m| m.busy_part * 100.0)),
        ("first_answer_round_trips".to_owned(), median(|m| m.first_answer_round_trips[0])),
        ("half_share_round_trips".to_owned(), median(|m| m.half_share_round_trips[0])),
        ("active_p99_round_trips".to_owned(), median(|m| m.active_round_trips[1])),
    ]);
    if measured.iter().all(|measured| measured.handover_round_trips.is_some()) {
        let handover = median(|m| m.handover_round_trips.unwrap_or_default());
        values.insert("handover_round_trips".to_owned(), handover);
    }
    values
}
