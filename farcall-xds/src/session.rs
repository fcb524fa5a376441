//! The protocol of one client: its requests, the known resources, and the answer to each response.
//! Pure: it takes responses and returns requests.
//!
//! It implements the aggregated state-of-the-world variant of the protocol:
//!
//! ```text
//!   request: names ──> response: version, nonce, resources
//!     ACK:  the response's version and nonce
//!     NACK: the version before it, its nonce, and the error
//! ```
//!
//! Only requested resources are kept. The requested names therefore bound the memory that a control
//! plane can make a client use.

use std::collections::{BTreeMap, BTreeSet};

use super::api::{DiscoveryRequest, DiscoveryResponse, ErrorDetail};
use super::node::XdsNode;
use super::resource::{self, Kind, Resource};

/// `google.rpc.Code.INVALID_ARGUMENT`.
const INVALID_ARGUMENT: i32 = 3;

/// Maximum length of the error for a response in bytes. The error consists of parts, and one part
/// always fits.
const MAX_REASON_LEN: usize = 4000;

/// Maximum length of the error for a resource, and of its name, in characters.
const MAX_PART_LEN: usize = 300;

const _: () = assert!(2 * (4 * MAX_PART_LEN + 3) + 100 <= MAX_REASON_LEN);

/// The state of a requested resource.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Known<'a> {
    /// Nothing is known yet.
    Awaited,
    /// The resource does not exist.
    Missing,
    /// The resource is unusable, and so were all earlier states.
    Rejected(&'a str),
    /// The last usable state.
    There(&'a Resource),
}

/// The requested and the known resources.
#[derive(Debug)]
pub(super) struct Session {
    node: XdsNode,
    /// The target's name, which selects virtual hosts.
    host: String,
    kinds: [KindState; Kind::ALL.len()],
}

/// The requests and responses of one kind.
#[derive(Debug, Default)]
struct KindState {
    entries: BTreeMap<String, Entry>,
    /// The version of the last accepted response.
    version: String,
    /// The nonce of the last response on this stream.
    nonce: String,
}

/// A requested resource.
#[derive(Debug, Default)]
struct Entry {
    /// The last usable state.
    resource: Option<Resource>,
    problem: Option<Problem>,
}

/// The reason why there is no newer state.
#[derive(Debug)]
enum Problem {
    Missing,
    Rejected(String),
}

/// The answer to a response.
#[derive(Debug, PartialEq)]
pub(super) struct Answer {
    pub(super) request: DiscoveryRequest,
    /// The error in the response.
    pub(super) rejected: Option<String>,
}

impl Session {
    pub(super) fn new(node: XdsNode, host: String) -> Self {
        Self { node, host, kinds: Default::default() }
    }

    /// Sets the node.
    pub(super) fn set_node(&mut self, node: XdsNode) {
        self.node = node;
    }

    fn of(&self, kind: Kind) -> &KindState {
        &self.kinds[kind as usize]
    }

    pub(super) fn known(&self, kind: Kind, name: &str) -> Known<'_> {
        match self.of(kind).entries.get(name) {
            Some(Entry {
                resource: Some(resource),
                problem: None | Some(Problem::Rejected(_)),
            }) => Known::There(resource),
            Some(Entry { problem: Some(Problem::Missing), .. }) => Known::Missing,
            Some(Entry { problem: Some(Problem::Rejected(reason)), .. }) => Known::Rejected(reason),
            Some(_) | None => Known::Awaited,
        }
    }

    /// Requests exactly these names of `kind`. Returns the request, or `None` if the names are
    /// already requested.
    pub(super) fn ask(&mut self, kind: Kind, names: BTreeSet<String>) -> Option<DiscoveryRequest> {
        let state = &mut self.kinds[kind as usize];
        if state.entries.keys().eq(&names) {
            return None;
        }
        state.entries.retain(|name, _| names.contains(name));
        for name in names {
            state.entries.entry(name).or_default();
        }
        Some(self.request(kind))
    }

    /// Returns the first requests of a new stream, on which no response is known yet. The first one
    /// carries the node.
    pub(super) fn open(&mut self) -> Vec<DiscoveryRequest> {
        self.kinds.iter_mut().for_each(|state| state.nonce.clear());
        let kinds = Kind::ALL.into_iter().filter(|kind| !self.of(*kind).entries.is_empty());
        let mut requests: Vec<_> = kinds.map(|kind| self.request(kind)).collect();
        if let Some(first) = requests.first_mut() {
            first.node = Some(self.node.message());
        }
        requests
    }

    /// Handles a response. Returns `None` if its kind is not requested.
    pub(super) fn handle(&mut self, response: DiscoveryResponse) -> Option<Answer> {
        let kind = Kind::from_url(&response.type_url)?;
        let state = &mut self.kinds[kind as usize];
        if state.entries.is_empty() {
            return None;
        }
        let (mut received, mut wrong) = (BTreeSet::new(), Wrong::default());
        for bytes in response.resources {
            let (name, decoded) = match resource::decode(kind, bytes, &self.host) {
                Ok(decoded) => decoded,
                Err(reason) => {
                    wrong.add(&shortened(&reason));
                    continue;
                }
            };
            let Some(entry) = state.entries.get_mut(&name) else { continue };
            match decoded {
                Ok(resource) => *entry = Entry { resource: Some(resource), problem: None },
                Err(reason) => {
                    let (reason, name) = (shortened(&reason), shortened(&name));
                    wrong.add(&format!("the {} `{name}`: {reason}", kind.name()));
                    entry.problem = Some(Problem::Rejected(reason));
                }
            }
            received.insert(name);
        }
        // Without the name in the response, only a kind that lists all its resources tells that one
        // is gone.
        if kind.is_complete() {
            // A resource that was never received may have been requested after the control plane
            // wrote this response.
            let gone = |(name, entry): &(&String, &mut Entry)| {
                entry.resource.is_some() && !received.contains(*name)
            };
            let missing = || Entry { resource: None, problem: Some(Problem::Missing) };
            state.entries.iter_mut().filter(gone).for_each(|(_, entry)| *entry = missing());
        }
        // A NACK repeats the old version with the new nonce. The control plane then knows which
        // response the client refused.
        state.nonce = response.nonce;
        let rejected = wrong.reason();
        if rejected.is_none() {
            state.version = response.version_info;
        }
        let mut request = self.request(kind);
        request.error_detail =
            rejected.clone().map(|message| ErrorDetail { code: INVALID_ARGUMENT, message });
        Some(Answer { request, rejected })
    }

    fn request(&self, kind: Kind) -> DiscoveryRequest {
        let KindState { entries, version, nonce } = self.of(kind);
        DiscoveryRequest {
            version_info: version.clone(),
            node: None,
            resource_names: entries.keys().cloned().collect(),
            type_url: kind.url().to_owned(),
            response_nonce: nonce.clone(),
            error_detail: None,
        }
    }
}

