//! Findings about limits of the process and settings of the machine. Pure.

use super::facts::{Container, Device, Facts, processors};
use super::finding::{Cause, Finding};

const MIB: u64 = 1 << 20;

/// Locked memory of the smallest lane, with room for large frames: RDMA works below it, and leaves
/// clients on TCP.
const MEMLOCK_MIN: u64 = 32 * MIB;

/// Locked memory of one lane and of both pools for large frames.
const MEMLOCK_FULL: u64 = 1_043 * MIB;

/// Descriptors below which a server meets its limit before farcall's own.
const OPEN_FILES_MIN: u64 = 4_096;

/// Round trip that the product of TCP's buffers is computed with, in microseconds.
const ROUND_TRIP_US: f64 = 200.0;

/// Difference between clocks above which certificates are at risk, in seconds.
const CLOCK_MAX: i64 = 60;

/// The findings about the process and the machine.
pub(crate) fn machine(facts: &Facts) -> Vec<Finding> {
    let mut findings = memlock(facts);
    findings.extend(facts.devices.iter().filter_map(iommu));
    findings.extend(facts.devices.iter().filter_map(|device| numa(facts, device)));
    findings.push(huge_pages(facts));
    findings.push(clock(facts));
    findings.push(open_files(facts));
    findings.extend(tcp_buffers(facts));
    findings
}

fn memlock(facts: &Facts) -> Vec<Finding> {
    const NAME: &str = "memlock";
    let process = &facts.process;
    let limit = match process.memlock {
        _ if process.has_ipc_lock => {
            return vec![Finding::ok(NAME, "no limit: the process has CAP_IPC_LOCK")];
        }
        None => return vec![Finding::ok(NAME, "no limit")],
        Some(limit) if limit >= MEMLOCK_FULL => {
            return vec![Finding::ok(NAME, format!("{} MiB may be locked", limit / MIB))];
        }
        Some(limit) => limit,
    };
    let shown = limit / 1_024;
    let text = format!(
        "{shown} KiB may be locked: a lane takes 5.8 MiB (17.9 on mlx5), and large frames up to \
         1 GiB"
    );
    let is_small = limit < MEMLOCK_MIN;
    let finding = match is_small {
        true => Finding::fault(NAME, Cause::Memlock, text),
        false => Finding::advice(NAME, Cause::Memlock, text),
    };
    let mut findings = vec![raise_memlock(facts, finding)];
    if is_small && process.user != 0 && process.may_have_ipc_lock {
        let text = format!(
            "user {} lost CAP_IPC_LOCK, which programs of other users than root get by their file \
             alone",
            process.user
        );
        let fault = Finding::fault("ipc-lock", Cause::IpcLock, text)
            .fix("setcap cap_ipc_lock=ep PROGRAM   # in an image: RUN setcap ..")
            .fix("systemctl edit SERVICE   # [Service] AmbientCapabilities=CAP_IPC_LOCK");
        findings.push(fault);
    }
    findings
}

fn raise_memlock(facts: &Facts, finding: Finding) -> Finding {
    match facts.container {
        Some(Container::Docker) => finding.fix("docker run --ulimit memlock=-1 .."),
        Some(Container::Podman) => finding.fix("podman run --ulimit memlock=-1 .."),
        Some(Container::Kubernetes) => finding.fix(
            "systemctl edit containerd   # on each node: [Service] LimitMEMLOCK=infinity; then \
             systemctl restart containerd",
        ),
        None => finding
            .fix("systemctl edit SERVICE   # [Service] LimitMEMLOCK=infinity")
            .fix("ulimit -l unlimited   # in a shell of root"),
    }
}

fn iommu(device: &Device) -> Option<Finding> {
    let mode = device.iommu.as_deref()?;
    let name = &device.name;
    if !mode.starts_with("DMA") {
        return Some(Finding::ok("iommu", format!("{name} is not translated ({mode})")));
    }
    let text =
        format!("the IOMMU translates each access of {name} ({mode}), and ACS may detour it");
    let command = "sed -i 's/^GRUB_CMDLINE_LINUX=\"/&iommu=pt /' /etc/default/grub && update-grub";
    Some(Finding::advice("iommu", Cause::Iommu, text).fix(command))
}

