//! Payloads go by verbs, small ones by SEND and large ones by READ, and TCP stays silent.

use farcall_suite::Failure;
use farcall_suite::proto::probe_rpc::ProbeStub;

use crate::device::Counts;
use crate::proxy::Proxy;
use crate::rig::{Rig, Serving, connect, devices, download, echo, upload};

const SMALL_CALLS: u64 = 200;
const LARGE_CALLS: u64 = 4;
const LARGE_LEN: usize = 8 << 20;

/// The longest packet that carries payload on any RDMA network.
const MTU_MAX: u64 = 4096;

/// Messages that one large call may take: request, offer, answer, release, and a share of grants
/// and of what the connection's neighbours would need.
const SENDS_PER_LARGE_CALL_MAX: u64 = 8;

/// Grants that may go out alone while the windows of a new connection grow, both ways.
const GRANTS_MAX: u64 = 8;

/// A connection whose bootstrap runs through a hop that counts.
struct Watched {
    _server: Serving,
    proxy: Proxy,
    stub: ProbeStub,
}

impl Watched {
    async fn new(rig: &Rig) -> Result<Self, Failure> {
        let server = rig.serve(Default::default()).await?;
        let proxy = Proxy::start(&rig.host, &server.authority, None).await?;
        let stub = ProbeStub::new(connect(&proxy.authority, &devices(Default::default())).await?);
        // What the handshake leaves to be said, grants included, is said with this call.
        echo(&stub, 0, 64).await?;
        Ok(Self { _server: server, proxy, stub })
    }

    /// Returns the counts of both devices while `calls` run. Not a byte passes on the bootstrap
    /// meanwhile.
    async fn counts_of(
        &self,
        rig: &Rig,
        calls: impl Future<Output = Result<(), Failure>>,
    ) -> Result<Counts, Failure> {
        let (before, passed_before) = (rig.counts(), self.proxy.passed_bytes());
        assert!(passed_before > 0, "the hop sees the handshake");
        calls.await?;
        let counts = rig.counts() - before;
        assert_eq!(self.proxy.passed_bytes(), passed_before, "bytes on the bootstrap");
        Ok(counts)
    }
}

pub(crate) fn small_calls_go_by_send(rig: &Rig) -> Result<(), Failure> {
    rig.run(async {
        let watched = Watched::new(rig).await?;
        let calls = async {
            for seed in 0..SMALL_CALLS {
                echo(&watched.stub, seed, 64).await?;
            }
            Ok(())
        };
        let counts = watched.counts_of(rig, calls).await?;
        println!("{SMALL_CALLS} small calls: {counts:?}, and no byte on TCP");
        assert!(counts.receives >= 2 * SMALL_CALLS, "{counts:?}");
        // The completion of the last answer may be missing: no call has waited for it.
        assert!(counts.sends + 1 >= 2 * SMALL_CALLS, "{counts:?}");
        // A few grants while windows grow; after that they ride on requests and answers.
        assert!(counts.sends <= 2 * SMALL_CALLS + GRANTS_MAX, "{counts:?}");
        Ok(())
    })
}

pub(crate) fn large_payloads_go_by_read(rig: &Rig) -> Result<(), Failure> {
    rig.run(async {
        let watched = Watched::new(rig).await?;
        let downloads = async {
            for seed in 0..LARGE_CALLS {
                let payload = download(&watched.stub, seed, LARGE_LEN).await?;
                assert!(payload == farcall_suite::payload(seed, LARGE_LEN), "seed {seed}");
            }
            Ok(())
        };
        check("downloads", watched.counts_of(rig, downloads).await?);
        let uploads = async {
            for _ in 0..LARGE_CALLS {
                upload(&watched.stub, LARGE_LEN).await?;
            }
            Ok(())
        };
        check("uploads", watched.counts_of(rig, uploads).await?);
        Ok(())
    })
}

fn check(what: &str, counts: Counts) {
    let mib = LARGE_LEN >> 20;
    println!("{LARGE_CALLS} {what} of {mib} MiB: {counts:?}, and no byte on TCP");
    let payload_packets = LARGE_CALLS * LARGE_LEN as u64 / MTU_MAX;
    assert!(counts.packets_sent >= payload_packets, "{what}: {counts:?}");
    assert!(counts.packets_received >= payload_packets, "{what}: {counts:?}");
    let sends_max = LARGE_CALLS * SENDS_PER_LARGE_CALL_MAX;
    assert!(counts.sends <= sends_max && counts.receives <= sends_max, "{what}: {counts:?}");
}