/// Shortens text from a control plane to one bounded line of the log.
fn shortened(text: &str) -> String {
    let mut shortened: String =
        text.chars().take(MAX_PART_LEN).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(MAX_PART_LEN).is_some() {
        shortened.push_str("...");
    }
    shortened
}

/// The errors in a response, as far as there is room for them.
#[derive(Debug, Default)]
struct Wrong {
    text: String,
    more: usize,
}

impl Wrong {
    fn add(&mut self, reason: &str) {
        let separator = if self.text.is_empty() { "" } else { "; " };
        match self.text.len() + separator.len() + reason.len() <= MAX_REASON_LEN {
            true => self.text.extend([separator, reason]),
            false => self.more += 1,
        }
    }

    fn reason(self) -> Option<String> {
        match (self.text.is_empty(), self.more) {
            (true, _) => None,
            (false, 0) => Some(self.text),
            (false, more) => Some(format!("{}; and {more} more", self.text)),
        }
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use prost::bytes::Bytes;

    use super::*;
    use crate::api;

    fn session() -> Session {
        Session::new(XdsNode::new("node"), "shop".to_owned())
    }

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(ToString::to_string).collect()
    }

    /// Returns a cluster, with EDS or of an unsupported type.
    fn cluster(name: &str, kind: i32) -> Bytes {
        let eds_cluster_config = None;
        let message = api::Cluster { name: name.to_owned(), kind: Some(kind), eds_cluster_config };
        let (type_url, value) = (Kind::Cluster.url().to_owned(), message.encode_to_vec().into());
        api::Any { type_url, value }.encode_to_vec().into()
    }

