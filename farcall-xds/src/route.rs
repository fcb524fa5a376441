//! Listeners and routes: the clusters that serve a target.
//!
//! All calls of a channel go to the same servers. One route is enough: the first in the target's
//! virtual host that matches every call.

use prost::bytes::Bytes;

use super::api;

/// Maximum number of clusters per route. A canary has two.
const MAX_CLUSTERS: usize = 64;

const HTTP_CONNECTION_MANAGER: &str = "type.googleapis.com/envoy.extensions.filters.network.\
                                       http_connection_manager.v3.HttpConnectionManager";

/// The location of a listener's routes.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Listener {
    /// In a resource with this name.
    Named(String),
    Inline(Routes),
}

/// The clusters for the target, or the reason why there are none.
pub(super) type Routes = Result<Vec<WeightedCluster>, String>;

/// A cluster with its weight among the clusters of a route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WeightedCluster {
    pub(super) name: String,
    pub(super) weight: u32,
}

/// Reads a listener.
///
/// # Errors
///
/// Returns an error if the listener is not for clients, or if its routes cannot be read.
pub(super) fn listener(message: api::Listener, host: &str) -> Result<Listener, String> {
    let api = message.api_listener.and_then(|it| it.api_listener);
    let api = api.ok_or("it has no api_listener, so it is not a client's listener")?;
    if api.type_url != HTTP_CONNECTION_MANAGER {
        return Err(format!("its api_listener is a `{}`", api.type_url));
    }
    let manager: api::HttpConnectionManager = api::decoded(api.value)?;
    match (manager.rds, manager.route_config) {
        (Some(rds), _) if rds.route_config_name.is_empty() => {
            Err("its rds has no route_config_name".to_owned())
        }
        (Some(rds), _) => Ok(Listener::Named(api::checked(rds.route_config_name)?)),
        (None, Some(config)) => Ok(Listener::Inline(routes(config, host)?)),
        (None, None) => Err("its api_listener has neither rds nor route_config".to_owned()),
    }
}

/// Reads the routes for the target `host`.
///
/// # Errors
///
/// Returns an error if the routes cannot be read.
pub(super) fn routes(message: api::RouteConfiguration, host: &str) -> Result<Routes, String> {
    let mut best: Option<(Rank, api::VirtualHost)> = None;
    for bytes in message.virtual_hosts {
        let candidate: api::VirtualHost = api::decoded(bytes)?;
        let domains =
            candidate.domains.iter().filter_map(|domain| std::str::from_utf8(domain).ok());
        let rank = domains.filter_map(|domain| rank(domain, host)).max();
        let Some(rank) = rank else { continue };
        // The first of equal ranks wins.
        if best.as_ref().is_none_or(|(other, _)| rank > *other) {
            best = Some((rank, candidate));
        }
    }
    let Some((_, mut virtual_host)) = best else {
        return Ok(Err(format!("has no virtual host whose domains match `{host}`")));
    };
    virtual_host.name = api::checked(virtual_host.name)?;
    for bytes in virtual_host.routes {
        let route: api::Route = api::decoded(bytes)?;
        if route.condition.is_some_and(takes_all) {
            return clusters(route.action, &virtual_host.name);
        }
    }
    Ok(Err(format!(
        "has no route for all calls in its virtual host `{}`; routes for single methods are not \
         supported",
        virtual_host.name
    )))
}

/// The quality of a domain match: its rule, and its number of characters.
type Rank = (Rule, usize);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rule {
    Any,
    Prefix,
    Suffix,
    Exact,
}

fn rank(domain: &str, host: &str) -> Option<Rank> {
    let (domain, host) = (domain.to_ascii_lowercase(), host.to_ascii_lowercase());
    // A star stands for at least one character.
    let is_longer = host.len() >= domain.len();
    let rule = if domain == host {
        Rule::Exact
    } else if domain == "*" {
        Rule::Any
    } else if domain.strip_prefix('*').is_some_and(|suffix| is_longer && host.ends_with(suffix)) {
        Rule::Suffix
    } else if domain.strip_suffix('*').is_some_and(|prefix| is_longer && host.starts_with(prefix)) {
        Rule::Prefix
    } else {
        return None;
    };
    Some((rule, domain.len()))
}

