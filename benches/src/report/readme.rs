//! The chart and the table of the README: small calls of farcall, tonic and tarpc in one run.
//!
//! The README shows absolute numbers, so all of them must come from one commit on one machine.

use anyhow::{Context as _, Result, ensure};

use super::panel::{self, Panel};
use crate::figures::{Results, short};

/// The command that measures everything that is shown here.
const COMMAND: &str = "cargo xtask bench --full --only T1 --only T2 --only T3 --only T7";

/// The sides, in the order of the columns and bars.
const SIDES: [&str; 3] = ["farcall", "tonic", "tarpc"];

/// A row of the table.
struct Row {
    /// The number of the figure that it is from.
    number: &'static str,
    /// The name of its values in the results.
    column: &'static str,
    /// Its heading.
    label: &'static str,
}

const ROWS: [Row; 4] = [
    Row {
        number: "T1",
        column: "p50_us",
        label: "median latency in µs, one call at a time on one core",
    },
    Row {
        number: "T2",
        column: "cpu_us_per_call",
        label: "CPU per call in µs, client and server, 64 calls in flight",
    },
    Row { number: "T3", column: "calls_per_s", label: "calls per second, 256 in flight" },
    Row {
        number: "T7",
        column: "allocations_per_call",
        label: "heap allocations per call, client and server",
    },
];

/// The rows that the chart shows.
const CPU: usize = 1;
const RATE: usize = 2;

/// The values of one run.
#[derive(Debug, PartialEq)]
struct Run<'a> {
    /// A row for each of [`ROWS`], with a value for each of [`SIDES`].
    values: [[f64; SIDES.len()]; ROWS.len()],
    commit: &'a str,
    machine: &'a str,
}

/// Returns the chart, and the table with its origin.
///
/// # Errors
///
/// Returns an error if a value is missing, or if the figures are from different runs.
pub(super) fn write(results: &Results) -> Result<(String, String)> {
    let run = read(results)?;
    Ok((chart(&run), table(&run)))
}

fn read(results: &Results) -> Result<Run<'_>> {
    let mut values = [[0.0; SIDES.len()]; ROWS.len()];
    let mut origin = None;
    for (row, values) in ROWS.iter().zip(&mut values) {
        let number = row.number;
        let figure = results
            .figure(number)
            .with_context(|| format!("{number} was not measured; measure it by `{COMMAND}`"))?;
        let this = (figure.commit.as_str(), figure.machine.as_str());
        let first = *origin.get_or_insert(this);
        ensure!(first == this, "{number} is from {this:?}, and the figures before from {first:?}");
        for (side, value) in SIDES.into_iter().zip(values) {
            let part = figure.parts.first();
            let measured = part.and_then(|part| part.sides.get(side)?.get(row.column));
            *value = *measured.with_context(|| {
                format!("{number} has no {} of {side}; measure it by `{COMMAND}`", row.column)
            })?;
        }
    }
    let (commit, machine) = origin.context("the table has no rows")?;
    Ok(Run { values, commit, machine })
}

fn table(run: &Run<'_>) -> String {
    let mut text = format!("| 64 B unary calls over TCP | {} |\n", SIDES.join(" | "));
    text.push_str("|---|--:|--:|--:|\n");
    for (row, values) in ROWS.iter().zip(&run.values) {
        let is_count = row.column == "allocations_per_call";
        let shown = |value| if is_count { format!("{value:.0}") } else { grouped(value) };
        let cells = values.map(shown).join(" | ");
        text.push_str(&format!("| {} | {cells} |\n", row.label));
    }
    let Run { commit, machine, .. } = run;
    format!(
        "{text}\nMedians of one run over loopback: commit {commit}, {machine}. \
         [figures.md](docs/book/src/performance/figures.md) has the method and every figure."
    )
}

