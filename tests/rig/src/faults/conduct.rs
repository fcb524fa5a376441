//! A row from its beginning to its end.

use std::time::{Duration, Instant};

use super::call::Kind;
use super::column::Column;
use super::counters::{Counter, Counters};
use super::device::Resources;
use super::lab::Lab;
use super::load::Load;
use super::rows::Plan;
use super::rule::{self, Line};
use super::sample::Times;
use crate::RigError;
use crate::conductor::wait::until;
use crate::conductor::watchdog::Watchdog;

/// The bound on making a fault: a device may take two minutes to be removed.
const FAULT_LIMIT: Duration = Duration::from_secs(240);

/// Time for which calls go on after the fault, to show that it is over.
const LAST: Duration = Duration::from_secs(1);

/// Interval between two looks at the calls while a fault is there or has just been lifted.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// The result of a row.
#[derive(Debug)]
pub(super) struct Shown {
    pub(super) lines: Vec<(Column, Kind, Line)>,
    /// Violations of the rules, as text.
    pub(super) complaints: Vec<String>,
    /// Further remarks.
    pub(super) remarks: Vec<String>,
}

/// Shows a fault.
///
/// # Errors
///
/// Returns an error if it could not be made or lifted, or something around it hung.
pub(super) fn show(plan: &Plan, lab: &mut Lab, watchdog: &Watchdog) -> Result<Shown, RigError> {
    watchdog.enter("starting the server");
    let resources = Resources::read()?;
    lab.start_server()?;
    watchdog.enter("the first calls");
    plan.fault.prepare(lab)?;
    let mut load = Load::start(lab.runtime.handle(), &lab.authority, &Column::ALL)?;
    let mut complaints = away(&load);
    let mut remarks = Vec::new();
    watchdog.enter_for("making the fault", FAULT_LIMIT);
    let before = Counters::read()?;
    let broken = Instant::now();
    let fault = plan.fault.make(lab)?;
    watchdog.enter("the time with the fault");
    std::thread::sleep(plan.hold.saturating_sub(broken.elapsed()));
    let moved = counted(plan.evidence, &before)?;
    watchdog.enter("lifting the fault");
    remarks.extend(fault.mend(lab)?);
    let times = Times { broken, mended: Instant::now() };
    watchdog.enter("the time after the fault");
    complaints.extend(recovered(plan, &load, times, &mut remarks));
    std::thread::sleep(LAST);
    load.stop()?;
    let samples = load.samples();
    let mut lines = Vec::new();
    for column in Column::ALL {
        let rule = plan.rule(column);
        let broken = rule::complaints(&samples, column, times, rule);
        complaints.extend(broken.into_iter().map(|text| format!("{column}, {text}")));
        lines.extend(
            Kind::ALL.map(|kind| (column, kind, rule::line(&samples, column, kind, times))),
        );
    }
    remarks.push(format!("counted under the fault: {moved}"));
    for (counter, least) in plan.evidence.iter().filter(|(it, least)| moved.of(*it) < *least) {
        let count = moved.of(*counter);
        complaints.push(format!("{count} {counter} instead of {least}: was there a fault?"));
    }
    remarks.extend(load.failures());
    watchdog.enter("the end of the row");
    drop(load);
    complaints.extend(left_over(lab, &resources, &mut remarks)?);
    Ok(Shown { lines, complaints, remarks })
}

/// The columns that are not where they have to be.
fn away(load: &Load) -> Vec<String> {
    let columns = Column::ALL.into_iter().filter(|column| !load.is_home(*column));
    columns
        .map(|column| match load.info(column) {
            Some(info) => {
                format!("{column}: it runs over {} (fallback: {:?})", info.transport, info.fallback)
            }
            None => format!("{column}: it is not connected"),
        })
        .collect()
}

/// Returns the counts since `before`. Required counts get a little more time.
fn counted(evidence: &[(Counter, u64)], before: &Counters) -> Result<Counters, RigError> {
    const LIMIT: Duration = Duration::from_secs(10);
    let started = Instant::now();
    loop {
        let moved = Counters::read()?.since(before);
        let is_there = evidence.iter().all(|(counter, least)| moved.of(*counter) >= *least);
        if is_there || started.elapsed() > LIMIT {
            return Ok(moved);
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
}

/// Waits until calls of every kind have succeeded over every column, and all columns are where
/// they were at first.
fn recovered(plan: &Plan, load: &Load, times: Times, remarks: &mut Vec<String>) -> Vec<String> {
    for column in Column::ALL {
        // What it breaks if they do not is the rule's to say.
        let _ = until("calls that succeed", plan.rule(column).again, || {
            Ok(rule::has_succeeded(&load.samples(), column, times.mended))
        });
    }
    let home = Column::ALL.map(|column| {
        let bound = plan.rule(column).again + plan.rule(column).home;
        let left = bound.saturating_sub(times.mended.elapsed());
        (column, until("the way home", left, || Ok(load.is_home(column))).is_ok())
    });
    for (column, is_home) in home {
        if is_home && column == Column::Auto {
            let after = times.mended.elapsed();
            remarks.push(format!("auto ran over RDMA again at most {after:.1?} after the fault"));
        }
    }
    away(load)
}

/// Returns everything that the row leaves behind.
fn left_over(
    lab: &mut Lab,
    before: &Resources,
    remarks: &mut Vec<String>,
) -> Result<Vec<String>, RigError> {
    const LIMIT: Duration = Duration::from_secs(20);
    let mut complaints = Vec::new();
    let mut last = lab.report()?;
    let idle = until("an idle server", LIMIT, || {
        last = lab.report()?;
        Ok(last.is_idle() && last.connections == 0)
    });
    if idle.is_err() {
        complaints.push(format!("the server keeps {last:?} of clients that have gone"));
    }
    lab.end_server()?;
    match before.until_back() {
        Ok(took) => remarks.push(format!("everything on the devices was freed after {took:.1?}")),
        Err(error) => complaints.push(error.to_string()),
    }
    Ok(complaints)
}