fn takes_all(condition: api::RouteMatch) -> bool {
    let api::RouteMatch {
        prefix,
        headers,
        query_parameters,
        runtime_fraction,
        dynamic_metadata,
        filter_state,
        cookies,
    } = condition;
    let narrowing =
        [headers, query_parameters, runtime_fraction, dynamic_metadata, filter_state, cookies];
    matches!(prefix.as_deref(), Some("" | "/")) && narrowing.iter().all(Option::is_none)
}

/// Returns the clusters of a route's action.
fn clusters(action: Option<api::RouteAction>, virtual_host: &str) -> Result<Routes, String> {
    let action = action.unwrap_or_default();
    let weighted = match action.weighted_clusters {
        Some(weighted) => weighted_clusters(weighted.clusters)?,
        None => vec![WeightedCluster { name: api::checked(action.cluster)?, weight: 1 }],
    };
    if weighted.iter().any(|cluster| cluster.name.is_empty()) {
        return Ok(Err(format!(
            "names no cluster for the calls of its virtual host `{virtual_host}`"
        )));
    }
    Ok(Ok(weighted))
}

/// Returns the clusters with a weight.
fn weighted_clusters(clusters: Vec<Bytes>) -> Result<Vec<WeightedCluster>, String> {
    if clusters.len() > MAX_CLUSTERS {
        return Err(format!(
            "a route has {} clusters; the limit is {MAX_CLUSTERS}",
            clusters.len()
        ));
    }
    let mut weighted = Vec::new();
    for bytes in clusters {
        let api::ClusterWeight { name, weight } = api::decoded(bytes)?;
        let weight = weight.unwrap_or_default().value;
        if weight > 0 {
            weighted.push(WeightedCluster { name: api::checked(name)?, weight });
        }
    }
    match weighted.is_empty() {
        true => Err("a route has weighted_clusters without a weight".to_owned()),
        false => Ok(weighted),
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;

    fn route(prefix: &str, action: api::RouteAction) -> api::Route {
        let prefix = Some(prefix.to_owned());
        let condition = api::RouteMatch { prefix, ..api::RouteMatch::default() };
        api::Route { condition: Some(condition), action: Some(action) }
    }

    fn to(cluster: &str) -> api::RouteAction {
        api::RouteAction { cluster: cluster.to_owned(), weighted_clusters: None }
    }

    fn split(weights: &[(&str, u32)]) -> api::RouteAction {
        let each = weights.iter().map(|&(name, value)| {
            let weight = Some(api::UInt32 { value });
            api::ClusterWeight { name: name.to_owned(), weight }.encode_to_vec().into()
        });
        let weighted_clusters = Some(api::WeightedClusters { clusters: each.collect() });
        api::RouteAction { cluster: String::new(), weighted_clusters }
    }

    fn virtual_host(name: &str, domains: &[&str], routes: &[api::Route]) -> Bytes {
        let domains = domains.iter().map(|domain| Bytes::copy_from_slice(domain.as_bytes()));
        let routes = routes.iter().map(|route| route.encode_to_vec().into());
        let (domains, routes) = (domains.collect(), routes.collect());
        api::VirtualHost { name: name.to_owned(), domains, routes }.encode_to_vec().into()
    }

    fn read(virtual_hosts: Vec<Bytes>, host: &str) -> Result<Routes, String> {
        routes(api::RouteConfiguration { name: "routes".to_owned(), virtual_hosts }, host)
    }

    fn names(routes: Result<Routes, String>) -> Vec<(String, u32)> {
        let clusters = routes.unwrap().unwrap();
        clusters.into_iter().map(|cluster| (cluster.name, cluster.weight)).collect()
    }

    #[test]
    fn the_best_matching_domain_wins() {
        let domains = ["*", "shop.*", "*.test", "shop.test", "a*", "*b"];
        let hosts = || domains.map(|it| virtual_host(it, &[it], &[route("", to(it))])).to_vec();
        for (host, cluster) in [
            ("shop.test", "shop.test"),
            ("SHOP.test", "shop.test"),
            ("other.test", "*.test"),
            ("shop.other", "shop.*"),
            (".test", "*"),
            ("other", "*"),
        ] {
            assert_eq!(names(read(hosts(), host)), [(cluster.to_owned(), 1)], "{host}");
        }
    }

    #[test]
    fn the_first_route_for_all_calls_is_used() {
        let mut by_header = route("/", to("canary"));
        by_header.condition.as_mut().unwrap().headers = Some(Bytes::from_static(b"x"));
        let routes = [
            route("/shop.Inventory/", to("inventory")),
            by_header,
            route("/", to("all")),
            route("", to("never")),
        ];
        let hosts = vec![virtual_host("shop", &["shop"], &routes)];
        assert_eq!(names(read(hosts, "shop")), [("all".to_owned(), 1)]);
    }

    #[test]
    fn weighted_clusters_keep_their_weights() {
        let weights = [("old", 90), ("new", 10), ("off", 0)];
        let hosts = vec![virtual_host("shop", &["*"], &[route("", split(&weights))])];
        let wanted = [("old".to_owned(), 90), ("new".to_owned(), 10)];
        assert_eq!(names(read(hosts, "shop")), wanted);
        let hosts = vec![virtual_host("shop", &["*"], &[route("", split(&[("off", 0)]))])];
        let message = "a route has weighted_clusters without a weight";
        assert_eq!(read(hosts, "shop").unwrap_err(), message);
        let many = vec![("x", 1); MAX_CLUSTERS + 1];
        let hosts = vec![virtual_host("shop", &["*"], &[route("", split(&many))])];
        assert_eq!(read(hosts, "shop").unwrap_err(), "a route has 65 clusters; the limit is 64");
    }

    #[test]
    fn routes_without_a_cluster_have_a_reason() {
        let hosts = vec![virtual_host("a", &["other"], &[route("", to("a"))])];
        let why = read(hosts, "shop").unwrap().unwrap_err();
        assert_eq!(why, "has no virtual host whose domains match `shop`");
        let hosts = vec![virtual_host("a", &["*"], &[route("/shop.Inventory/", to("a"))])];
        let why = read(hosts, "shop").unwrap().unwrap_err();
        assert!(why.starts_with("has no route for all calls in its virtual host `a`"), "{why}");
        let hosts = vec![virtual_host("a", &["*"], &[route("", to(""))])];
        let why = read(hosts, "shop").unwrap().unwrap_err();
        assert_eq!(why, "names no cluster for the calls of its virtual host `a`");
    }

    #[test]
    fn a_listener_contains_routes_or_names_them() {
        let with = |manager: &api::HttpConnectionManager| {
            let value = manager.encode_to_vec().into();
            let type_url = HTTP_CONNECTION_MANAGER.to_owned();
            let api_listener = Some(api::Any { type_url, value });
            let api_listener = Some(api::ApiListener { api_listener });
            listener(api::Listener { name: "shop".to_owned(), api_listener }, "shop")
        };
        let none = api::HttpConnectionManager { rds: None, route_config: None };
        let rds = Some(api::Rds { route_config_name: "routes".to_owned() });
        let named = api::HttpConnectionManager { rds, ..none.clone() };
        assert_eq!(with(&named), Ok(Listener::Named("routes".to_owned())));
        let virtual_hosts = vec![virtual_host("a", &["*"], &[route("", to("shop"))])];
        let config = api::RouteConfiguration { name: String::new(), virtual_hosts };
        let inline = api::HttpConnectionManager { route_config: Some(config), ..none.clone() };
        assert!(matches!(with(&inline), Ok(Listener::Inline(Ok(_)))));
        assert!(with(&none).unwrap_err().contains("neither rds nor route_config"));
        let servers = api::Listener { name: "shop".to_owned(), api_listener: None };
        assert!(listener(servers, "shop").unwrap_err().contains("no api_listener"));
    }
}
