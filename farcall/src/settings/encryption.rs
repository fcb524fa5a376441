//! The tables `tls`, as what builders take.

use std::collections::BTreeSet;
use std::path::PathBuf;

use rpc_core::settings::Table as _;

use super::tables::{Root, ServerTlsTable, TargetTlsTable};
#[cfg(feature = "tls")]
use super::value::Requirement;
#[cfg(feature = "tls")]
use crate::tls::{AlpnPolicy, ClientCerts, ClientTlsConfig, ServerTlsConfig, TlsError};
use crate::tls::{ClientTls, ServerTls};

/// A table that cannot be used: the key at fault, as `tls.cert`, and what is wrong.
#[derive(Debug)]
pub(super) struct Wrong {
    pub(super) key: &'static str,
    pub(super) message: String,
}

impl Wrong {
    pub(super) fn new(key: &'static str, message: &str) -> Self {
        Self { key, message: message.to_owned() }
    }
}

/// The first of these keys that has a value.
fn first_of<const N: usize>(keys: [(&'static str, bool); N]) -> Option<&'static str> {
    keys.into_iter().find(|(_, is_set)| *is_set).map(|(key, _)| key)
}

impl TargetTlsTable {
    /// The key by which TLS is on, if it is.
    pub(super) fn switch(&self) -> Option<&'static str> {
        match self.enabled {
            Some(true) => Some("tls.enabled"),
            Some(false) => None,
            None => first_of([
                ("tls.ca", self.ca.is_some()),
                ("tls.platform_roots", self.platform_roots.is_some()),
                ("tls.server_name", self.server_name.is_some()),
                ("tls.cert", self.cert.is_some()),
                ("tls.key", self.key.is_some()),
                ("tls.alpn", self.alpn.is_some()),
            ]),
        }
    }
}

impl ServerTlsTable {
    /// The key by which TLS is on, if it is.
    pub(super) fn switch(&self) -> Option<&'static str> {
        match self.enabled {
            Some(true) => Some("tls.enabled"),
            Some(false) => None,
            None => first_of([
                ("tls.cert", self.cert.is_some()),
                ("tls.key", self.key.is_some()),
                ("tls.client_ca", self.client_ca.is_some()),
                ("tls.client_certs", self.client_certs.is_some()),
                ("tls.alpn", self.alpn.is_some()),
            ]),
        }
    }
}

impl Root {
    /// The files of all tables `tls` that are in use.
    pub(super) fn tls_files(&self) -> BTreeSet<PathBuf> {
        let targets = self.targets.0.values().flat_map(|target| {
            let tls = target.tls.clone().or(&self.defaults.target.tls);
            let is_on = tls.switch().is_some();
            [tls.ca, tls.cert, tls.key].into_iter().flatten().filter(move |_| is_on)
        });
        let servers = self.servers.0.values().flat_map(|server| {
            let tls = server.tls.clone().or(&self.defaults.server.tls);
            let is_on = tls.switch().is_some();
            [tls.client_ca, tls.cert, tls.key].into_iter().flatten().filter(move |_| is_on)
        });
        targets.chain(servers).map(PathBuf::from).collect()
    }
}

#[cfg(feature = "tls")]
fn alpn_policy(requirement: Requirement) -> AlpnPolicy {
    match requirement {
        Requirement::Optional => AlpnPolicy::Optional,
        Requirement::Required => AlpnPolicy::Required,
    }
}

/// A certificate and its key, of which neither is of use alone.
#[cfg(feature = "tls")]
fn pair<'a>(
    cert: Option<&'a String>,
    key: Option<&'a String>,
    all: &mut Vec<Wrong>,
) -> Option<(&'a str, &'a str)> {
    let mut alone = |key, other| {
        let message = format!("set without `{other}`: a certificate and its key belong together");
        all.push(Wrong { key, message });
        None
    };
    match (cert, key) {
        (Some(cert), Some(key)) => Some((cert, key)),
        (Some(_), None) => alone("tls.cert", "tls.key"),
        (None, Some(_)) => alone("tls.key", "tls.cert"),
        (None, None) => None,
    }
}

