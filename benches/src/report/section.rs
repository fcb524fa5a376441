//! The tables, as Markdown, and what is to be drawn beside them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use anyhow::Result;

use super::columns::{self, Column};
use super::curves::{self, Axes};
use super::growth::{self, Growth};
use super::plot::{self, Bar, Mark};
use crate::figures::{Better, Figure, Group, Part, Results, goal, short};

/// A drawing by the name of its file.
type Drawings = Vec<(String, String)>;

/// The groups, with their names and titles on the page.
pub(super) const GROUPS: [(Group, &str, &str); 4] = [
    (Group::Tcp, "tcp", "TCP over loopback"),
    (Group::Rdma, "rdma", "RDMA on Soft-RoCE"),
    (Group::Scale, "scale", "Many connections"),
    (Group::ScaleRdma, "scale-rdma", "Many connections over RDMA on Soft-RoCE"),
];

/// The section of each group that has figures, by the group's name, and the plots that they show.
pub(super) fn write(results: &Results) -> Result<(Vec<(&'static str, String)>, Drawings)> {
    let mut sections = Vec::new();
    let mut drawings = Drawings::new();
    for (group, name, title) in GROUPS {
        let is_in_group =
            |(number, _): &(&str, &Figure)| goal(number).is_some_and(|goal| goal.group == group);
        let figures: Vec<(&str, &Figure)> = results.iter().filter(is_in_group).collect();
        if figures.is_empty() {
            continue;
        }
        let mut text = format!("### {title}\n\n{}\n\n", provenance(&figures));
        let file = format!("goals-{name}.svg");
        writeln!(text, "![How far each figure is from its aim]({file})\n")?;
        drawings.push((file, plot::marks(&marks(&figures))?));
        goals_table(&mut text, &figures)?;
        for (number, figure) in figures {
            sides(&mut text, &mut drawings, number, figure)?;
        }
        sections.push((name, text));
    }
    Ok((sections, drawings))
}

/// Of what and on what the figures were measured.
fn provenance(figures: &[(&str, &Figure)]) -> String {
    let all = |of: fn(&Figure) -> &String| {
        let values: BTreeSet<&str> =
            figures.iter().map(|(_, figure)| of(figure).as_str()).collect();
        values.into_iter().collect::<Vec<_>>().join("; ")
    };
    let (commits, machines) = (all(|figure| &figure.commit), all(|figure| &figure.machine));
    format!("Commit {commits}. Machine: {machines}.")
}

fn goals_table(text: &mut String, figures: &[(&str, &Figure)]) -> Result<()> {
    writeln!(text, "| | figure | ship | aim | measured | range | stands at | unit |")?;
    writeln!(text, "|---|---|--:|--:|--:|--:|---|---|")?;
    for (number, figure) in figures {
        for part in &figure.parts {
            let sign = match part.better {
                Better::Lower => "≤",
                Better::Higher => "≥",
            };
            writeln!(
                text,
                "| {number} | {} | {sign} {} | {sign} {} | **{}** | {} to {} | {} | {} |",
                titled(&figure.title, part),
                short(part.ship),
                short(part.aim),
                short(part.value),
                short(part.range[0]),
                short(part.range[1]),
                part.standing,
                part.unit,
            )?;
        }
    }
    writeln!(text)?;
    Ok(())
}

fn titled(title: &str, part: &Part) -> String {
    if part.part.is_empty() { title.to_owned() } else { format!("{title}: {}", part.part) }
}

/// The tables and plots of a figure's sides.
fn sides(text: &mut String, drawings: &mut Drawings, number: &str, figure: &Figure) -> Result<()> {
    writeln!(text, "#### {number}: {}\n", figure.title)?;
    let mut shown: Vec<&Part> = Vec::new();
    for part in &figure.parts {
        // Parts that are ratios of the same measurement show it once.
        if shown.iter().any(|other| {
            part.sides.keys().all(|side| other.sides.contains_key(side))
                && part.sides.iter().all(|(side, values)| other.sides[side] == *values)
        }) {
            continue;
        }
        shown.push(part);
        let columns = columns::present(part.sides.values());
        if columns.is_empty() {
            continue;
        }
        // Of many parts made of the same measurement, none gives it its name.
        let is_whole =
            figure.parts.len() > 2 && figure.parts.iter().all(|other| other.sides == part.sides);
        let what = if is_whole { "" } else { &part.part };
        sides_table(text, &columns, part, what)?;
        let growths = growth::of(number);
        for &growth in &growths {
            grown(text, drawings, number, (part, growth))?;
        }
        let plotted = columns::plotted(number);
        let bars: Vec<Bar> = bars(part, plotted);
        if bars.len() > 1 && growths.is_empty() {
            let suffix = file_name(what);
            let file = format!("{number}{}{suffix}.svg", if suffix.is_empty() { "" } else { "-" });
            writeln!(text, "![{}]({file})\n", plotted.heading)?;
            let shown =
                if is_whole { plotted.heading.to_owned() } else { titled(plotted.heading, part) };
            let title = format!("{number}: {shown}");
            drawings.push((file, plot::bars(&title, &bars)?));
        }
    }
    Ok(())
}

/// A plot of what grows, if there is a curve in it.
fn grown(
    text: &mut String,
    drawings: &mut Drawings,
    number: &str,
    (part, growth): (&Part, Growth),
) -> Result<()> {
    let curves = growth::curves(part, growth);
    if curves.is_empty() {
        return Ok(());
    }
    let axes = Axes { across: growth::heading(growth.across), up: growth::heading(growth.up) };
    let file = format!("{number}-{}.svg", file_name(&format!("{} {}", growth.up, growth.across)));
    let title = format!("{number}: {} over {}", axes.up, axes.across);
    writeln!(text, "![{} over {}]({file})\n", axes.up, axes.across)?;
    // The scale stands in the title.
    let axes = Axes { up: "", ..axes };
    drawings.push((file, curves::draw(&title, axes, &curves)?));
    Ok(())
}

/// Words as a part of a file's name.
fn file_name(text: &str) -> String {
    let signs = text.to_lowercase();
    let parts = signs.split(|sign: char| !sign.is_ascii_alphanumeric());
    parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-")
}

fn sides_table(text: &mut String, columns: &[Column], part: &Part, what: &str) -> Result<()> {
    let headings: Vec<&str> = columns.iter().map(|column| column.heading).collect();
    writeln!(text, "| {what} | {} |", headings.join(" | "))?;
    writeln!(text, "|---|{}", "--:|".repeat(columns.len()))?;
    let mut sides: Vec<_> = part.sides.iter().collect();
    // By what they were measured at; those of the same by name, as they stand.
    for at in ["connections", "slots"] {
        let at = |values: &BTreeMap<String, f64>| values.get(at).copied().unwrap_or_default();
        sides.sort_by(|(_, one), (_, other)| at(one).total_cmp(&at(other)));
    }
    for (side, values) in sides {
        let cell = |column: &Column| values.get(column.name).map_or(String::new(), |&v| short(v));
        let cells: Vec<String> = columns.iter().map(cell).collect();
        writeln!(text, "| {side} | {} |", cells.join(" | "))?;
    }
    writeln!(text)?;
    Ok(())
}

fn bars(part: &Part, column: Column) -> Vec<Bar> {
    let value = |(side, values): (&String, &BTreeMap<String, f64>)| {
        let value = *values.get(column.name)?;
        Some(Bar { label: side.clone(), value, shown: short(value) })
    };
    part.sides.iter().filter_map(value).collect()
}

/// Returns the parts as multiples of their aims. Parts without an aim have none.
fn marks(figures: &[(&str, &Figure)]) -> Vec<Mark> {
    let parts = figures
        .iter()
        .flat_map(|(number, figure)| figure.parts.iter().map(move |part| (number, part)));
    parts
        .filter(|(_, part)| part.aim > 0.0)
        .map(|(number, part)| {
            let good = |value: f64| match part.better {
                Better::Lower => part.aim / value,
                Better::Higher => value / part.aim,
            };
            let ends = [good(part.range[0]), good(part.range[1])];
            Mark {
                label: format!("{number} {}", part.part).trim_end().to_owned(),
                least: ends[0].min(ends[1]),
                value: good(part.value),
                most: ends[0].max(ends[1]),
                ship: good(part.ship),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::Sides;

    fn results() -> Results {
        let goal = goal("T3").unwrap();
        let side = |rate| [("calls_per_s".to_owned(), rate)].into();
        let sides = Sides::from([("farcall".into(), side(20.0)), ("tonic".into(), side(2.0))]);
        let part = |index: usize, value| {
            Part::new(&goal.parts[index], vec![value], sides.clone()).unwrap()
        };
        let figure = Figure::new(goal, vec![part(0, 10.0), part(1, 4.0)], "abc", "a machine");
        let mut results = Results::default();
        results.put("T3", figure.unwrap());
        results
    }

    #[test]
    fn goals_and_sides_have_their_tables() {
        let (sections, drawings) = write(&results()).unwrap();
        let [("tcp", text)] = &sections[..] else { panic!("{sections:?}") };
        assert!(text.contains("Commit abc. Machine: a machine."), "{text}");
        let row = "| ≥ 8.00 | ≥ 20.0 | **10.0** | 10.0 to 10.0 | ship | ratio to tonic |";
        assert!(text.contains(row), "{text}");
        assert_eq!(text.matches("| farcall | 20.0 |").count(), 1, "{text}");
        let names: Vec<&str> = drawings.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["goals-tcp.svg", "T3-over-tonic.svg"]);
        for name in names {
            assert!(text.contains(&format!("({name})")));
        }
    }

    #[test]
    fn marks_say_how_good_whatever_the_direction() {
        let results = results();
        let figures: Vec<_> = results.iter().collect();
        let marks = marks(&figures);
        assert_eq!((marks[0].value, marks[0].ship), (0.5, 0.4));
        assert_eq!(marks[1].label, "T3 over tarpc");
    }

    #[test]
    fn what_grows_is_drawn_as_curves_and_listed_in_order() {
        let goal = goal("C1").unwrap();
        let at = |x: f64| [("connections".to_owned(), x), ("calls_per_s".to_owned(), 5.0)].into();
        let sides: Sides =
            [1.0, 16.0, 1000.0].map(|count| (format!("farcall, {count}"), at(count))).into();
        let part = |part| Part::new(part, vec![2.0], sides.clone()).unwrap();
        let parts = goal.parts.iter().map(part).collect();
        let mut results = Results::default();
        results.put("C1", Figure::new(goal, parts, "abc", "a machine").unwrap());
        let (sections, drawings) = write(&results).unwrap();
        let [("scale", text)] = &sections[..] else { panic!("{sections:?}") };
        let place = |count| text.find(&format!("| farcall, {count} |")).unwrap();
        assert!(place(1) < place(16) && place(16) < place(1000), "{text}");
        let names: Vec<&str> = drawings.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["goals-scale.svg", "C1-calls-per-s-connections.svg"]);
        assert!(text.contains("(C1-calls-per-s-connections.svg)"));
    }
}
