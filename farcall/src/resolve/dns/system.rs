//! The resolver of this moment: the system's configuration may change.

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{ResolverConfig, ResolverOpts};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use rpc_core::limited_log;
use rpc_core::limits::log::LogLimit;

use super::super::ResolveError;

/// Name servers, search list and options.
type Settings = (ResolverConfig, ResolverOpts);

/// Reads the system's settings; `None` while they are the same as before.
type ReadSettings = dyn FnMut() -> Result<Option<Settings>, ResolveError> + Send + Sync;

/// A resolver that follows the system's configuration, or one that the program has made.
pub(super) struct CurrentResolver {
    read: Box<ReadSettings>,
    resolver: Option<TokioResolver>,
}

impl CurrentResolver {
    pub(super) fn follow_system() -> Self {
        Self::by(settings::reader())
    }

    /// A resolver of the program's, which stays.
    pub(super) fn fixed(resolver: TokioResolver) -> Self {
        Self { resolver: Some(resolver), ..Self::by(|| Ok(None)) }
    }

    pub(super) fn by(
        read: impl FnMut() -> Result<Option<Settings>, ResolveError> + Send + Sync + 'static,
    ) -> Self {
        Self { read: Box::new(read), resolver: None }
    }

    /// Returns the resolver by the settings of this moment. Settings that cannot be read leave
    /// those before in use.
    ///
    /// # Errors
    ///
    /// Returns the reason if no settings could be read so far.
    pub(super) fn resolver(&mut self, log: &LogLimit) -> Result<TokioResolver, ResolveError> {
        let failure = match (self.read)().and_then(|read| read.map(build).transpose()) {
            Ok(None) => None,
            Ok(Some(resolver)) => {
                self.resolver = Some(resolver);
                None
            }
            Err(error) => Some(error),
        };
        match (&self.resolver, failure) {
            (Some(resolver), None) => Ok(resolver.clone()),
            (Some(resolver), Some(error)) => {
                limited_log!(
                    target: "farcall::path",
                    log, WARN, "cannot read the system's DNS settings: the earlier ones stay in \
                                use", %error
                );
                Ok(resolver.clone())
            }
            (None, Some(error)) => Err(error),
            (None, None) => Err(ResolveError::new("the system has no DNS settings")),
        }
    }
}

fn build((config, options): Settings) -> Result<TokioResolver, ResolveError> {
    let provider = TokioRuntimeProvider::default();
    let builder = TokioResolver::builder_with_config(config, provider).with_options(options);
    builder
        .build()
        .map_err(|error| ResolveError::new(format!("the system's DNS settings: {error}")))
}

/// Files of Unix.
#[cfg(all(unix, not(any(target_os = "android", target_vendor = "apple"))))]
mod settings {
    use std::fs::{self, Metadata};
    use std::path::PathBuf;
    use std::time::SystemTime;

    use hickory_resolver::net::NetError;
    use hickory_resolver::system_conf::parse_resolv_conf;

    use super::super::super::ResolveError;
    use crate::resolve::dns::system::Settings;

    pub(super) fn reader() -> impl FnMut() -> Result<Option<Settings>, ResolveError> + Send + Sync {
        reader_of("/etc/resolv.conf".into(), "/etc/hosts".into())
    }

    /// The resolver reads the file of hosts itself. It may be long, so that its time and length
    /// have to show a change.
    type HostsStamp = Option<(Option<SystemTime>, u64)>;

    pub(super) fn reader_of(
        settings: PathBuf,
        hosts: PathBuf,
    ) -> impl FnMut() -> Result<Option<Settings>, ResolveError> + Send + Sync {
        let mut known = None;
        move || {
            let name = settings.display();
            let text = fs::read(&settings).map_err(|error| {
                ResolveError::new(format!("cannot read the DNS settings {name}: {error}"))
            })?;
            let stamp = |hosts: Metadata| (hosts.modified().ok(), hosts.len());
            let hosts: HostsStamp = fs::metadata(&hosts).ok().map(stamp);
            let now = Some((text, hosts));
            if known == now {
                return Ok(None);
            }
            let text = now.as_ref().map_or(&[][..], |(text, _)| text);
            let parsed = parse_resolv_conf(text).map_err(|error| {
                let reason = match &error {
                    NetError::Io(error) => error.to_string(),
                    other => other.to_string(),
                };
                ResolveError::new(format!("the DNS settings {name}: {reason}"))
            })?;
            known = now;
            Ok(Some(parsed))
        }
    }
}

/// Systems with an interface of their own.
#[cfg(not(all(unix, not(any(target_os = "android", target_vendor = "apple")))))]
mod settings {
    use hickory_resolver::system_conf::read_system_conf;

    use super::super::super::ResolveError;
    use crate::resolve::dns::system::Settings;

    pub(super) fn reader() -> impl FnMut() -> Result<Option<Settings>, ResolveError> + Send + Sync {
        let mut known = None;
        move || {
            let read = read_system_conf().map_err(|error| {
                ResolveError::new(format!("cannot read the system's DNS settings: {error}"))
            })?;
            // They cannot be compared.
            let now = Some(format!("{read:?}"));
            Ok((known != now).then(|| {
                known = now;
                read
            }))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn changed_settings_are_read_and_a_missing_file_is_named() {
        let folder = std::env::temp_dir().join(format!("farcall-dns-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (path, hosts) = (folder.join("resolv.conf"), folder.join("hosts"));
        let mut read = settings::reader_of(path.clone(), hosts.clone());
        let error = read().unwrap_err().to_string();
        let expected = format!("cannot read the DNS settings {}: No such file", path.display());
        assert!(error.starts_with(&expected), "{error}");
        std::fs::write(&path, "search example.test\n").unwrap();
        let error = read().unwrap_err().to_string();
        let expected = format!("the DNS settings {}: no nameservers found", path.display());
        assert!(error.starts_with(&expected), "{error}");
        let servers = |read: Option<Settings>| {
            read.map(|(config, _)| config.name_servers().iter().map(|it| it.ip).collect::<Vec<_>>())
        };
        for ip in ["127.0.0.1", "127.0.0.2"] {
            std::fs::write(&path, format!("nameserver {ip}\n")).unwrap();
            assert_eq!(servers(read().unwrap()), Some(vec![ip.parse().unwrap()]));
            assert_eq!(servers(read().unwrap()), None);
        }
        std::fs::write(&hosts, "127.0.0.1 a.test\n").unwrap();
        assert!(read().unwrap().is_some());
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[tokio::test]
    async fn settings_that_cannot_be_read_leave_those_before() {
        let mut reads = [
            Err(ResolveError::new("no file")),
            Ok(Some((ResolverConfig::default(), ResolverOpts::default()))),
            Err(ResolveError::new("no file")),
            Ok(None),
        ]
        .into_iter();
        let mut system = CurrentResolver::by(move || reads.next().unwrap());
        let log = LogLimit::default();
        assert_eq!(system.resolver(&log).err().unwrap().to_string(), "no file");
        for _ in 0..3 {
            assert!(system.resolver(&log).is_ok());
        }
    }
}
