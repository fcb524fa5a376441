//! A connector with one connection, which exists already.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::BoxFuture;

use super::Connect;
use crate::client::Established;
use crate::connect::{ClientConfig, ConnectError, ConnectFault, Wanted};

/// Gives its connection to the channel that asks first, and to none after that.
#[derive(Debug)]
pub(crate) struct OneConnection {
    name: Arc<str>,
    config: ClientConfig,
    connection: Mutex<Option<Established>>,
}

impl OneConnection {
    pub(crate) fn new(name: Arc<str>, connection: Established) -> Self {
        let (config, connection) = (ClientConfig::default(), Mutex::new(Some(connection)));
        Self { name, config, connection }
    }
}

impl Connect for OneConnection {
    fn config(&self) -> &ClientConfig {
        &self.config
    }

    fn address(&self) -> Arc<str> {
        Arc::clone(&self.name)
    }

    fn connect(&self, _: Wanted) -> BoxFuture<'_, Result<Established, ConnectError>> {
        let connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner).take();
        let connection = connection.ok_or_else(|| {
            ConnectError::from(ConnectFault::Unreachable {
                address: self.name.to_string(),
                reason: io::Error::new(io::ErrorKind::NotConnected, "its connection has ended"),
            })
        });
        Box::pin(std::future::ready(connection))
    }
}
