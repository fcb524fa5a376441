//! One server program and one client program: what calls travel over is in `farcall.toml` alone.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Ends a process with its owner.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a server, and gives it with the address that it prints.
fn serve(server: &mut Command) -> (Ended, String) {
    let server = server.stdout(Stdio::piped()).spawn();
    let mut server = Ended(server.expect("the server starts"));
    let stdout = server.0.stdout.take().expect("it is piped");
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line).expect("it prints a line");
    let address = line.trim().strip_prefix("serving ").expect("the server says where");
    (server, address.to_owned())
}

/// Runs a client and returns its output.
fn call(client: &mut Command) -> String {
    let client = client.output().expect("the client runs");
    assert!(client.status.success(), "{}", String::from_utf8_lossy(&client.stderr));
    String::from_utf8(client.stdout).expect("it prints text")
}

/// Runs both programs in a folder with a `farcall.toml`, and gives what the client has printed.
fn run(folder: &Path, server: &str, target: &str) -> String {
    // Less than the default limit of locked memory, for both processes of a user together.
    let rdma = "[rdma]\nmax_source_bytes = \"2 MiB\"\nmax_sink_bytes = \"2 MiB\"\n";
    let write = |text| {
        std::fs::write(folder.join("farcall.toml"), format!("{text}{rdma}"))
            .expect("it is written");
    };
    write(format!("[servers.greeter]\naddress = \"{server}\"\n"));
    let mut program = Command::new(env!("CARGO_BIN_EXE_config-server"));
    let (_server, served) = serve(program.current_dir(folder));
    // The operating system has chosen the port.
    let port = served.rsplit_once(':').map_or("", |(_, port)| port);
    let address = target.replace(":0", &format!(":{port}"));
    write(format!("[targets.greeter]\naddress = \"{address}\"\ntimeout = \"20s\"\n"));
    call(Command::new(env!("CARGO_BIN_EXE_config-client")).current_dir(folder))
}

#[test]
fn the_file_chooses_what_calls_travel_over() {
    let folder = tempfile::tempdir().unwrap();
    let socket = format!("unix://{}/greeter.sock", folder.path().display());
    let over = |server: &str, target: &str| run(folder.path(), server, target);
    let [tcp, auto] = ["tcp", "auto"].map(|scheme| format!("{scheme}://127.0.0.1:0"));
    assert_eq!(over(&tcp, &tcp), "Hello, world! over tcp\n");
    assert_eq!(over(&socket, &socket), "Hello, world! over unix\n");
    // A server without RDMA, so that the outcome is the same on every machine.
    let fallen = over(&tcp, &auto);
    assert!(fallen.starts_with("Hello, world! over tcp (rdma: "), "{fallen}");
    // In the virtual machine, and on hosts with a device.
    let Ok(host) = std::env::var("FARCALL_RDMA_SERVER") else { return };
    let [auto, rdma] = ["auto", "rdma"].map(|scheme| format!("{scheme}://{host}:0"));
    assert_eq!(over(&auto, &auto), "Hello, world! over rdma\n");
    assert_eq!(over(&rdma, &rdma), "Hello, world! over rdma\n");
}

#[test]
fn hello_world_greets() {
    let mut server = Command::new(env!("CARGO_BIN_EXE_hello-server"));
    let (_server, address) = serve(server.arg("tcp://127.0.0.1:0"));
    let greeting = call(Command::new(env!("CARGO_BIN_EXE_hello-client")).arg(address));
    assert_eq!(greeting, "Hello, world! over tcp\n");
}
