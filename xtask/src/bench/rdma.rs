//! The RDMA group of `cargo xtask bench`: on this host's device, or in the virtual machine.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use farcall_testkit::git;

use super::options::{BenchOptions, Group};
use crate::batch::Job;
use crate::kernel::Series;
use crate::rdma_device::RdmaDevice;
use crate::rdma_place::RdmaPlace;
use crate::rdma_programs::{RdmaProgram, Target};
use crate::setup::{self, Purpose};

/// The driver with what it starts, which all are one program.
pub(crate) const DRIVER: RdmaProgram = RdmaProgram {
    package: "farcall-benches",
    target: Target::Measured("farcall-bench"),
    arguments: &[],
    limit_seconds: 900,
};

/// The figure about memory windows, which can bring Soft-RoCE's kernel down. It is measured last,
/// and in the virtual machine in a boot of its own.
const APART: &str = "R8";

/// The file of results in the folder that is shared with the virtual machine.
const RESULTS: &str = "figures.json";

/// Measures the group, and puts its figures beside those that the file of `options` has.
///
/// # Errors
///
/// Returns an error if something cannot be built or started, or a figure could not be measured; the
/// others have been printed and kept by then.
pub(crate) fn run(options: &BenchOptions) -> Result<()> {
    measure(options, boots(options))
}

/// Runs the driver once for each of `boots`, which are its arguments, in a boot of its own.
///
/// # Errors
///
/// Returns the errors of [`run`].
pub(crate) fn measure(options: &BenchOptions, boots: Vec<Vec<String>>) -> Result<()> {
    let place = RdmaPlace::find(Series::V6_1);
    setup::ensure(&[&[Purpose::Build, Purpose::Bench], place.purposes()].concat())?;
    place.announce();
    let mut jobs = DRIVER.build(&place.addresses())?;
    let driver = jobs.pop().context("the build produced no driver")?;
    let folder = tempfile::Builder::new().prefix("farcall-bench-").tempdir()?;
    let inside = folder.path().join(RESULTS);
    if let Some(file) = options.json.as_ref().filter(|file| file.exists()) {
        fs::copy(file, &inside).with_context(|| format!("reading {}", file.display()))?;
    }
    let seen = place.share_as_seen(folder.path()).join(RESULTS);
    // Asked here, since git's files are slow to read in the virtual machine.
    let commit = git::commit()?;
    let mut failures = Vec::new();
    for boot in boots {
        let mut arguments = boot;
        arguments.extend(["--json".to_owned(), seen.display().to_string()]);
        arguments.extend(["--commit".to_owned(), commit.clone()]);
        arguments.extend(devices(&place));
        let limit_seconds = options.limit().as_secs();
        let job = Job { arguments, limit_seconds, ..driver.clone() };
        failures.extend(place.run_sharing(&[job], folder.path()).err());
        keep(&inside, options.json.as_deref())?;
    }
    match failures.into_iter().next() {
        None => Ok(()),
        Some(error) => bail!(error.context("some RDMA figures were not measured")),
    }
}

/// The arguments of the driver for each run of it.
fn boots(options: &BenchOptions) -> Vec<Vec<String>> {
    let arguments = |only: Vec<String>, others: &[&str]| {
        let mut arguments = options.arguments_without_file(Group::Rdma, &only);
        arguments.extend(others.iter().map(|&word| word.to_owned()));
        arguments
    };
    let only = options.only_of(Group::Rdma);
    if only.is_empty() {
        let apart = arguments(vec![APART.to_owned()], &[]);
        return vec![arguments(only, &["--except", APART]), apart];
    }
    let (apart, most): (Vec<_>, Vec<_>) =
        only.into_iter().partition(|number| number.eq_ignore_ascii_case(APART));
    let boots = [most, apart].into_iter().filter(|only| !only.is_empty());
    boots.map(|only| arguments(only, &[])).collect()
}

/// The arguments that name a host's own device. What the driver takes by itself are those of the
/// virtual machine.
fn devices(place: &RdmaPlace) -> Vec<String> {
    let RdmaPlace::Host(RdmaDevice { name, address, .. }) = place else { return Vec::new() };
    let arguments = [
        ("--client-device", name.clone()),
        ("--server-device", name.clone()),
        ("--server-address", address.to_string()),
    ];
    arguments.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]).collect()
}

/// Takes the results out to where they were asked for, as soon as there are some.
fn keep(inside: &Path, wanted: Option<&Path>) -> Result<()> {
    let Some(wanted) = wanted.filter(|_| inside.exists()) else { return Ok(()) };
    fs::copy(inside, wanted).with_context(|| format!("writing {}", wanted.display()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(only: &[&str]) -> Vec<String> {
        let options = BenchOptions::quick(only);
        boots(&options).into_iter().map(|arguments| arguments.join(" ")).collect()
    }

    #[test]
    fn windows_are_measured_in_a_boot_of_their_own() {
        let all = lines(&[]);
        assert_eq!(all[0], "--group rdma --quick --except R8");
        assert_eq!(all[1], "--group rdma --only R8 --quick");
        let some = lines(&["R1", "T2", "r8"]);
        assert_eq!(some, ["--group rdma --only R1 --quick", "--group rdma --only r8 --quick"]);
        assert_eq!(lines(&["R8"]).len(), 1);
    }

    #[test]
    fn a_hosts_device_is_named() {
        let device =
            RdmaDevice { name: "mlx5_0".into(), port: "1".into(), address: [10, 1, 2, 3].into() };
        let line = devices(&RdmaPlace::Host(device)).join(" ");
        assert_eq!(line, "--client-device mlx5_0 --server-device mlx5_0 --server-address 10.1.2.3");
        assert!(devices(&RdmaPlace::Vm(Series::V6_1)).is_empty());
    }

    #[test]
    fn results_come_out_when_there_are_some() {
        let folder = tempfile::tempdir().unwrap();
        let (inside, wanted) = (folder.path().join("inside"), folder.path().join("wanted"));
        keep(&inside, Some(&wanted)).unwrap();
        assert!(!wanted.exists());
        fs::write(&inside, "{}").unwrap();
        keep(&inside, None).unwrap();
        keep(&inside, Some(&wanted)).unwrap();
        assert_eq!(fs::read_to_string(&wanted).unwrap(), "{}");
    }
}
