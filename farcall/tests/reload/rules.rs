//! Limits and timeouts that change under servers and channels in use.

use std::time::Duration;

use farcall::{Channel, Code, Reloader, ServerBuilder, Settings};

use crate::file::{File, keys};
use crate::service::{Named, name, serve, wait};

/// A server of a settings file, which is watched.
struct Served {
    file: File,
    reloader: Reloader,
    service: Named,
    address: String,
    /// Goes with the test.
    _settings: Settings,
}

impl Served {
    async fn new(
        name: &str,
        rules: &str,
        change: impl FnOnce(ServerBuilder) -> ServerBuilder,
    ) -> Self {
        let file = File::new(name, &text(rules));
        let settings = file.load();
        let (reloader, service) = (settings.watch().unwrap(), Named::new("s"));
        let (address, server) = settings.server("s").unwrap();
        let server = change(server.add_service(service.clone()));
        let listener = server.bind(address).await.unwrap();
        let address = listener.local_address().to_string();
        tokio::spawn(listener.serve());
        Self { file, reloader, service, address, _settings: settings }
    }

    /// Gives the server other rules.
    fn set(&self, rules: &str) -> Vec<String> {
        self.file.replace(&text(rules));
        keys(&self.reloader.reload().unwrap())
    }

    async fn connect(&self) -> Channel {
        Channel::connect(&self.address).await.unwrap()
    }
}

fn text(rules: &str) -> String {
    format!("[servers.s]\naddress = \"tcp://127.0.0.1:0\"\n{rules}")
}

/// A call that waits for its answer.
fn begin(channel: &Channel) -> tokio::task::JoinHandle<Result<String, farcall::Status>> {
    let channel = channel.clone();
    tokio::spawn(async move { wait(&channel).await })
}

#[tokio::test]
async fn a_server_takes_more_and_fewer_calls() {
    let served = Served::new("calls", "max_calls = 1", |builder| builder).await;
    let channel = served.connect().await;
    let first = begin(&channel);
    served.service.has_begun().await;
    let error = name(&channel).await.unwrap_err();
    assert_eq!(error.code(), Code::ResourceExhausted);
    assert_eq!(
        served.set("max_calls = 2\nmax_calls_per_peer = 2"),
        ["servers.s.max_calls", "servers.s.max_calls_per_peer",]
    );
    // The share of a peer is another from its next connection on.
    let second = served.connect().await;
    assert_eq!(name(&second).await.unwrap(), "s");
    assert_eq!(name(&channel).await.unwrap(), "s", "it holds for all of the peer then");
    served.set("max_calls = 1\nmax_calls_per_peer = 1");
    assert_eq!(name(&channel).await.unwrap_err().code(), Code::ResourceExhausted);
    served.service.answers.add_permits(1);
    assert_eq!(first.await.unwrap().unwrap(), "s");
}

#[tokio::test]
async fn a_client_beyond_max_connections_enters_when_there_is_room() {
    let served = Served::new("connections", "max_connections = 1", |builder| builder).await;
    let first = served.connect().await;
    let (second, (changed, answer)) = tokio::join!(served.connect(), async {
        let answer = name(&first).await;
        (served.set("max_connections = 2\nmax_connections_per_peer = 2"), answer)
    });
    assert_eq!(changed.len(), 2);
    assert_eq!((answer.unwrap(), name(&second).await.unwrap()), ("s".to_owned(), "s".to_owned()));
}

/// Connections on cores take new settings as others do; the number of cores stays.
#[tokio::test]
async fn settings_change_on_the_cores_of_a_server() {
    let served = Served::new("cores", "cores = 2\nmax_calls = 1", |builder| builder).await;
    let channels = [served.connect().await, served.connect().await];
    let first = begin(&channels[0]);
    served.service.has_begun().await;
    // On another core.
    assert_eq!(name(&channels[1]).await.unwrap_err().code(), Code::ResourceExhausted);
    assert_eq!(
        served.set("cores = 3\nmax_calls = 2\nunary_timeout = \"5ms\""),
        ["servers.s.unary_timeout", "servers.s.max_calls", "servers.s.cores (next start)"]
    );
    for channel in &channels {
        assert_eq!(wait(channel).await.unwrap_err().code(), Code::DeadlineExceeded);
        served.service.has_begun().await;
    }
    served.service.answers.add_permits(1);
    assert_eq!(first.await.unwrap().unwrap(), "s");
}

