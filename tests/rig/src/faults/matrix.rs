//! The rows, one after the other.

use farcall::Rdma;

use super::conduct::show;
use super::far_host::is_first;
use super::lab::{Lab, be_far_host};
use super::rows::{ROWS, Row, Scene};
use super::table::Block;
use crate::RigError;
use crate::matrix::{Matrix, Selection, Verdict};

/// Prints the rows: name, machines it takes, and what happens.
pub fn list() {
    for row in ROWS {
        let hosts = match row.scene {
            Scene::Here(_) | Scene::Impossible(_) => 1,
            Scene::TwoHosts(_) => 2,
        };
        println!("{}\t{hosts}\t{}", row.name, row.what);
    }
    println!("cancels\t1\tlarge calls given up at random moments: nothing harmed, nothing left");
}

/// Shows the rows of one machine and prints what they show; true when every one holds.
///
/// # Errors
///
/// Returns an error if the machine is not the virtual one, or has not what it takes.
pub fn matrix(selection: &Selection) -> Result<bool, RigError> {
    check(selection)?;
    let mut lab = Lab::on_one_host()?;
    let defect = read_defect()?;
    if let Some(defect) = &defect {
        println!("the devices are not trusted: {defect}\n");
    }
    Ok(show_all(&mut lab, |row| match row.scene {
        _ if !is_chosen(selection, row) => None,
        Scene::TwoHosts(_) => None,
        Scene::Here(plan) if defect.is_some() => Some(Scene::Here(plan.with_defect())),
        scene => Some(scene),
    }))
}

/// Why READs of this machine's devices are not trusted.
fn read_defect() -> Result<Option<String>, RigError> {
    let devices = Rdma::default().survey().map_err(|error| RigError::Missing(error.to_string()))?;
    Ok(devices.into_iter().find_map(|device| device.read_defect))
}

/// Shows the rows of two machines: the first one serves and does what it is told, the second one
/// shows the rows. Which of them this is, the virtual machine says.
///
/// # Errors
///
/// Returns the errors of [`matrix`].
pub fn two_hosts(selection: &Selection) -> Result<bool, RigError> {
    check(selection)?;
    if is_first() {
        return be_far_host().map(|()| true);
    }
    Ok(show_all(&mut Lab::on_two_hosts()?, |row| match row.scene {
        Scene::TwoHosts(plan) if is_chosen(selection, row) => Some(Scene::Here(plan)),
        _ => None,
    }))
}

fn check(selection: &Selection) -> Result<(), RigError> {
    selection.check(|name| ROWS.iter().any(|row| row.name == name))
}

fn is_chosen(selection: &Selection, row: &Row) -> bool {
    selection.has(row.name, row.is_quick)
}

fn show_all(lab: &mut Lab, scene: impl Fn(&Row) -> Option<Scene>) -> bool {
    let mut matrix = Matrix::start();
    let scenes = ROWS.iter().filter_map(|row| Some((row, scene(row)?)));
    for (row, scene) in scenes {
        println!("== {}: {}", row.name, row.what);
        let mut is_lifted = true;
        matrix.add(row.name, |watchdog| {
            let shown = match scene {
                Scene::Here(plan) | Scene::TwoHosts(plan) => show(&plan, lab, watchdog),
                Scene::Impossible(reason) => {
                    println!("  cannot be shown here: {reason}\n");
                    return Verdict::Impossible;
                }
            };
            match shown {
                Ok(shown) => {
                    println!("{}", Block(&shown));
                    Verdict::on(&shown.complaints)
                }
                Err(error) => {
                    println!("  FAILED: {error}");
                    is_lifted = false;
                    Verdict::Broken(1)
                }
            }
        });
        if !is_lifted {
            println!("\nthe rows after it are not shown, since the fault may still be there");
            break;
        }
    }
    print!("{matrix}");
    matrix.holds()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_rows_are_unique() {
        for (index, row) in ROWS.iter().enumerate() {
            assert!(ROWS[..index].iter().all(|other| other.name != row.name), "{}", row.name);
        }
        let selection = Selection { rows: vec!["no-such".into()], is_quick: false };
        assert!(check(&selection).unwrap_err().to_string().contains("no-such"));
    }

    #[test]
    fn the_short_form_has_rows_and_not_all() {
        let quick = Selection { is_quick: true, ..Default::default() };
        let count = ROWS.iter().filter(|row| is_chosen(&quick, row)).count();
        assert!(count > 0 && count < ROWS.len());
    }

    #[test]
    fn nothing_is_broken_outside_of_the_virtual_machine() {
        if std::env::var_os("FARCALL_VM_HOST").is_none() {
            let refused = matrix(&Selection::default()).unwrap_err();
            assert!(matches!(refused, RigError::NotInMachine), "{refused}");
        }
    }
}
