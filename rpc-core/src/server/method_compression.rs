//! From which length on a server compresses its responses, by method.
//!
//! Names are resolved when a listener begins, and when the server's rules change: a call looks its
//! method's number up, and only on a connection whose client accepts compressed messages.

use std::collections::BTreeMap;
use std::sync::Arc;

use thiserror::Error;

use crate::compression::{check_min_len, compressed_from};
use crate::settings::{Named, SERVED, Settings, define_overlay, ensure};
use crate::{Compression, InvalidSetting, MethodDescriptor, ServiceDescriptor};

/// From which length on a server compresses its responses, by method or by service.
///
/// Of two that fit a method its own applies, else its service's, else the server's
/// [`Compression`]. A service's own `compress_from` comes before all of them. As everything about
/// compression it holds where the client accepts compressed messages, over TCP.
///
/// # Examples
///
/// ```no_run
/// use farcall::{Compression, MethodCompression, Server};
///
/// // Images are compressed already, and lists of records are worth it early.
/// let by_method = MethodCompression::default()
///     .with_len("shop.Images", u32::MAX)
///     .with_len("/shop.Catalog/List", 256);
/// let server = Server::builder().compression(Compression::ON).method_compression(by_method);
/// # drop(server);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MethodCompression {
    /// By full name.
    services: BTreeMap<String, u32>,
    /// By path, with its first slash.
    methods: BTreeMap<String, u32>,
}

impl MethodCompression {
    /// Sets the length from which on responses are compressed, in bytes of their encoding: at least
    /// 1, and `u32::MAX` compresses none. The name is that of a method, `/shop.Catalog/Get`, with
    /// its first slash or without, or of a service, `shop.Catalog`.
    #[must_use]
    pub fn with_len(mut self, name: impl Into<String>, bytes: u32) -> Self {
        let name = name.into();
        match name.contains('/') {
            true if name.starts_with('/') => self.methods.insert(name, bytes),
            true => self.methods.insert(format!("/{name}"), bytes),
            false => self.services.insert(name, bytes),
        };
        self
    }

    fn is_empty(&self) -> bool {
        self.services.is_empty() && self.methods.is_empty()
    }

    /// Checks names and lengths, and that compression is built in where a length is set. Whether
    /// the server has the methods is checked when it is built.
    ///
    /// # Errors
    ///
    /// The first that is wrong.
    pub fn check(&self) -> Result<(), InvalidSetting> {
        for bytes in self.methods.values().chain(self.services.values()) {
            check_min_len("methods.compress_from", *bytes)?;
            let is_possible = cfg!(feature = "compression") || *bytes == u32::MAX;
            let rule = "off, since this program was built without farcall's feature `compression`";
            ensure(is_possible, "methods.compress_from", bytes, rule)?;
        }
        let methods = self.methods.keys().map(|path| (path, path.matches('/').count() == 2));
        let services = self.services.keys().map(|name| (name, !name.contains(['/', '*'])));
        for (name, is_valid) in methods.chain(services) {
            let rule = "a service's full name, such as shop.Catalog, or a method's, such as \
                        /shop.Catalog/Get; all methods have `compression.min_len`";
            ensure(is_valid && name.len() > 2, "methods.name", name, rule)?;
        }
        Ok(())
    }

    /// Checks that each name is that of a method or service among `served`.
    pub(super) fn check_served(&self, served: &[&ServiceDescriptor]) -> Result<(), NotServed> {
        let no_service = |name: &String| {
            let known = served.iter().map(|it| it.name.to_owned()).collect();
            NotServed { name: name.clone(), kind: "service", known }
        };
        let is_unknown = |name: &&String| served.iter().all(|it| it.name != name.as_str());
        if let Some(name) = self.services.keys().find(is_unknown) {
            return Err(no_service(name));
        }
        for path in self.methods.keys() {
            let of = path.trim_start_matches('/').split_once('/').map_or("", |(name, _)| name);
            // Two services of one name may each have some of its methods.
            let services = served.iter().filter(|it| it.name == of);
            let known: Vec<_> =
                services.flat_map(|it| it.methods).map(|it| it.path.to_owned()).collect();
            if known.is_empty() {
                return Err(no_service(path));
            }
            if !known.contains(path) {
                return Err(NotServed { name: path.clone(), kind: "method", known });
            }
        }
        Ok(())
    }

    /// The length of each method, in the order of the methods; empty where nothing is set, so that
    /// the length of the connection counts. Names of no method mean nothing.
    pub(super) fn lens<'a>(
        &self,
        methods: impl Iterator<Item = &'a MethodDescriptor>,
        others: Compression,
    ) -> Arc<[u32]> {
        if self.is_empty() {
            return Arc::default();
        }
        let len = |method: &MethodDescriptor| {
            let of_method = self.methods.get(method.path);
            let of_service = || self.services.get(method.service());
            let len = of_method.or_else(of_service).copied();
            len.unwrap_or(others.min_len)
        };
        methods.map(len).collect()
    }
}

define_overlay! {
    /// Settings of a method of the server, "/shop.Catalog/Get", or of all methods of a service,
    /// "shop.Catalog". It is an error to name one that the server does not have.
    pub MethodOverlay of MethodCompression {
        /// From which length on responses are compressed, where the client accepts it; "off" is
        /// never. Unless it is set, the server's `compression.min_len` says.
        compress_from: Option<u64> as SizeOrOff = "\"off\"", Live, 1.., SERVED;
    } tables {}
}