#[tokio::test]
async fn new_connections_get_new_limits_and_open_ones_keep_theirs() {
    let served = Served::new("limits", "", |builder| builder).await;
    let before = served.connect().await;
    assert_eq!(
        served.set("unary_timeout = \"5ms\"\nlimits.max_calls = 1"),
        ["servers.s.unary_timeout", "servers.s.limits.max_calls",]
    );
    // The timeout holds from the next call on.
    assert_eq!(wait(&before).await.unwrap_err().code(), Code::DeadlineExceeded);
    served.set("limits.max_calls = 1");
    let after = served.connect().await;
    let calls = [begin(&before), begin(&before), begin(&after)];
    for _ in 0..3 {
        served.service.has_begun().await;
    }
    // A fourth waits for the third, which has the only one of its connection.
    let fourth = begin(&after);
    served.service.answers.add_permits(4);
    for call in calls.into_iter().chain([fourth]) {
        assert_eq!(call.await.unwrap().unwrap(), "s");
    }
}

#[tokio::test]
async fn what_a_server_has_from_code_stays() {
    let served = Served::new("code", "max_calls = 7", |builder| builder.max_calls(1)).await;
    let channel = served.connect().await;
    assert_eq!(
        served.set("max_calls = 9\nmax_calls_per_peer = 9"),
        ["servers.s.max_calls", "servers.s.max_calls_per_peer",]
    );
    let first = begin(&channel);
    served.service.has_begun().await;
    assert_eq!(name(&channel).await.unwrap_err().code(), Code::ResourceExhausted);
    served.service.answers.add_permits(1);
    assert_eq!(first.await.unwrap().unwrap(), "s");
}

/// A limit that the program sets leaves the others to the file.
#[tokio::test]
async fn limit_of_the_code_leaves_other_limits_live() {
    let set = |builder: ServerBuilder| builder.max_message_len(1 << 20);
    let served = Served::new("one-limit", "limits.max_message_len = 1", set).await;
    let limits = "limits.max_message_len = 2\nlimits.max_calls = 1";
    assert_eq!(served.set(limits).len(), 2);
    let channel = served.connect().await;
    assert_eq!(name(&channel).await.unwrap(), "s");
    let first = begin(&channel);
    served.service.has_begun().await;
    let second = begin(&channel);
    assert_eq!(
        served.set("limits.max_calls = 2"),
        ["servers.s.limits.max_message_len", "servers.s.limits.max_calls",]
    );
    served.service.answers.add_permits(1);
    assert_eq!(first.await.unwrap().unwrap(), "s");
    served.service.has_begun().await;
    served.service.answers.add_permits(1);
    assert_eq!(second.await.unwrap().unwrap(), "s");
}

/// Makes a call that has no answer and ends by its timeout, which has to be long enough for the
/// call to reach its handler.
async fn time_out(channel: &Channel, service: &Named) {
    assert_eq!(wait(channel).await.unwrap_err().code(), Code::DeadlineExceeded);
    service.has_begun().await;
}

#[tokio::test]
async fn calls_have_the_timeout_and_the_methods_of_the_moment() {
    let service = Named::new("t");
    let port = serve(service.clone()).await;
    let text = |rules: &str| format!("[targets.t]\naddress = \"tcp://127.0.0.1:{port}\"\n{rules}");
    let file = File::new("timeouts", &text(""));
    let settings = file.load();
    let reloader = settings.watch().unwrap();
    let set = |rules: &str| {
        file.replace(&text(rules));
        keys(&reloader.reload().unwrap())
    };
    let channel = settings.channel("t").unwrap();
    let built = settings.channel_builder("t").unwrap().timeout(Duration::from_secs(3600));
    let built = built.connect_lazy();
    let without = settings.channel_builder("t").unwrap().timeout(None).connect_lazy();
    assert_eq!(set("timeout = \"300ms\""), ["targets.t.timeout"]);
    time_out(&channel, &service).await;
    let in_code = [begin(&built), begin(&without)];
    for _ in &in_code {
        service.has_begun().await;
    }
    assert_eq!(set("methods.\"/t.Named/Wait\".timeout = \"300ms\"").len(), 2);
    time_out(&channel, &service).await;
    set("");
    let unbounded = begin(&channel);
    service.has_begun().await;
    service.answers.add_permits(3);
    for call in in_code.into_iter().chain([unbounded]) {
        assert_eq!(call.await.unwrap().unwrap(), "t");
    }
}
