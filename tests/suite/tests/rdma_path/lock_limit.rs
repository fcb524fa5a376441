//! Under a limit on locked memory, as an ordinary user has it: a process of its own, since the
//! limit is a process's and root's processes have none.

use std::process::{Command, ExitCode, Stdio};

use farcall::{ChannelBuilder, Code, Rdma, RdmaConfig};
use farcall_suite::Failure;
use farcall_suite::OneServer as _;
use farcall_suite::proto::ParkRequest;
use farcall_suite::proto::probe_rpc::ProbeStub;

use crate::rig::{LIMIT, Rig, client, devices, download, echo, lane, runtime, upload};

/// Debian's default: 8192 KiB, as `ulimit -l` has it.
const DEFAULT_LIMIT: usize = 8 << 20;

/// Less than the receive slots of a lane.
const LOW_LIMIT: usize = 1 << 20;

/// The variables that say what the limited process is to do, and the server to call.
const ROLE: &str = "FARCALL_RDMA_LOCK_LIMIT";
const AUTHORITY: &str = "FARCALL_RDMA_LOCK_LIMIT_SERVER";

/// Calls, or fails to.
const CALL: &str = "call";
const FAIL: &str = "fail";

/// Plays the role that the environment gives this process, if it does.
pub(crate) fn play() -> Option<ExitCode> {
    let role = std::env::var(ROLE).ok()?;
    let authority = std::env::var(AUTHORITY).expect("the test names the server to call");
    let played = runtime().block_on(async {
        match role.as_str() {
            CALL => call_under_limit(&authority).await,
            _ => fail_to_connect(&authority).await,
        }
    });
    Some(match played {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("limited process: {failure}");
            ExitCode::FAILURE
        }
    })
}

/// Returns the output of a process in a role, with the rights of this one except for the one to
/// exceed the limit.
fn under_limit(role: &str, authority: &str, limit: usize) -> String {
    let output = Command::new("prlimit")
        .args([&format!("--memlock={limit}:{limit}"), "--", "setpriv"])
        .args(["--bounding-set=-ipc_lock", "--inh-caps=-ipc_lock"])
        .arg(std::env::current_exe().expect("this program has a path"))
        .env(ROLE, role)
        .env(AUTHORITY, authority)
        .stdin(Stdio::null())
        .output()
        .expect("prlimit and setpriv of util-linux are installed");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{errors}");
    text
}

/// Returns such a process's output about a server that waits for it.
fn said(rig: &Rig, limit: usize, role: &'static str) -> Result<String, Failure> {
    rig.run(async {
        let server = rig.serve(Default::default()).await?;
        let authority = server.authority.clone();
        let said = tokio::task::spawn_blocking(move || under_limit(role, &authority, limit));
        let said = said.await?;
        print!("{said}");
        Ok(said)
    })
}

/// Returns a builder that uses devices with the default configuration.
fn patient(scheme: &str, authority: &str) -> Result<ChannelBuilder, Failure> {
    let rdma = devices(RdmaConfig::default());
    Ok(client(scheme, authority, &rdma)?.handshake_timeout(LIMIT))
}

pub(crate) fn eight_mib(rig: &Rig) -> Result<(), Failure> {
    let said = said(rig, DEFAULT_LIMIT, CALL)?;
    assert!(said.contains("everything went by RDMA"), "{said}");
    Ok(())
}

pub(crate) fn too_little(rig: &Rig) -> Result<(), Failure> {
    let said = said(rig, LOW_LIMIT, FAIL)?;
    let (refused, fallback) = said.trim().split_once('\n').expect("two reasons");
    for reason in [refused, fallback] {
        for text in ["RLIMIT_MEMLOCK", &LOW_LIMIT.to_string(), "ulimit -l", "limits.conf"] {
            assert!(reason.contains(text), "`{text}` is missing: {reason}");
        }
    }
    Ok(())
}

/// Small and large calls both ways, more of them at a time than there is memory for.
async fn call_under_limit(authority: &str) -> Result<(), Failure> {
    let rdma = Rdma::default();
    let channel = patient("rdma", authority)?.rdma(&rdma).connect().await?;
    let stub = ProbeStub::new(channel.clone());
    for seed in 0..20 {
        echo(&stub, seed, 1000).await?;
    }
    for _ in 0..4 {
        upload(&stub, 1 << 20).await?;
    }
    let calls = (0..16u64).map(|seed| {
        let stub = stub.clone();
        tokio::spawn(async move {
            let len = 512 << 10;
            match seed % 2 {
                0 => {
                    assert!(download(&stub, seed, len).await? == farcall_suite::payload(seed, len));
                }
                _ => upload(&stub, len).await?,
            }
            Ok::<_, Failure>(())
        })
    });
    // Those that the memory does not reach for wait for it, and none is refused.
    for call in calls.collect::<Vec<_>>() {
        call.await.expect("it does not panic")?;
    }
    println!("{:?}", lane(&rdma));
    let payload = vec![0; 16 << 20].into();
    let too_large = ParkRequest { payload, ..Default::default() };
    let refused = stub.park(too_large).await.expect_err("16 MiB do not fit 8");
    println!("{refused}");
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert!(refused.message().contains("RLIMIT_MEMLOCK"), "{refused}");
    echo(&stub, 1, 1000).await?;
    println!("everything went by RDMA");
    Ok(())
}

/// A connection that cannot be had, and its reason.
async fn fail_to_connect(authority: &str) -> Result<(), Failure> {
    let refused = patient("rdma", authority)?.connect().await;
    println!("{}", refused.expect_err("there is no memory for a lane"));
    let fallen = patient("auto", authority)?.connect().await?;
    let info = fallen.info().expect("it is connected");
    assert_eq!(info.transport, "tcp");
    println!("{}", info.fallback.expect("it says why"));
    Ok(())
}
