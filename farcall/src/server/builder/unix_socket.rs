//! The file of a server's Unix socket.

use rpc_core::settings::expect_valid;

use super::ServerBuilder;
use crate::config::check_socket_mode;

impl ServerBuilder {
    /// Sets the mode of the file of a Unix socket, for example `0o660`. A process that may write to
    /// the file may connect. Without it the umask of the process decides.
    ///
    /// The file has its mode and its owner before the first client can connect. A server at another
    /// address than `unix:///path` does not start with either.
    ///
    /// # Panics
    ///
    /// Panics if the mode is more than `0o777`.
    #[must_use]
    #[track_caller]
    pub fn socket_mode(mut self, mode: u32) -> Self {
        expect_valid(check_socket_mode(mode));
        self.socket_access.mode = Some(mode);
        self
    }

    /// Sets the owner of the file of a Unix socket: `"app"`, `":www-data"` or `"app:www-data"`.
    /// Names are those of `/etc/passwd` and `/etc/group`; other users and groups have numbers.
    /// Without it the file belongs to the user of the process.
    #[must_use]
    pub fn socket_owner(mut self, owner: impl Into<String>) -> Self {
        self.socket_access.owner = Some(owner.into());
        self
    }

    /// Returns the mode of the file of a Unix socket, if one is set.
    #[must_use]
    pub fn get_socket_mode(&self) -> Option<u32> {
        self.socket_access.mode.or_else(|| self.config.socket_mode())
    }

    /// Returns the owner of the file of a Unix socket, if one is set.
    #[must_use]
    pub fn get_socket_owner(&self) -> Option<&str> {
        self.socket_access.owner.as_deref().or_else(|| self.config.socket_owner())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use crate::{Channel, Config, Server};

    #[tokio::test]
    async fn socket_has_the_mode_of_builder_or_config() {
        let name = format!("farcall-socket-mode-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let address = format!("unix://{}", path.display());
        let config = Config::default().with_socket_mode(0o640);
        for (builder, mode) in [
            (Server::builder().config(&config), 0o640),
            (Server::builder().config(&config).socket_mode(0o600), 0o600),
            (Server::builder().socket_mode(0o666), 0o666),
        ] {
            assert_eq!(builder.get_socket_mode(), Some(mode));
            let listener = builder.bind(&address).await.unwrap();
            let permissions = std::fs::metadata(&path).unwrap().permissions();
            assert_eq!(permissions.mode() & 0o777, mode);
            let serving = tokio::spawn(listener.serve());
            Channel::connect(&address).await.unwrap();
            serving.abort();
            let _ = serving.await;
        }
    }

    #[tokio::test]
    async fn other_addresses_refuse_mode_and_owner() {
        for address in ["tcp://127.0.0.1:0", "inproc://farcall-socket-mode"] {
            for builder in
                [Server::builder().socket_mode(0o600), Server::builder().socket_owner("root")]
            {
                let error = builder.bind(address).await.unwrap_err().to_string();
                assert!(error.contains("socket_mode and socket_owner are for"), "{error}");
            }
        }
    }

    #[test]
    #[should_panic(expected = "socket_mode is 0o1224: at most 0o777")]
    fn decimal_digits_of_a_mode_are_refused() {
        let _ = Server::builder().socket_mode(660);
    }
}
