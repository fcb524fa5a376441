//! The command line: global flags, commands, and the parsers of their values.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use farcall::Code;
use farcall::metadata::{
    AsciiMetadataKey, AsciiMetadataValue, BinaryMetadataKey, BinaryMetadataValue, MetadataMap,
};

use crate::failure::code_name;

/// Text below the help of the whole command.
const AFTER_HELP: &str = "\
Targets:
  auto://host:port     RDMA when both sides can, otherwise TCP
  rdma://host:port     RDMA, or an error with the reason
  tcp://host:port      TCP, with TLS if --ca, --cert or --server-name is given
  unix:///path         a Unix socket; unix://@name for an abstract one
  grpc://host:port     a gRPC server over HTTP/2; grpcs:// with TLS
  dns:///name:port     all servers of a DNS name; etcd:// and xds:// ask a registry
  tcp://a:1,b:2        a list of servers
  host:port            auto://host:port; with --plaintext grpc://host:port
  @name                the target `name` of ./farcall.toml or of --config

grpcurl's command lines work: `farcall -plaintext host:50051 list`. In grpcurl's order a bare
host:port is grpcs://, and with -plaintext grpc://.

Exit codes: 0 success, 1 usage, 2 no connection, 64 + the gRPC code of a call that fails.

Limits: messages --max-message-len (4 MiB), schemas of a server 8 MiB and 2,000 files, lists of
10,000 services, 128 levels of nested messages. Control characters of a server print as escapes.";

/// Inspects, calls and checks services of farcall and gRPC.
#[derive(Debug, Parser)]
#[command(name = "farcall", version, after_help = AFTER_HELP, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Flags of every command.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Connection and output")]
pub(crate) struct Global {
    /// Certificate authorities to trust, PEM. Default: those of the operating system
    #[arg(long, visible_alias = "cacert", global = true, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// Client certificate, PEM. Needs --key
    #[arg(long, global = true, value_name = "FILE", requires = "key")]
    pub(crate) cert: Option<PathBuf>,
    /// Private key of --cert, PEM
    #[arg(long, global = true, value_name = "FILE", requires = "cert")]
    pub(crate) key: Option<PathBuf>,
    /// Name in the server's certificate. Default: the target's host
    #[arg(long, visible_aliases = ["servername", "authority"], global = true, value_name = "NAME")]
    pub(crate) server_name: Option<String>,
    /// Treats a bare host:port as a gRPC server without TLS
    #[arg(long, global = true)]
    pub(crate) plaintext: bool,
    /// Takes the target for the path of a gRPC server's Unix socket. Needs --plaintext
    #[arg(long, global = true, requires = "plaintext")]
    pub(crate) unix: bool,
    /// Fails: farcall verifies every certificate. Use --ca with the server's own
    #[arg(long, global = true, hide = true)]
    pub(crate) insecure: bool,
    /// Set by the translation of grpcurl's order of words.
    #[arg(long, global = true, hide = true)]
    pub(crate) grpcurl_order: bool,
    /// Metadata to send, repeatable. The value of a `-bin` key is base64
    #[arg(
        short = 'H', long = "header", visible_alias = "rpc-header", alias = "reflect-header",
        global = true, value_name = "KEY: VALUE", value_parser = header
    )]
    pub(crate) headers: Vec<Header>,
    /// Time limit for the connection and for each call: `500ms`, `2s`, or seconds
    #[arg(
        long, visible_alias = "max-time", global = true, value_name = "TIME",
        value_parser = duration
    )]
    pub(crate) timeout: Option<Duration>,
    /// Time limit for the connection alone
    #[arg(long, global = true, value_name = "TIME", value_parser = duration)]
    pub(crate) connect_timeout: Option<Duration>,
    /// Largest message to accept, in bytes. Default: the target's, else 4 MiB
    #[arg(
        long, visible_alias = "max-msg-sz", global = true, value_name = "BYTES",
        value_parser = clap::value_parser!(u64).range(1..=1 << 30)
    )]
    pub(crate) max_message_len: Option<u64>,
    /// Output for people or for programs
    #[arg(long, global = true, value_enum, default_value = "text")]
    pub(crate) format: Format,
    /// Prints path, endpoint, metadata and times to standard error
    #[arg(short, long, visible_alias = "vv", global = true, action = ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Colors of the output
    #[arg(long, global = true, value_enum, default_value = "auto")]
    pub(crate) color: Color,
    /// Settings file of @name targets
    #[arg(long, global = true, value_name = "FILE", default_value = "farcall.toml")]
    pub(crate) config: PathBuf,
}

/// The form of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Lines for people; messages as indented JSON.
    Text,
    /// One JSON value a line.
    Json,
}

