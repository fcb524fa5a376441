//! A figure that was measured, as it stands in the file of results.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};

use super::goals::{Better, Goal, PartGoal};
use crate::statistics::Spread;

/// Further numbers of each side: medians over the rounds, by side and by number, for example
/// `tonic` and `cpu_us_per_call`.
pub type Sides = BTreeMap<String, BTreeMap<String, f64>>;

/// A value's relation to its goal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// The aim is reached.
    Aim,
    /// It may be shipped.
    Ship,
    /// It is not good enough to be shipped.
    ShortOfShip,
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Aim => "aim",
            Self::Ship => "ship",
            Self::ShortOfShip => "short of ship",
        })
    }
}

/// One value of a figure, with everything that it was made of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// Name of the part among the figure's parts. Empty for the only one.
    pub part: String,
    /// The median of the rounds.
    pub value: f64,
    /// The unit of the value.
    pub unit: String,
    /// The value of every round, in the order of measuring.
    pub rounds: Vec<f64>,
    /// The least and the greatest of the rounds.
    pub range: [f64; 2],
    /// Direction in which values are better.
    pub better: Better,
    /// The least that may be shipped.
    pub ship: f64,
    /// The aim.
    pub aim: f64,
    /// Relation of the value to ship limit and aim.
    pub standing: Standing,
    /// Further numbers of each side.
    pub sides: Sides,
}

impl Part {
    /// A part from the values of its rounds.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no round, or a value that is no number.
    pub fn new(goal: &PartGoal, rounds: Vec<f64>, sides: Sides) -> Result<Self> {
        let spread = Spread::of(&rounds).context("no round, or one that gave no number")?;
        Ok(Self {
            part: goal.name.to_owned(),
            value: spread.median,
            unit: goal.unit.to_owned(),
            rounds,
            range: [spread.least, spread.most],
            better: goal.better,
            ship: goal.ship,
            aim: goal.aim,
            standing: standing(goal, spread.median),
            sides,
        })
    }

    /// Returns the factor by which the value is worse than its aim. Below one it is better.
    fn distance(&self) -> f64 {
        match self.better {
            // An aim of nothing has no multiples: the value itself is how far it is.
            Better::Lower if self.aim == 0.0 => 1.0 + self.value,
            Better::Lower => self.value / self.aim,
            Better::Higher => self.aim / self.value,
        }
    }
}

fn standing(goal: &PartGoal, value: f64) -> Standing {
    let reaches = |limit: f64| match goal.better {
        Better::Lower => value <= limit,
        Better::Higher => value >= limit,
    };
    match (reaches(goal.aim), reaches(goal.ship)) {
        (true, _) => Standing::Aim,
        (false, true) => Standing::Ship,
        (false, false) => Standing::ShortOfShip,
    }
}

/// A figure that was measured. Its own value is that of the part that is furthest from its aim.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// The part that is furthest from its aim.
    #[serde(flatten)]
    pub worst: Part,
    /// Title, in one line.
    pub title: String,
    /// All parts, in the order of the goals.
    pub parts: Vec<Part>,
    /// The commit of what was measured.
    pub commit: String,
    /// On what it was measured: processor, cores, kernel.
    pub machine: String,
}

impl Figure {
    /// A figure from its parts.
    ///
    /// # Errors
    ///
    /// Returns an error if the parts are not those of the goal.
    pub fn new(goal: &Goal, parts: Vec<Part>, commit: &str, machine: &str) -> Result<Self> {
        let names = |parts: &[Part]| parts.iter().map(|part| part.part.clone()).collect::<Vec<_>>();
        let wanted: Vec<&str> = goal.parts.iter().map(|part| part.name).collect();
        ensure!(names(&parts) == wanted, "measured {:?} and not {wanted:?}", names(&parts));
        let worst = parts.iter().max_by(|a, b| a.distance().total_cmp(&b.distance()));
        Ok(Self {
            worst: worst.context("a figure without parts")?.clone(),
            title: goal.title.to_owned(),
            parts,
            commit: commit.to_owned(),
            machine: machine.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::goal;

    fn part_of(number: &str, name: &str, rounds: &[f64]) -> Part {
        let goal = goal(number).unwrap().part(name).unwrap();
        Part::new(goal, rounds.to_vec(), Sides::new()).unwrap()
    }

    #[test]
    fn a_part_is_the_median_of_its_rounds_with_their_range() {
        let part = part_of("T1", "", &[1.5, 1.1, 1.3]);
        assert_eq!((part.value, part.range), (1.3, [1.1, 1.5]));
        assert_eq!(part.rounds, [1.5, 1.1, 1.3]);
        assert_eq!(part.standing, Standing::Ship);
    }

    #[test]
    fn standings_know_which_values_are_better() {
        let of = |number, name, value| part_of(number, name, &[value]).standing;
        assert_eq!(of("T1", "", 1.15), Standing::Aim);
        assert_eq!(of("T1", "", 1.36), Standing::ShortOfShip);
        assert_eq!(of("T5", "", 2.5), Standing::Aim);
        assert_eq!(of("T5", "", 1.2), Standing::Ship);
        assert_eq!(of("T5", "", 1.1), Standing::ShortOfShip);
    }

    #[test]
    fn a_figure_is_as_good_as_its_worst_part() {
        // 10 of 20 is nearer to its aim than 2.4 of 6.
        let parts = vec![part_of("T3", "over tonic", &[10.0]), part_of("T3", "over tarpc", &[2.4])];
        let figure = Figure::new(goal("T3").unwrap(), parts, "abc", "a machine").unwrap();
        assert_eq!(figure.worst.part, "over tarpc");
        assert_eq!(figure.worst.standing, Standing::ShortOfShip);
    }

    #[test]
    fn a_figure_needs_all_its_parts_in_order() {
        let parts = vec![part_of("T3", "over tonic", &[10.0])];
        let error = Figure::new(goal("T3").unwrap(), parts, "abc", "a machine").unwrap_err();
        assert!(error.to_string().contains("over tarpc"), "{error}");
    }

    #[test]
    fn rounds_that_gave_no_number_are_an_error() {
        let goal = goal("T1").unwrap().part("").unwrap();
        assert!(Part::new(goal, Vec::new(), Sides::new()).is_err());
        assert!(Part::new(goal, vec![1.0, f64::NAN], Sides::new()).is_err());
    }

    #[test]
    fn an_aim_of_nothing_has_a_distance() {
        let (none, one) = (part_of("R9", "client", &[0.0]), part_of("R9", "server", &[1.0]));
        assert!(none.distance() < one.distance());
        assert_eq!((none.standing, one.standing), (Standing::Aim, Standing::Ship));
    }
}
