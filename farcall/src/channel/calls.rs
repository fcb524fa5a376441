//! The channel as what stubs call, and as the innermost service of a stack of layers.

use std::task::{Context, Poll};

use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use rpc_core::client::attempts::PolicyAttempts;
use rpc_core::client::endpoints::Endpoints;
use rpc_core::client::{Call, ChannelCall, ClientCall, ClientReply};
use rpc_core::layer::record_transport;
use tower::Service;

use super::live::CallRules;
use super::{Channel, Servers};
use crate::{Caller, Method, Status};

impl Caller for Channel {
    fn call(&self, mut call: Call<'_>) -> impl Future<Output = Result<ClientReply, Status>> + Send {
        let refused = self.credentials.apply(&mut call).err();
        let channel = self.single().filter(|_| refused.is_none());
        ChannelCall::new(channel, call, |call| self.call_otherwise(call, refused)).make()
    }

    fn described(&self, path: &str) -> Option<Method> {
        self.single()?.described(path)
    }
}

impl Channel {
    /// The channel to the one server, where no rules stand between it and calls.
    fn single(&self) -> Option<&rpc_core::Channel> {
        match (&self.attempts, &self.live, &self.servers) {
            (None, None, Servers::One(channel)) => Some(channel),
            _ => None,
        }
    }

    /// Makes a call that is not simply one of a stub to one server.
    async fn call_otherwise(
        &self,
        call: Call<'_>,
        refused: Option<Status>,
    ) -> Result<ClientReply, Status> {
        match refused {
            Some(status) => Err(status),
            None => self.call_by_rules(call).await,
        }
    }

    /// Makes a call as the service config and the target of the settings say at this moment.
    async fn call_by_rules(&self, call: Call<'_>) -> Result<ClientReply, Status> {
        match &self.live {
            None => self.servers.attempt(self.attempts.as_deref(), call).await,
            Some(live) => {
                let (rules, attempts) = live.now(self.attempts.as_ref());
                let servers = self.servers.clone().with_rules(rules);
                servers.attempt(attempts.as_deref(), call).await
            }
        }
    }
}

impl Servers {
    /// Makes a call as the service config says, if there is one.
    async fn attempt(
        &self,
        attempts: Option<&PolicyAttempts>,
        call: Call<'_>,
    ) -> Result<ClientReply, Status> {
        let defaults = self.defaults();
        match (attempts, self) {
            (None, Self::One(channel)) => channel.call(call).await,
            (None, Self::Many(endpoints)) => endpoints.call(call).await,
            (Some(attempts), Self::One(channel)) => attempts.call(channel, defaults, call).await,
            (Some(attempts), Self::Many(endpoints)) => {
                attempts.call(endpoints, defaults, call).await
            }
        }
    }

    /// The same servers with rules for calls. They have none of their own yet.
    fn with_rules(self, rules: CallRules) -> Self {
        let CallRules { timeout, unary_timeout, readiness } = rules;
        match self {
            Self::One(mut channel) => {
                channel = channel.with_readiness(readiness);
                channel = timeout.into_iter().fold(channel, rpc_core::Channel::with_timeout);
                let timeout = unary_timeout.into_iter();
                Self::One(timeout.fold(channel, rpc_core::Channel::with_unary_timeout))
            }
            Self::Many(mut endpoints) => {
                endpoints = endpoints.with_readiness(readiness);
                endpoints = timeout.into_iter().fold(endpoints, Endpoints::with_timeout);
                let timeout = unary_timeout.into_iter();
                Self::Many(timeout.fold(endpoints, Endpoints::with_unary_timeout))
            }
        }
    }
}

/// A channel among others, of which tower chooses one for each call;
/// [`LayeredChannel`](crate::client::LayeredChannel) has an example.
impl Service<ClientCall> for Channel {
    type Response = ClientReply;
    type Error = Status;
    type Future = BoxFuture<'static, Result<ClientReply, Status>>;

    /// Ready while there is a connection; a call waits for the server's limit by itself. Without a
    /// connection it is pending, makes the attempts that are due, and wakes the task when there is
    /// one. Under [`Channel::layer`] the channel is always ready, and so is one with many
    /// endpoints, which chooses by itself.
    ///
    /// # Errors
    ///
    /// When the channel cannot connect any more, in this process and with this configuration.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Status>> {
        match &mut self.servers {
            Servers::One(channel) => Service::poll_ready(channel, cx),
            Servers::Many(_) => Poll::Ready(Ok(())),
        }
    }

    fn call(&mut self, mut call: ClientCall) -> Self::Future {
        if let Err(status) = self.credentials.apply(&mut call) {
            return ready(Err(status)).boxed();
        }
        match (&self.attempts, &self.live, &mut self.servers) {
            (None, None, Servers::One(channel)) => Service::call(channel, call),
            (None, None, Servers::Many(endpoints)) => {
                let (endpoints, this) = (endpoints.clone(), self.clone());
                async move {
                    let reply = endpoints.call_owned(call).await;
                    record_transport(this.path().transport());
                    reply
                }
                .boxed()
            }
            _ => {
                let this = self.clone();
                async move {
                    let reply = this.call_by_rules(call.into_call()).await;
                    record_transport(this.path().transport());
                    reply
                }
                .boxed()
            }
        }
    }
}