/// The rule for colors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// Colors on a terminal, unless NO_COLOR is set.
    Auto,
    /// Colors always.
    Always,
    /// No colors.
    Never,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Connects, shows the path and its reason, and measures round trips
    Ping(PingArgs),
    /// Lists services, or the methods of one
    List(SymbolArgs),
    /// Shows services, methods, messages and enums as protobuf
    Describe(SymbolArgs),
    /// Calls a method with JSON messages
    Call(CallArgs),
    /// Checks path and latency as a monitoring plugin: exit 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN
    Check(CheckArgs),
    /// Measures a unary method: in a closed loop, or at a rate
    Bench(BenchArgs),
    /// Shows where the time of a unary call goes, its protocol and why, its attempts and copies
    Explain(ExplainArgs),
    /// Shows what servers are doing, once a second: calls, latency, paths, memory, failures
    Top(TopArgs),
    /// Shows calls of servers as they end: method, client, status, time, sizes, metadata keys
    Tap(TapArgs),
    /// Passes calls of gRPC clients on to a target at any address, RDMA included
    Proxy(ProxyArgs),
    /// Names what keeps this host off RDMA, and the command that fixes it: exit 1 without RDMA
    Doctor(DoctorArgs),
    /// Checks a settings file, or prints all settings
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Prints completions for a shell
    Completions(CompletionsArgs),
    /// Prints the manual page of farcall, or of a command
    Man(ManArgs),
}

/// Arguments of `ping`.
#[derive(Debug, Args)]
pub(crate) struct PingArgs {
    /// Server to ping
    pub(crate) target: String,
    /// Round trips to measure
    #[arg(short = 'c', long, default_value_t = 8, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) count: u32,
}

/// Arguments of `list` and `describe`.
#[derive(Debug, Args)]
pub(crate) struct SymbolArgs {
    /// Target, then a service, method, message or enum. No target is needed with schema files
    #[arg(value_names = ["TARGET", "SYMBOL"], num_args = 0..=2)]
    pub(crate) target_and_symbol: Vec<String>,
    /// Adds a message with every field, as JSON to fill in (describe)
    #[arg(long)]
    pub(crate) msg_template: bool,
    #[command(flatten)]
    pub(crate) schema: SchemaArgs,
}

/// Arguments of `call`.
#[derive(Debug, Args)]
pub(crate) struct CallArgs {
    /// Server to call
    pub(crate) target: String,
    /// Method, as pkg.Service/Method or pkg.Service.Method
    pub(crate) method: String,
    /// Requests as JSON, one after another. `@` reads standard input
    #[arg(short = 'd', long = "data", value_name = "JSON")]
    pub(crate) data: Option<String>,
    /// Shows fields with default values, too
    #[arg(long)]
    pub(crate) emit_defaults: bool,
    /// Ignores JSON fields that the message does not have
    #[arg(long)]
    pub(crate) allow_unknown_fields: bool,
    #[command(flatten)]
    pub(crate) schema: SchemaArgs,
}

/// Arguments of `check`.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Server or servers to check
    pub(crate) target: String,
    /// WARNING above this latency, repeatable: connect, min, p50, p99 or max
    #[arg(long, value_name = "METRIC=TIME", value_parser = threshold)]
    pub(crate) warn: Vec<Threshold>,
    /// CRITICAL above this latency, repeatable
    #[arg(long, value_name = "METRIC=TIME", value_parser = threshold)]
    pub(crate) crit: Vec<Threshold>,
    /// CRITICAL if calls to a server take another path; `tls` is TCP with TLS, `tcp` without
    #[arg(long, value_name = "PATH", value_parser = ["rdma", "tls", "tcp", "unix", "grpc"])]
    pub(crate) require: Option<String>,
    /// Round trips to measure
    #[arg(short = 'c', long, default_value_t = 8, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) count: u32,
}

/// Arguments of `doctor`.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Server to test the path to, step by step
    #[arg(long, value_name = "TARGET")]
    pub(crate) peer: Option<String>,
    /// Local address that clients use. Default: all of this host, or the one on the way to --peer
    #[arg(long, value_name = "IP")]
    pub(crate) address: Option<IpAddr>,
}

/// Arguments of `bench`.
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    #[command(flatten)]
    pub(crate) call: CallArgs,
    /// Maximum number of calls in flight
    #[arg(short = 'c', long, default_value_t = 50, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) concurrency: u32,
    /// Duration of the run
    #[arg(short = 'z', long, default_value = "10s", value_name = "TIME", value_parser = duration)]
    pub(crate) duration: Duration,
    /// Number of calls after which the run ends early
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) calls: Option<u64>,
    /// Calls per second, such as 50k: an open loop, whose latency includes waits for a caller
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub(crate) rate: Option<f64>,
    /// Writes the report as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Writes the report as HTML, with plots
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}