fn chart(run: &Run<'_>) -> String {
    let bars = |row: usize, unit: f64| -> Vec<(&str, f64)> {
        SIDES.into_iter().zip(run.values[row].map(|value| value / unit)).collect()
    };
    let panels = [
        Panel {
            title: "CPU per call (lower is better)",
            axis: "µs, client and server, 64 calls in flight",
            bars: bars(CPU, 1.0),
        },
        Panel {
            title: "Calls per second (higher is better)",
            axis: "thousands per second, 256 calls in flight",
            bars: bars(RATE, 1000.0),
        },
    ];
    panel::draw("64 B unary calls over TCP: farcall, tonic and tarpc", &panels)
}

/// Three significant digits, with a comma between thousands.
fn grouped(value: f64) -> String {
    if value < 1000.0 {
        return short(value);
    }
    let step = 10_f64.powf(value.log10().floor() - 2.0);
    let digits = format!("{:.0}", (value / step).round() * step);
    let first = digits.len() % 3;
    let groups = digits.as_bytes()[first..].chunks(3).map(String::from_utf8_lossy);
    let head = (first > 0).then(|| digits[..first].into());
    head.into_iter().chain(groups).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::{Figure, Part, Sides, goal};

    /// Results with one value for each row and side.
    fn results(commit: &dyn Fn(&str) -> &'static str) -> Results {
        let values = [
            [15.4, 62.4, 20.6],
            [7.16, 65.0, 18.0],
            [280_000.0, 27_700.0, 96_100.0],
            [6.0, 70.0, 13.0],
        ];
        let mut results = Results::default();
        for (row, values) in ROWS.iter().zip(values) {
            let side = |(side, value): (&str, f64)| {
                (side.to_owned(), [(row.column.to_owned(), value)].into())
            };
            let sides: Sides = SIDES.into_iter().zip(values).map(side).collect();
            let goal = goal(row.number).unwrap();
            let part = |part| Part::new(part, vec![1.0], sides.clone()).unwrap();
            let parts = goal.parts.iter().map(part).collect();
            let figure = Figure::new(goal, parts, commit(row.number), "a machine").unwrap();
            results.put(row.number, figure);
        }
        results
    }

    #[test]
    fn the_table_has_a_row_per_figure_and_its_origin() {
        let (_, table) = write(&results(&|_| "abc")).unwrap();
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines[0], "| 64 B unary calls over TCP | farcall | tonic | tarpc |");
        assert!(lines[3].ends_with("| 7.16 | 65.0 | 18.0 |"), "{table}");
        assert!(lines[4].ends_with("| 280,000 | 27,700 | 96,100 |"), "{table}");
        assert!(lines[5].ends_with("| 6 | 70 | 13 |"), "{table}");
        assert!(lines[7].contains("commit abc, a machine"), "{table}");
    }

    #[test]
    fn the_chart_has_both_panels_and_every_side() {
        let (chart, _) = write(&results(&|_| "abc")).unwrap();
        assert_eq!(chart.matches("<rect").count(), 6, "{chart}");
        assert!(chart.contains(">CPU per call") && chart.contains(">Calls per second"), "{chart}");
        assert!(chart.contains(">7.16<") && chart.contains(">280<"), "{chart}");
    }

    #[test]
    fn figures_of_different_runs_are_refused() {
        let mixed = results(&|number| if number == "T3" { "other" } else { "abc" });
        let error = write(&mixed).unwrap_err().to_string();
        assert!(error.contains("T3 is from") && error.contains("other"), "{error}");
    }

    #[test]
    fn missing_figures_name_the_command() {
        let error = write(&Results::default()).unwrap_err().to_string();
        assert!(error.contains("T1 was not measured") && error.contains(COMMAND), "{error}");
    }

    #[test]
    fn thousands_are_grouped() {
        let shown = [0.5, 7.16, 999.4, 1234.0, 96_149.0, 2_049_208.0].map(grouped);
        assert_eq!(shown, ["0.500", "7.16", "999", "1,230", "96,100", "2,050,000"]);
    }
}
