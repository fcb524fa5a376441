//! Failures of the command, and their exit codes.

use clap::error::ErrorKind;
use farcall::{Code, ConnectError, Status};

const USAGE: u8 = 1;
const NO_CONNECTION: u8 = 2;
/// Exit code of a monitoring plugin that cannot tell.
const UNKNOWN: u8 = 3;
/// Exit code of a failed call, less its gRPC code.
const CALL: u8 = 64;

/// Settings as errors name them, and the flags that set them.
const FLAGS: [(&str, &str); 4] = [
    ("(tls.server_name)", "--server-name"),
    ("(tls.ca)", "--ca"),
    ("(tls.cert, tls.key)", "--cert and --key"),
    ("set `tls` on both", "--ca, with the authority of the server's certificate"),
];

/// A failure of the command: its message and its exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    message: String,
    code: Option<Code>,
    exit_code: u8,
}

impl Failure {
    /// A fault of the command line or of a file that it names.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: None, exit_code: USAGE }
    }

    /// A server that cannot be reached. Its error names settings, and the message their flags, too.
    pub(crate) fn connect(message: impl Into<String>) -> Self {
        let mut message = message.into();
        if let Some((_, flags)) = FLAGS.iter().find(|(setting, _)| message.contains(setting)) {
            message.push_str(&format!("; on the command line: {flags}"));
        }
        Self { message, code: None, exit_code: NO_CONNECTION }
    }

    /// A peer that breaks a bound or a rule of protobuf: `INTERNAL`.
    pub(crate) fn peer(message: impl Into<String>) -> Self {
        let message = message.into();
        Self { message, code: Some(Code::Internal), exit_code: call_exit_code(Code::Internal) }
    }

    /// A call that failed, or one for which there was no connection.
    pub(crate) fn call(status: &Status) -> Self {
        if let Some(error) = ConnectError::of(status) {
            return Self::connect(error.to_string());
        }
        let (code, message) = (status.code(), status.message().to_owned());
        Self { message, code: Some(code), exit_code: call_exit_code(code) }
    }

    /// The same failure with `context` and a colon before its message.
    pub(crate) fn context(mut self, context: &str) -> Self {
        self.message = format!("{context}: {}", self.message);
        self
    }

    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    pub(crate) fn code(&self) -> Option<Code> {
        self.code
    }

    /// Returns true if there is no connection.
    pub(crate) fn is_connection(&self) -> bool {
        self.exit_code == NO_CONNECTION
    }

    pub(crate) fn exit_code(&self) -> u8 {
        self.exit_code
    }
}

impl From<std::io::Error> for Failure {
    /// A failed write to the standard output. A reader that left, as `head` does, is no failure.
    fn from(error: std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            return Self { message: String::new(), code: None, exit_code: 0 };
        }
        Self::usage(format!("cannot write the output: {error}"))
    }
}

fn call_exit_code(code: Code) -> u8 {
    // gRPC's codes are 0 to 16.
    CALL + u8::try_from(i32::from(code)).unwrap_or_default()
}

/// Returns the exit code of an error of the command line; 0 for `--help` and `--version`. A
/// monitoring plugin says UNKNOWN by it.
pub(crate) fn clap_exit_code(error: &clap::Error, is_plugin: bool) -> u8 {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => 0,
        _ if is_plugin => UNKNOWN,
        _ => USAGE,
    }
}

/// Returns the name of a code as gRPC's documents spell it, `NOT_FOUND`: tonic's own name,
/// `NotFound`, in their letters.
pub(crate) fn code_name(code: Code) -> String {
    let mut name = String::new();
    for letter in format!("{code:?}").chars() {
        if letter.is_ascii_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(letter.to_ascii_uppercase());
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_the_names_of_grpc() {
        assert_eq!(code_name(Code::Ok), "OK");
        assert_eq!(code_name(Code::DataLoss), "DATA_LOSS");
        assert_eq!(code_name(Code::FailedPrecondition), "FAILED_PRECONDITION");
    }
}
