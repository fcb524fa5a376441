//! qemu's command line for one guest.

use std::ffi::OsString;
use std::net::UdpSocket;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use super::options::{Acceleration, VmOptions};
use crate::program;

/// Features whose emulation costs more than they bring, measured: without them large transfers run
/// more than twice as fast. `pclmulqdq` must be kept from kernel 7.2 on.
const EMULATED_CPU: &str = "max,-erms,-fsrm,-la57,-pclmulqdq,-smap,-smep,-pku";

/// Mitigations and the search for a good clock cost time and are of no use here. The check of the
/// timer counts ticks of an emulated processor: on a busy host it finds none and panics.
const KERNEL_ARGUMENTS: &str = "console=ttyS0 panic=-1 quiet mitigations=off nokaslr tsc=reliable \
     clocksource=tsc no_timer_check";

/// An instruction takes this power of two of nanoseconds where time counts instructions.
const ICOUNT_SHIFT: u32 = 1;

/// Duration of a guest's instruction, in nanoseconds.
pub(crate) const INSTRUCTION_NANOS: u32 = 1 << ICOUNT_SHIFT;

/// Time for which the guest outlives the host's bound, in seconds, if the host does not kill it.
const ORPHAN_GRACE_SECONDS: u64 = 60;

/// The link between two hosts: datagrams on loopback, which is a hundred times faster than qemu's
/// stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Link {
    ports: [u16; 2],
}

impl Link {
    /// Picks two free ports. Another program may take them before qemu does; qemu says so then.
    ///
    /// # Errors
    ///
    /// Returns an error if loopback has no port left.
    pub(super) fn pick() -> Result<Self> {
        let sockets = [UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?];
        Ok(Self { ports: [sockets[0].local_addr()?.port(), sockets[1].local_addr()?.port()] })
    }

    fn end(self, host: u8) -> (u16, u16) {
        let [first, second] = self.ports;
        if host == 0 { (first, second) } else { (second, first) }
    }
}

/// The files that a guest is made of.
#[derive(Debug)]
pub(super) struct Files<'a> {
    /// The kernel's image.
    pub(super) kernel: &'a Path,
    /// The guest's first file system.
    pub(super) initramfs: &'a Path,
    /// The folder through which host and guest talk.
    pub(super) exchange: &'a Path,
    /// The file that takes the console.
    pub(super) console: &'a Path,
    /// The folder that the command may write to.
    pub(super) share: &'a Path,
}

/// The command that runs the guest `host`.
///
/// # Errors
///
/// Returns an error if a path cannot be written in qemu's syntax.
pub(super) fn command(
    options: &VmOptions,
    host: u8,
    files: &Files<'_>,
    link: Option<Link>,
) -> Result<Command> {
    let mut qemu = program::command("qemu-system-x86_64");
    qemu.args(processor(options));
    qemu.args(["-m", &options.memory.to_string()]);
    qemu.args(["-nodefaults", "-display", "none", "-no-reboot", "-monitor", "none"]);
    qemu.arg("-kernel").arg(files.kernel).arg("-initrd").arg(files.initramfs);
    let life = options.limit().as_secs().saturating_add(ORPHAN_GRACE_SECONDS);
    qemu.arg("-append").arg(format!("{KERNEL_ARGUMENTS} farcall_limit={life}"));
    qemu.arg("-serial").arg(format!("file:{}", plain(files.console)?));
    add_folder(&mut qemu, "root", "path=/,readonly=on,multidevs=remap");
    add_folder(&mut qemu, "exchange", &format!("path={}", plain(files.exchange)?));
    add_folder(&mut qemu, "share", &format!("path={}", plain(files.share)?));
    // qemu's own standard output and error are those of the guest's command.
    qemu.args(["-device", "virtio-serial-pci"]);
    for (port, file) in [(1, "/dev/stdout"), (2, "/dev/stderr")] {
        qemu.arg("-chardev").arg(format!("file,id=output{port},path={file}"));
        qemu.arg("-device").arg(format!("virtserialport,chardev=output{port},nr={port}"));
    }
    if let Some(link) = link {
        add_network(&mut qemu, host, link);
    }
    Ok(qemu)
}