    fn response(kind: Kind, version: u32, resources: Vec<Bytes>) -> DiscoveryResponse {
        DiscoveryResponse {
            version_info: version.to_string(),
            resources,
            type_url: kind.url().to_owned(),
            nonce: format!("nonce-{version}"),
        }
    }

    /// Returns a request's names, version, nonce, and the reason of a NACK.
    fn said(request: &DiscoveryRequest) -> (Vec<&str>, &str, &str, Option<&str>) {
        let names = request.resource_names.iter().map(String::as_str).collect();
        let reason = request.error_detail.as_ref().map(|detail| detail.message.as_str());
        (names, &request.version_info, &request.response_nonce, reason)
    }

    const EDS: i32 = 3;
    const STATIC: i32 = 0;

    #[test]
    fn usable_responses_are_acknowledged_by_version() {
        let mut session = session();
        let request = session.ask(Kind::Cluster, names(&["a"])).unwrap();
        assert_eq!(said(&request), (vec!["a"], "", "", None));
        assert_eq!(session.ask(Kind::Cluster, names(&["a"])), None);
        let answer = session.handle(response(Kind::Cluster, 1, vec![cluster("a", EDS)])).unwrap();
        assert_eq!(said(&answer.request), (vec!["a"], "1", "nonce-1", None));
        assert_eq!(answer.rejected, None);
        let there = Resource::Cluster("a".to_owned());
        assert_eq!(session.known(Kind::Cluster, "a"), Known::There(&there));
        let request = session.ask(Kind::Cluster, names(&["a", "b"])).unwrap();
        assert_eq!(said(&request), (vec!["a", "b"], "1", "nonce-1", None));
    }

    #[test]
    fn unusable_resources_are_rejected_with_the_old_version() {
        let mut session = session();
        let _ = session.ask(Kind::Cluster, names(&["a", "b"]));
        let both = || vec![cluster("a", EDS), cluster("b", EDS)];
        session.handle(response(Kind::Cluster, 1, both())).unwrap();
        let _ = session.ask(Kind::Cluster, names(&["a", "b", "c"]));
        let half = vec![cluster("a", STATIC), cluster("b", EDS), cluster("c", STATIC)];
        let answer = session.handle(response(Kind::Cluster, 2, half)).unwrap();
        let reason = "the Cluster `a`: its type is not EDS, the only one supported; \
                      the Cluster `c`: its type is not EDS, the only one supported";
        let wanted = (vec!["a", "b", "c"], "1", "nonce-2", Some(reason));
        assert_eq!(said(&answer.request), wanted);
        assert_eq!(answer.rejected.as_deref(), Some(reason));
        // The earlier state stays in use. The new resource has none.
        assert!(matches!(session.known(Kind::Cluster, "a"), Known::There(_)));
        assert!(matches!(session.known(Kind::Cluster, "c"), Known::Rejected(_)));
        // Usable resources of the same response are accepted.
        assert!(matches!(session.known(Kind::Cluster, "b"), Known::There(_)));
    }