/// Arguments of `explain`.
#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// Calls to make, one after another
    #[arg(short = 'n', long, default_value_t = 1, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) repeat: u32,
    #[command(flatten)]
    pub(crate) call: CallArgs,
}

/// Arguments of `top`.
#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// Servers to show. Each of a list or a name has a row
    #[arg(required = true, value_name = "TARGET")]
    pub(crate) targets: Vec<String>,
    /// Tables to print before the end. Default: no end
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// Time between two tables
    #[arg(long, default_value = "1s", value_name = "TIME", value_parser = duration)]
    pub(crate) interval: Duration,
}

/// Arguments of `tap`.
#[derive(Debug, Args)]
pub(crate) struct TapArgs {
    /// Server, or servers, whose calls to show
    pub(crate) target: String,
    /// Shows calls of matching methods alone: `*` stands for any text, `?` for one character
    #[arg(long, value_name = "GLOB", default_value = "*")]
    pub(crate) method: String,
    /// Shows calls with these codes alone: `NOT_FOUND,ABORTED`, or all others with `!OK`
    #[arg(long, value_name = "CODES", value_parser = codes)]
    pub(crate) status: Option<Codes>,
    /// Shows a share of these calls, which the server picks by chance
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub(crate) sample: Option<u32>,
    /// Calls to show before the end. Default: no end
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
}

/// Arguments of `proxy`.
#[derive(Debug, Args)]
pub(crate) struct ProxyArgs {
    /// Target that answers the calls
    pub(crate) target: String,
    /// Address to listen on: host:port, or unix:///path
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: String,
    /// Certificate for TLS to the clients, PEM. Needs --listen-key
    #[arg(long, value_name = "FILE", requires = "listen_key")]
    pub(crate) listen_cert: Option<PathBuf>,
    /// Private key of --listen-cert, PEM
    #[arg(long, value_name = "FILE", requires = "listen_cert")]
    pub(crate) listen_key: Option<PathBuf>,
    /// Time for calls in flight after Ctrl-C or SIGTERM
    #[arg(long, default_value = "30s", value_name = "TIME", value_parser = duration)]
    pub(crate) drain_timeout: Duration,
}

/// Commands of `config`.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Checks --config FILE and the FARCALL__ variables; names the line and column of each mistake
    Check,
    /// Prints a settings file with every setting and its default
    Reference,
}

/// Arguments of `completions`.
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// Shell to print completions for
    pub(crate) shell: clap_complete::Shell,
}

/// Arguments of `man`.
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Command to print the page of
    pub(crate) command: Option<String>,
}

/// A latency of `check` with a limit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Threshold {
    pub(crate) metric: Metric,
    pub(crate) limit: Duration,
}

/// A latency that `check` measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Metric {
    /// Time to connect.
    Connect,
    /// Fastest round trip.
    Min,
    /// Median round trip.
    P50,
    /// 99th percentile of round trips.
    P99,
    /// Slowest round trip.
    Max,
}

impl Metric {
    /// Returns the name in thresholds and performance data.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Min => "min",
            Self::P50 => "p50",
            Self::P99 => "p99",
            Self::Max => "max",
        }
    }
}

/// Sources of the schema. Without one the server is asked by reflection.
#[derive(Debug, Args)]
#[command(next_help_heading = "Schema (default: the server's reflection)")]
pub(crate) struct SchemaArgs {
    /// File of an encoded FileDescriptorSet, repeatable
    #[arg(long, value_name = "FILE", conflicts_with = "proto")]
    pub(crate) protoset: Vec<PathBuf>,
    /// `.proto` file, repeatable
    #[arg(long, value_name = "FILE")]
    pub(crate) proto: Vec<PathBuf>,
    /// Folder of imports, repeatable. Default: the working directory
    #[arg(long, value_name = "DIR")]
    pub(crate) import_path: Vec<PathBuf>,
}

/// An entry of a request's metadata.
#[derive(Debug, Clone)]
pub(crate) enum Header {
    Ascii(AsciiMetadataKey, AsciiMetadataValue),
    Binary(BinaryMetadataKey, BinaryMetadataValue),
}

impl Global {
    /// Returns a request with the metadata and the timeout of the flags.
    pub(crate) fn request<T>(&self, message: T) -> farcall::Request<T> {
        let mut request = farcall::Request::new(message);
        self.add_headers(request.metadata_mut());
        if let Some(timeout) = self.timeout {
            request.set_timeout(timeout);
        }
        request
    }

