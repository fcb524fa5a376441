//! A runtime for each core: of a client, and of a server.

use std::thread;

use farcall::{Channel, Server, per_core};
use farcall_examples::hello::greeter_rpc::{GreeterService, GreeterStub};
use tokio::sync::oneshot;

use super::{MyGreeter, hello};

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Makes `count` calls on each of `cores` cores, and returns the sum of those that were answered.
fn call_per_core(address: &str, cores: usize, count: u64) -> Outcome<u64> {
    let channel = Channel::builder(address)?.per_runtime(true).connect_lazy();
    let answered = per_core(cores, |core| {
        let stub = GreeterStub::new(channel.clone());
        async move {
            for _ in 0..count {
                stub.say_hello(hello(&format!("core {core}"))).await?;
            }
            Outcome::Ok(count)
        }
    })?;
    Ok(answered.into_iter().sum())
}

#[tokio::test]
async fn cores_of_a_client_call_cores_of_a_server() -> Outcome<()> {
    let listener = Server::builder()
        .cores(2)
        .add_service(GreeterService::new(MyGreeter))
        .bind("tcp://127.0.0.1:0")
        .await?;
    let address = listener.local_address().to_string();
    let (shutdown, shut_down) = oneshot::channel::<()>();
    let serving = listener.serve().with_graceful_shutdown(async { drop(shut_down.await) });
    // `per_core` blocks its thread, so that `main` calls it, and no task.
    let calling = thread::spawn(move || {
        let answered = call_per_core(&address, 2, 10);
        drop(shutdown);
        answered
    });
    serving.await?;
    assert_eq!(calling.join().expect("no panic")?, 20);
    Ok(())
}
