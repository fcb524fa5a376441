//! One stream of a control plane.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use envoy_types::pb::google::protobuf::Any;
use futures::StreamExt;
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use tonic::{Status, Streaming};

use super::Resources;

/// The requests of clients.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// Nodes that have opened a stream, one entry for each stream.
    pub nodes: Vec<Node>,
    /// Number of accepted responses.
    pub acknowledged: usize,
    /// Why responses were rejected.
    pub rejected: Vec<String>,
    /// Violations of the protocol by clients.
    pub faults: Vec<String>,
}

/// A client's subscription to one type, and its last response.
#[derive(Debug, Default)]
struct Subscription {
    names: BTreeSet<String>,
    /// Resources of the last response. `None` before the first.
    sent: Option<BTreeMap<String, Any>>,
    version: u64,
    /// The version that it has accepted last.
    accepted: String,
}

impl Subscription {
    fn nonce(&self) -> String {
        self.sent.as_ref().map_or_else(String::new, |_| format!("nonce {}", self.version))
    }

    /// Returns the resources to send now, if they have changed.
    fn news(&mut self, all: Option<&BTreeMap<String, Any>>) -> Option<Vec<Any>> {
        let known = all.into_iter().flatten().filter(|(name, _)| self.names.contains(*name));
        let wanted: BTreeMap<_, _> = known.map(|(name, any)| (name.clone(), any.clone())).collect();
        if self.names.is_empty() || self.sent.as_ref() == Some(&wanted) {
            return None;
        }
        self.version += 1;
        let resources = wanted.values().cloned().collect();
        self.sent = Some(wanted);
        Some(resources)
    }
}

/// Serves a stream until its client ends it.
pub(super) async fn serve(
    mut requests: Streaming<DiscoveryRequest>,
    responses: mpsc::Sender<Result<DiscoveryResponse, Status>>,
    mut resources: watch::Receiver<Resources>,
    seen: Arc<Mutex<Seen>>,
) {
    let mut subscriptions = BTreeMap::<String, Subscription>::new();
    let mut is_first = true;
    loop {
        tokio::select! {
            request = requests.next() => {
                let Some(Ok(request)) = request else { return };
                let mut seen = seen.lock();
                take(request, &mut subscriptions, &mut seen, is_first);
                is_first = false;
            }
            changed = resources.changed() => {
                if changed.is_err() {
                    return;
                }
            }
        }
        let current = resources.borrow_and_update().clone();
        for (url, subscription) in &mut subscriptions {
            let Some(resources) = subscription.news(current.get(url)) else { continue };
            let response = DiscoveryResponse {
                version_info: format!("version {}", subscription.version),
                resources,
                type_url: url.clone(),
                nonce: subscription.nonce(),
                ..DiscoveryResponse::default()
            };
            if responses.send(Ok(response)).await.is_err() {
                return;
            }
        }
    }
}

/// Takes a request, and holds its client to the protocol.
fn take(
    request: DiscoveryRequest,
    subscriptions: &mut BTreeMap<String, Subscription>,
    seen: &mut Seen,
    is_first: bool,
) {
    match (is_first, request.node) {
        (true, Some(node)) => seen.nodes.push(node),
        (true, None) => seen.faults.push("the first request says no node".to_owned()),
        (false, _) => {}
    }
    let subscription = subscriptions.entry(request.type_url.clone()).or_default();
    let names: BTreeSet<_> = request.resource_names.into_iter().collect();
    if names.is_empty() {
        seen.faults.push(format!("all resources of {} are asked for", request.type_url));
    }
    let is_new = names != subscription.names;
    subscription.names = names;
    // Of a request that was on its way when the last response was sent, the names count alone.
    if subscription.sent.is_none() || request.response_nonce != subscription.nonce() {
        return;
    }
    let version = format!("version {}", subscription.version);
    match request.error_detail {
        Some(detail) => {
            if request.version_info != subscription.accepted {
                seen.faults.push(format!("a NACK has the version `{}`", request.version_info));
            }
            seen.rejected.push(detail.message);
        }
        None if request.version_info == version => {
            subscription.accepted = version;
            seen.acknowledged += 1;
        }
        // It asks for other names, between a rejected response and the next one.
        None if is_new && request.version_info == subscription.accepted => {}
        None => seen.faults.push(format!("an ACK has the version `{}`", request.version_info)),
    }
}