/// The tables of a server's methods and services, by name.
#[doc(hidden)]
pub type MethodCompressionOverlay = Named<MethodOverlay>;

impl From<MethodCompression> for MethodCompressionOverlay {
    fn from(MethodCompression { services, methods }: MethodCompression) -> Self {
        let all = services.into_iter().chain(methods);
        let table = |bytes| MethodOverlay { compress_from: Some(Some(u64::from(bytes))) };
        Self(all.map(|(name, bytes)| (name, table(bytes))).collect())
    }
}

#[doc(hidden)]
impl Settings for MethodCompression {
    type Overlay = MethodCompressionOverlay;

    const DEFAULTS: Self = Self { services: BTreeMap::new(), methods: BTreeMap::new() };

    fn over(overlay: &MethodCompressionOverlay, defaults: &Self) -> Self {
        let set = |(name, table): (&String, &MethodOverlay)| {
            Some((name.clone(), compressed_from(table.compress_from?)))
        };
        overlay
            .0
            .iter()
            .filter_map(set)
            .fold(defaults.clone(), |all, (name, bytes)| all.with_len(name, bytes))
    }

    fn check_all(&self) -> Result<(), InvalidSetting> {
        self.check()
    }
}

/// A method or service that compression is set for, and that the server does not have.
#[derive(Clone, PartialEq, Eq, Error)]
#[error(
    "compression is set for {name}, but the server has no such {kind}: it has {}",
    if known.is_empty() { "none".to_owned() } else { known.join(", ") }
)]
#[non_exhaustive]
pub struct NotServed {
    /// The service's full name, or the method's with its first slash.
    pub name: String,
    kind: &'static str,
    /// The methods of that service, or else the services.
    known: Vec<String>,
}

crate::readable_debug!(NotServed);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CallKind, Idempotency};

    const fn method(path: &'static str) -> MethodDescriptor {
        let (kind, idempotency) = (CallKind::Unary, Idempotency::Unknown);
        MethodDescriptor::new(path, kind, idempotency)
    }

    const CATALOG: ServiceDescriptor = ServiceDescriptor {
        name: "shop.Catalog",
        methods: &[method("/shop.Catalog/Get"), method("/shop.Catalog/List")],
    };
    const IMAGES: ServiceDescriptor =
        ServiceDescriptor { name: "shop.Images", methods: &[method("/shop.Images/Get")] };

    const SERVED: [&ServiceDescriptor; 2] = [&CATALOG, &IMAGES];

    #[test]
    fn the_nearest_length_applies() {
        let lens = |set: &MethodCompression, others| {
            set.lens(SERVED.into_iter().flat_map(|it| it.methods), others).to_vec()
        };
        let none = MethodCompression::default();
        assert!(lens(&none, Compression::ON).is_empty());
        let set = none.with_len("shop.Catalog/List", 7).with_len("shop.Images", u32::MAX);
        assert_eq!(lens(&set, Compression::ON), [1024, 7, u32::MAX]);
        assert_eq!(lens(&set, Compression::ACCEPT), [u32::MAX, 7, u32::MAX]);
        let set = set.with_len("shop.Catalog", 9).with_len("/shop.Images/Get", 8);
        assert_eq!(lens(&set, Compression::ON), [9, 7, 8]);
    }

    #[test]
    fn a_name_that_is_not_served_is_named_with_those_that_are() {
        let error = |set: MethodCompression| set.check_served(&SERVED).unwrap_err().to_string();
        let none = MethodCompression::default;
        assert_eq!(
            error(none().with_len("/shop.Catalog/Gett", 7)),
            "compression is set for /shop.Catalog/Gett, but the server has no such method: it has \
             /shop.Catalog/Get, /shop.Catalog/List"
        );
        assert!(error(none().with_len("shop.Cart/Get", 7)).ends_with(
            "for /shop.Cart/Get, but the server has no such service: it has shop.Catalog, \
             shop.Images"
        ));
        assert!(error(none().with_len("shop.Cart", 7)).contains("for shop.Cart, but"));
        let without = none().with_len("a.B", 1).check_served(&[]);
        assert!(without.unwrap_err().to_string().ends_with("it has none"));
        let right = none().with_len("shop.Images/Get", 1).with_len("shop.Catalog", 1);
        assert_eq!(right.check_served(&SERVED), Ok(()));
    }

    #[test]
    fn names_and_lengths_are_checked() {
        let none = MethodCompression::default;
        for name in ["", "/", "*", "/shop.Cart", "/shop/Cart/Get"] {
            let error = none().with_len(name, u32::MAX).check().unwrap_err();
            assert_eq!(error.name(), "methods.name", "{name}");
        }
        let error = none().with_len("a.B", 0).check().unwrap_err();
        assert_eq!(error.name(), "methods.compress_from");
        let is_built_in = cfg!(feature = "compression");
        assert_eq!(none().with_len("a.B", 1).check().is_ok(), is_built_in);
        assert_eq!(none().with_len("a.B", u32::MAX).check(), Ok(()));
    }
}