/// The errors of `checked` behind those that were found before.
#[cfg(feature = "tls")]
fn finish<T>(checked: Result<T, Vec<TlsError>>, mut all: Vec<Wrong>) -> Result<T, Vec<Wrong>> {
    match checked {
        Ok(tls) if all.is_empty() => Ok(tls),
        Ok(_) => Err(all),
        Err(errors) => {
            all.extend(errors.into_iter().map(Wrong::from));
            Err(all)
        }
    }
}

#[cfg(feature = "tls")]
impl From<TlsError> for Wrong {
    fn from(error: TlsError) -> Self {
        let (key, text) = (error.setting(), error.to_string());
        // The reader knows the setting by its place.
        let message = text.strip_prefix(key).and_then(|text| text.strip_prefix(": "));
        let message = message.unwrap_or(&text).to_owned();
        Self { key, message }
    }
}

#[cfg(feature = "tls")]
impl TargetTlsTable {
    /// TLS as the table says, if it is on.
    pub(super) fn tls(&self) -> Result<Option<ClientTls>, Vec<Wrong>> {
        if self.switch().is_none() {
            return Ok(None);
        }
        let mut wrong = Vec::new();
        let mut config = ClientTlsConfig::default();
        if let Some(ca) = &self.ca {
            config = config.with_ca(ca.as_str());
        }
        if let Some(are_trusted) = self.platform_roots {
            config = config.with_platform_roots(are_trusted);
        }
        if let Some(name) = &self.server_name {
            config = config.with_server_name(name);
        }
        if let Some((cert, key)) = pair(self.cert.as_ref(), self.key.as_ref(), &mut wrong) {
            config = config.with_cert(cert, key);
        }
        config = config.with_alpn(self.alpn.map(alpn_policy).unwrap_or_default());
        finish(ClientTls::checked(config), wrong).map(Some)
    }
}

#[cfg(feature = "tls")]
impl ServerTlsTable {
    /// TLS as the table says, if it is on.
    pub(super) fn tls(&self) -> Result<Option<ServerTls>, Vec<Wrong>> {
        let Some(switch) = self.switch() else { return Ok(None) };
        let mut wrong = Vec::new();
        if self.client_ca.is_none() && self.client_certs.is_some() {
            let message =
                "set without `tls.client_ca`, the authorities of clients' certificates".to_owned();
            wrong.push(Wrong { key: "tls.client_certs", message });
        }
        let Some((cert, key)) = pair(self.cert.as_ref(), self.key.as_ref(), &mut wrong) else {
            if self.cert.is_none() && self.key.is_none() {
                let message = "a server with TLS needs `tls.cert` and `tls.key`".to_owned();
                wrong.push(Wrong { key: switch, message });
            }
            return Err(wrong);
        };
        let mut config = ServerTlsConfig::new(cert, key);
        if let Some(ca) = &self.client_ca {
            let certs = match self.client_certs {
                Some(Requirement::Optional) => ClientCerts::Optional,
                Some(Requirement::Required) | None => ClientCerts::Required,
            };
            config = config.with_client_ca(ca.as_str()).with_client_certs(certs);
        }
        config = config.with_alpn(self.alpn.map(alpn_policy).unwrap_or_default());
        finish(ServerTls::checked(config), wrong).map(Some)
    }
}

/// TLS that is asked for in vain. To go on without it would send in the clear what was not meant
/// to.
#[cfg(not(feature = "tls"))]
fn refuse<T>(switch: Option<&'static str>) -> Result<Option<T>, Vec<Wrong>> {
    let message = "this program was built without farcall's feature `tls`".to_owned();
    switch.map_or(Ok(None), |key| Err(vec![Wrong { key, message }]))
}

#[cfg(not(feature = "tls"))]
impl TargetTlsTable {
    pub(super) fn tls(&self) -> Result<Option<ClientTls>, Vec<Wrong>> {
        refuse(self.switch())
    }
}

#[cfg(not(feature = "tls"))]
impl ServerTlsTable {
    pub(super) fn tls(&self) -> Result<Option<ServerTls>, Vec<Wrong>> {
        refuse(self.switch())
    }
}