    #[test]
    fn unrequested_resources_are_not_kept() {
        let mut session = session();
        let _ = session.ask(Kind::Cluster, names(&["a"]));
        let many = (0..1000).map(|number| cluster(&format!("other-{number}"), EDS)).collect();
        let answer = session.handle(response(Kind::Cluster, 1, many)).unwrap();
        assert_eq!(answer.rejected, None);
        assert_eq!(session.of(Kind::Cluster).entries.len(), 1);
        assert_eq!(session.handle(response(Kind::Assignment, 1, Vec::new())), None);
        let mut unknown = response(Kind::Cluster, 1, Vec::new());
        unknown.type_url = "type.googleapis.com/envoy.config.core.v3.Extension".to_owned();
        assert_eq!(session.handle(unknown), None);
        // A resource that is no longer requested is dropped, too.
        session.handle(response(Kind::Cluster, 2, vec![cluster("a", EDS)])).unwrap();
        let _ = session.ask(Kind::Cluster, names(&["b"]));
        assert_eq!(session.known(Kind::Cluster, "a"), Known::Awaited);
    }

    #[test]
    fn a_listed_cluster_can_disappear_and_a_new_one_appear() {
        let mut session = session();
        let _ = session.ask(Kind::Cluster, names(&["a", "b"]));
        session.handle(response(Kind::Cluster, 1, vec![cluster("a", EDS)])).unwrap();
        assert_eq!(session.known(Kind::Cluster, "b"), Known::Awaited);
        session.handle(response(Kind::Cluster, 2, vec![cluster("b", EDS)])).unwrap();
        assert_eq!(session.known(Kind::Cluster, "a"), Known::Missing);
        session.handle(response(Kind::Cluster, 3, vec![cluster("a", EDS)])).unwrap();
        assert!(matches!(session.known(Kind::Cluster, "a"), Known::There(_)));
    }

    #[test]
    fn an_assignment_missing_from_a_response_stays() {
        let mut session = session();
        let _ = session.ask(Kind::Assignment, names(&["a"]));
        let message =
            api::ClusterLoadAssignment { cluster_name: "a".to_owned(), endpoints: Vec::new() };
        let (type_url, value) = (Kind::Assignment.url().to_owned(), message.encode_to_vec().into());
        let any = api::Any { type_url, value }.encode_to_vec().into();
        session.handle(response(Kind::Assignment, 1, vec![any])).unwrap();
        session.handle(response(Kind::Assignment, 2, Vec::new())).unwrap();
        assert!(matches!(session.known(Kind::Assignment, "a"), Known::There(_)));
    }

    #[test]
    fn a_new_stream_begins_with_the_node_and_no_nonces() {
        let mut session = session();
        let _ = session.ask(Kind::Listener, names(&["shop"]));
        let _ = session.ask(Kind::Cluster, names(&["a"]));
        session.handle(response(Kind::Cluster, 1, vec![cluster("a", EDS)])).unwrap();
        let requests = session.open();
        let nodes: Vec<_> = requests.iter().map(|request| request.node.is_some()).collect();
        assert_eq!(nodes, [true, false]);
        assert_eq!(said(&requests[1]), (vec!["a"], "1", "", None));
    }

    #[test]
    fn an_error_is_one_bounded_line() {
        let mut session = session();
        let name = format!("a\nb{}", "\u{10ffff}".repeat(10_000));
        let _ = session.ask(Kind::Cluster, BTreeSet::from([name.clone()]));
        let response = response(Kind::Cluster, 1, vec![cluster(&name, STATIC)]);
        let reason = session.handle(response).unwrap().rejected.unwrap();
        assert!(reason.starts_with("the Cluster `a b"), "{reason}");
        assert!(reason.ends_with("...`: its type is not EDS, the only one supported"), "{reason}");
    }

    #[test]
    fn the_error_of_a_response_is_bounded() {
        let mut session = session();
        let _ = session.ask(Kind::Cluster, names(&["a"]));
        let garbage = vec![Bytes::from_static(&[0xff; 3]); 10_000];
        let answer = session.handle(response(Kind::Cluster, 1, garbage)).unwrap();
        let reason = answer.rejected.unwrap();
        assert!(reason.len() < MAX_REASON_LEN + 100, "{}", reason.len());
        assert!(reason.contains("more"), "{reason}");
    }
}