fn processor(options: &VmOptions) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = Vec::new();
    let mut add = |pieces: &[&str]| arguments.extend(pieces.iter().map(OsString::from));
    match options.accel {
        _ if options.icount => {
            // With `sleep=off` an idle guest's time leaps from timer to timer, and whatever is due
            // has expired before the host has read one page of a program.
            let count = format!("shift={ICOUNT_SHIFT},sleep=on");
            add(&["-accel", "tcg,thread=single", "-icount", &count]);
        }
        Acceleration::Tcg => add(&["-accel", "tcg,thread=multi"]),
        Acceleration::Kvm => add(&["-accel", "kvm"]),
    }
    let cpu = if options.accel == Acceleration::Kvm { "host" } else { EMULATED_CPU };
    add(&["-cpu", cpu]);
    let cpus = if options.icount { 1 } else { options.cpus };
    add(&["-smp", &cpus.to_string()]);
    arguments
}

fn add_folder(qemu: &mut Command, tag: &str, options: &str) {
    qemu.arg("-fsdev").arg(format!("local,id={tag},security_model=none,{options}"));
    qemu.arg("-device").arg(format!("virtio-9p-pci,fsdev={tag},mount_tag={tag}"));
}

fn add_network(qemu: &mut Command, host: u8, link: Link) {
    let (own, other) = link.end(host);
    qemu.arg("-netdev")
        .arg(format!("socket,id=link,udp=127.0.0.1:{other},localaddr=127.0.0.1:{own}"));
    // A locally administered address. 4500 bytes hold a RoCE packet of 4096.
    qemu.arg("-device")
        .arg(format!("virtio-net-pci,netdev=link,mac=52:54:00:fa:0c:{host:02x},host_mtu=4500"));
}

/// A path for qemu's comma-separated options.
fn plain(path: &Path) -> Result<String> {
    let text = path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))?;
    Ok(text.replace(',', ",,"))
}

#[cfg(test)]
mod tests {
    use farcall_testkit::process::bounded::command_line;

    use std::time::Duration;

    use super::*;
    use crate::kernel::Series;

    fn line(options: &VmOptions, host: u8, link: Option<Link>) -> String {
        let files = Files {
            kernel: Path::new("/k"),
            initramfs: Path::new("/i"),
            exchange: Path::new("/e"),
            console: Path::new("/e/console"),
            share: Path::new("/s,1"),
        };
        command_line(&command(options, host, &files, link).unwrap())
    }

    fn options() -> VmOptions {
        VmOptions::for_command(vec!["true".into()], Series::V6_1, Duration::from_secs(60))
    }

    #[test]
    fn the_two_ends_of_a_link_name_each_other() {
        let link = Link { ports: [7000, 7001] };
        let [first, second] = [0, 1].map(|host| line(&options(), host, Some(link)));
        assert!(first.contains("udp=127.0.0.1:7001,localaddr=127.0.0.1:7000"), "{first}");
        assert!(second.contains("udp=127.0.0.1:7000,localaddr=127.0.0.1:7001"), "{second}");
        assert!(
            first.contains("mac=52:54:00:fa:0c:00") && second.contains("mac=52:54:00:fa:0c:01")
        );
    }

    #[test]
    fn counting_instructions_takes_one_processor_and_one_thread() {
        let mut options = options();
        options.icount = true;
        let line = line(&options, 0, None);
        assert!(line.contains("thread=single") && line.contains("-smp 1"), "{line}");
        assert!(line.contains("-icount shift=1,sleep=on"), "{line}");
    }

    #[test]
    fn commas_are_doubled_and_the_guest_outlives_the_bound() {
        let line = line(&options(), 0, None);
        assert!(line.contains("path=/s,,1"), "{line}");
        assert!(line.contains("farcall_limit=120"), "{line}");
    }
}
