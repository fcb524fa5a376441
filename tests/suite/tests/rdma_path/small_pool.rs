//! A pool that is too small for what is asked of it: who waits, who is refused, who goes on.

use std::time::Duration;

use farcall::{Code, RdmaConfig};
use farcall_suite::Failure;
use farcall_suite::proto::ProduceRequest;
use farcall_suite::proto::probe_rpc::ProbeStub;

use crate::rig::{LIMIT, Rig, connect, devices, echo, is_idle, lane, until, within};

const LEN: usize = 1 << 20;
const SMALL_CALLS: u64 = 20;

/// Room for one frame of `LEN` at a time, and patience.
fn tiny(memory_timeout: Duration) -> RdmaConfig {
    let mut rdma = RdmaConfig::default();
    rdma.max_sink_bytes = 2 << 20;
    rdma.memory_timeout = memory_timeout;
    rdma.lease_warn_after = Duration::from_millis(100);
    rdma
}

fn request(seed: u64) -> ProduceRequest {
    ProduceRequest { seed, len: LEN as u64 }
}

/// The application keeps what it was given, so that there is no room for another.
pub(crate) fn exhausted(rig: &Rig) -> Result<(), Failure> {
    rig.run(async {
        let server = rig.serve(Default::default()).await?;
        let rdma = devices(tiny(LIMIT));
        let stub = ProbeStub::new(connect(&server.authority, &rdma).await?);
        let kept = stub.produce(request(0)).await?.into_inner();
        let waiting = tokio::spawn({
            let stub = stub.clone();
            async move { stub.produce(request(1)).await }
        });
        for seed in 0..SMALL_CALLS {
            within("a small call", echo(&stub, seed, 64)).await?;
        }
        assert!(!waiting.is_finished(), "a large one waits meanwhile");
        drop(kept);
        let reply = within("the waiting call", waiting).await.expect("it does not panic")?;
        assert!(reply.into_inner().payload == farcall_suite::payload(1, LEN));
        until("the memory's return", || is_idle(&lane(&rdma), 1)).await;
        Ok(())
    })
}

pub(crate) fn refused(rig: &Rig) -> Result<(), Failure> {
    rig.run(async {
        let server = rig.serve(Default::default()).await?;
        let rdma = devices(tiny(Duration::from_secs(2)));
        let stub = ProbeStub::new(connect(&server.authority, &rdma).await?);
        let kept = stub.produce(request(0)).await?.into_inner();
        let refused = within("the end of the wait", stub.produce(request(1))).await;
        let refused = refused.expect_err("nothing came free in time");
        println!("{refused}");
        assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
        assert!(refused.message().contains("rdma.max_sink_bytes"), "{refused}");
        within("a small call", echo(&stub, 1, 64)).await?;
        until("a word on the lease", || lane(&rdma).leases_overdue == 1).await;
        drop(kept);
        until("the memory's return", || is_idle(&lane(&rdma), 1)).await;
        let lane = lane(&rdma);
        assert_eq!(lane.leases_held, 0, "{lane:?}");
        within("a large call", stub.produce(request(2))).await?;
        Ok(())
    })
}
