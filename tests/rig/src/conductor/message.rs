//! Messages between a process and its conductor: one JSON value a line.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::RigError;
use crate::conductor::process::Process;

/// Asks a process for its counts.
pub(crate) const REPORT: &str = "report";

/// Returns a message as its line.
pub(crate) fn line(message: &impl Serialize) -> Result<String, RigError> {
    Ok(serde_json::to_string(message).map_err(std::io::Error::other)?)
}

/// Reads the message on a process's line.
pub(crate) fn read<T: DeserializeOwned>(role: &'static str, line: &str) -> Result<T, RigError> {
    let unexpected = |_| RigError::Unexpected { role, line: line.to_owned() };
    serde_json::from_str(line).map_err(unexpected)
}

/// Asks a process for its message.
pub(crate) fn ask<T: DeserializeOwned>(
    role: &'static str,
    process: &mut Process,
    text: &str,
) -> Result<T, RigError> {
    read(role, &process.ask(text)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_survives_its_line() {
        let counts = vec![3, 1 << 40];
        assert_eq!(read::<Vec<u64>>("server", &line(&counts).unwrap()).unwrap(), counts);
        let error = read::<Vec<u64>>("hostile peer", "hello").unwrap_err().to_string();
        assert_eq!(error, "the hostile peer said `hello`");
    }
}