    /// Adds the metadata of the flags.
    pub(crate) fn add_headers(&self, metadata: &mut MetadataMap) {
        for header in &self.headers {
            match header {
                Header::Ascii(key, value) => drop(metadata.append(key.clone(), value.clone())),
                Header::Binary(key, value) => drop(metadata.append_bin(key.clone(), value.clone())),
            }
        }
    }
}

/// Reads `key: value`.
fn header(text: &str) -> Result<Header, String> {
    use base64::Engine as _;
    let (key, value) = text.split_once(':').ok_or("expected `key: value`")?;
    let (key, value) = (key.trim().to_ascii_lowercase(), value.trim());
    let invalid_key = |_| format!("`{key}` is not a metadata key");
    if key.ends_with("-bin") {
        let name = BinaryMetadataKey::from_bytes(key.as_bytes()).map_err(invalid_key)?;
        let engine = base64::engine::general_purpose::STANDARD;
        let bytes = engine.decode(value).map_err(|error| {
            format!(
                "the value of `{key}` is not \
                                                                  base64: {error}"
            )
        })?;
        return Ok(Header::Binary(name, BinaryMetadataValue::from_bytes(&bytes)));
    }
    let name = AsciiMetadataKey::from_bytes(key.as_bytes()).map_err(invalid_key)?;
    let value =
        value.parse().map_err(|_| format!("the value of `{key}` is not printable ASCII"))?;
    Ok(Header::Ascii(name, value))
}

/// Reads `500ms`, `2s`, or a number of seconds.
fn duration(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok();
    let parsed = match seconds {
        Some(seconds) => Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string()),
        None => humantime::parse_duration(text).map_err(|error| error.to_string()),
    }?;
    let range = Duration::from_millis(1)..=Duration::from_secs(365 * 24 * 3600);
    range.contains(&parsed).then_some(parsed).ok_or_else(|| "must be from 1 ms to 365 days".into())
}

/// Reads `p99=2ms`.
fn threshold(text: &str) -> Result<Threshold, String> {
    let (name, limit) = text.split_once('=').ok_or("expected METRIC=TIME, such as p99=2ms")?;
    let metric = Metric::value_variants().iter().find(|metric| metric.name() == name);
    let metric = *metric.ok_or_else(|| {
        format!(
            "unknown metric `{name}`: use connect, min, p50, p99 or \
                                       max"
        )
    })?;
    let limit = humantime::parse_duration(limit).map_err(|error| error.to_string())?;
    Ok(Threshold { metric, limit })
}

/// Codes of `tap`, as the server takes them.
#[derive(Debug, Clone)]
pub(crate) struct Codes(pub(crate) Vec<i32>);

/// Reads `OK,NOT_FOUND`, or `!OK` for all others.
fn codes(text: &str) -> Result<Codes, String> {
    let (is_inverted, names) = match text.strip_prefix('!') {
        Some(names) => (true, names),
        None => (false, text),
    };
    let all = || (0..17).map(Code::from);
    let named = names.split(',').map(|name| {
        let name = name.trim();
        let found = all().find(|code| code_name(*code).eq_ignore_ascii_case(name));
        found.ok_or_else(|| format!("`{name}` is not a status: use names such as NOT_FOUND"))
    });
    let named: Vec<_> = named.collect::<Result<_, _>>()?;
    let chosen = all().filter(|code| named.contains(code) != is_inverted).map(i32::from);
    let chosen: Vec<i32> = chosen.collect();
    // The server takes an empty list for all.
    if chosen.is_empty() {
        return Err("no status is left".to_owned());
    }
    Ok(Codes(chosen))
}

/// Reads `1%` or `0.5` as millionths.
fn percent(text: &str) -> Result<u32, String> {
    let number = text.trim_end_matches('%').trim_end().parse::<f64>();
    let number = number.map_err(|_| "expected a percentage such as 1%".to_owned())?;
    if !(0.0001..=100.0).contains(&number) {
        return Err("must be from 0.0001% to 100%".to_owned());
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "its range")]
    let millionths = (number * 10_000.0).round() as u32;
    Ok(millionths)
}

/// Reads `50000`, `50k` or `1.5M`.
fn rate(text: &str) -> Result<f64, String> {
    let (number, factor) = match text.as_bytes() {
        [number @ .., b'k'] => (number, 1e3),
        [number @ .., b'M'] => (number, 1e6),
        number => (number, 1.0),
    };
    let number = text.get(..number.len()).and_then(|number| number.parse::<f64>().ok());
    let rate = number.ok_or("expected a rate such as 500, 50k or 1.5M")? * factor;
    let is_possible = (0.01..=1e7).contains(&rate);
    is_possible.then_some(rate).ok_or_else(|| "must be from 0.01 to 10M calls per second".into())
}
