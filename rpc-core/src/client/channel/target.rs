//! The target of a channel: one server, or many.

use std::borrow::Cow;

use tonic::Status;

use crate::balance::{Connectivity, EndpointStatus};
use crate::client::attempts::SharedAttempts;
use crate::client::call::rules::CallRules;
use crate::client::endpoints::Endpoints;
use crate::client::subchannel::Subchannel;
use crate::client::{Call, Caller, ClientReply, Path};
use crate::connect::{ConnectError, ConnectFault};

/// The servers that a channel calls.
#[derive(Debug, Clone)]
pub enum Target {
    /// One server. A list of one entry would add a pick, a load count and a look at the clock to
    /// each call.
    Direct(Subchannel),
    /// Many servers, each call to one of them.
    Balanced(Endpoints),
}

impl Target {
    /// Connects now.
    pub(super) async fn connect(&self, address: &str) -> Result<(), ConnectError> {
        match self {
            Self::Direct(subchannel) => subchannel.manager.connect().await,
            Self::Balanced(endpoints) => endpoints.connected().await.map_err(|reason| {
                ConnectError::from(ConnectFault::Address {
                    address: address.to_owned(),
                    reason: reason.to_string(),
                })
            }),
        }
    }

    /// Returns the one server, or the first of many that is connected.
    pub(super) fn connected(&self) -> Option<Cow<'_, Subchannel>> {
        match self {
            Self::Direct(subchannel) => Some(Cow::Borrowed(subchannel)),
            Self::Balanced(endpoints) => endpoints.first_connected().map(Cow::Owned),
        }
    }

    /// Returns the path that calls take.
    pub(super) fn path(&self) -> Path {
        match (self.connected(), self) {
            (Some(subchannel), _) => subchannel.manager.path(),
            (None, Self::Direct(_)) => Path::Disconnected { reason: None, retry_in: None },
            (None, Self::Balanced(endpoints)) => {
                let reason = endpoints.failure().map(|reason| reason.to_string());
                Path::Disconnected { reason, retry_in: endpoints.retry_in() }
            }
        }
    }

    /// Describes each server.
    pub(super) fn status(&self) -> Vec<EndpointStatus> {
        match self {
            Self::Direct(subchannel) => vec![subchannel.status()],
            Self::Balanced(endpoints) => endpoints.status(),
        }
    }

    /// Returns the state of the one connection, or the best of many.
    pub(super) fn connectivity(&self) -> Connectivity {
        match self {
            Self::Direct(subchannel) => subchannel.manager.connectivity(),
            Self::Balanced(endpoints) => endpoints.connectivity(),
        }
    }

    /// Waits for another state.
    pub(super) async fn connectivity_changed(&self, state: Connectivity) -> Connectivity {
        match self {
            Self::Direct(subchannel) => subchannel.manager.connectivity_changed(state).await,
            Self::Balanced(endpoints) => endpoints.connectivity_changed(state).await,
        }
    }
}

/// A target and the rules of a call that takes it.
#[derive(Debug, Clone, Copy)]
pub(super) struct RuledTarget<'a> {
    pub(super) target: &'a Target,
    pub(super) rules: &'a CallRules,
}

impl Caller for RuledTarget<'_> {
    async fn call(&self, call: Call<'_>) -> Result<ClientReply, Status> {
        match self.target {
            Target::Direct(subchannel) => {
                let shared = call.extensions().get::<SharedAttempts>().cloned();
                subchannel.route(self.rules, shared.as_ref()).call(call).await
            }
            Target::Balanced(endpoints) => endpoints.call(self.rules, call).await,
        }
    }
}