fn numa(facts: &Facts, device: &Device) -> Option<Finding> {
    let number = device.numa_node?;
    let node = facts.machine.numa_nodes.iter().find(|node| node.number == number)?;
    let near = processors(&node.processors);
    let ours = processors(&facts.process.processors);
    let name = &device.name;
    if near.is_empty() || ours.iter().any(|processor| near.contains(processor)) {
        return Some(Finding::ok(
            "numa",
            format!("processors of {name}'s node {number} are usable"),
        ));
    }
    let text = format!(
        "{name} is at NUMA node {number} (processors {}), and the process runs on {}",
        node.processors, facts.process.processors
    );
    let command = format!("numactl --cpunodebind={number} --membind={number} PROGRAM");
    Some(Finding::advice("numa", Cause::Numa, text).fix(command))
}

fn huge_pages(facts: &Facts) -> Finding {
    const NAME: &str = "huge pages";
    let machine = &facts.machine;
    let mode = machine.transparent_huge_pages.as_deref();
    match (mode, machine.free_huge_pages) {
        (_, free @ 1..) => Finding::ok(NAME, format!("{free} reserved ones are free")),
        (Some("never") | None, 0) => {
            let text = "none: registered memory takes more entries of the NIC's table";
            Finding::advice(NAME, Cause::HugePages, text)
                .fix("echo madvise > /sys/kernel/mm/transparent_hugepage/enabled")
        }
        (Some(mode), 0) => Finding::ok(NAME, format!("transparent ones ({mode})")),
    }
}

fn clock(facts: &Facts) -> Finding {
    const NAME: &str = "clock";
    let Some(ahead) = facts.machine.clock_ahead else {
        return Finding::note(NAME, "no hardware clock to compare with: `date -u` on both hosts");
    };
    // Hardware clocks may have local time, which differs by quarters of an hour.
    let skew = (ahead + 450).rem_euclid(900) - 450;
    if skew.abs() <= CLOCK_MAX && ahead.abs() < 15 * 3_600 {
        return Finding::ok(NAME, "agrees with the hardware's");
    }
    let text = format!(
        "the clock and the hardware's differ by {} s: TLS refuses certificates that seem expired",
        ahead.unsigned_abs()
    );
    Finding::advice(NAME, Cause::Clock, text).fix("timedatectl set-ntp true")
}

fn open_files(facts: &Facts) -> Finding {
    const NAME: &str = "open files";
    match facts.process.open_files {
        None => Finding::ok(NAME, "no limit"),
        Some(limit) if limit >= OPEN_FILES_MIN => Finding::ok(NAME, format!("{limit}")),
        Some(limit) => {
            let text = format!("{limit} descriptors: each connection takes one");
            let fix = "systemctl edit SERVICE   # [Service] LimitNOFILE=65536";
            Finding::advice(NAME, Cause::OpenFiles, text).fix(fix)
        }
    }
}

/// Compares TCP's buffers with the product of the fastest port's rate and a round trip.
fn tcp_buffers(facts: &Facts) -> Option<Finding> {
    const NAME: &str = "tcp buffers";
    let rates = facts.ports().filter(|(_, port)| port.is_active());
    let gigabits = rates.filter_map(|(_, port)| port.gigabits).fold(0.0, f64::max);
    let machine = &facts.machine;
    let (receive_max, send_max) = (machine.tcp_receive_max?, machine.tcp_send_max?);
    let smallest = receive_max.min(send_max);
    // Rates of unknown links are far below what an integer holds.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let product = (gigabits.clamp(0.0, 1e5) * 1e9 / 8.0 * ROUND_TRIP_US / 1e6) as u64;
    if product <= smallest {
        return Some(Finding::ok(NAME, format!("{smallest} bytes")));
    }
    let text = format!(
        "{smallest} bytes: a fallback to TCP needs {product} for {gigabits} Gb/s over 200 us"
    );
    let setting = |name: &str, middle: u32, max: u64| {
        // The larger of the two stays as it is.
        format!("net.ipv4.{name}=\"4096 {middle} {}\"", max.max(product))
    };
    let receive = setting("tcp_rmem", 131_072, receive_max);
    let send = setting("tcp_wmem", 16_384, send_max);
    Some(Finding::advice(NAME, Cause::TcpBuffers, text).fix(format!("sysctl -w {receive} {send}")))
}
