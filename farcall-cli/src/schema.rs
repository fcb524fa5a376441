//! Schemas: from a server's reflection, from descriptor sets, or from `.proto` files.

use std::path::{Path, PathBuf};

use farcall::Channel;
use prost_reflect::{
    DescriptorPool, EnumDescriptor, MessageDescriptor, MethodDescriptor, ServiceDescriptor,
};

use crate::args::{CallArgs, Global, SchemaArgs};
use crate::failure::Failure;
use crate::{guard, reflection, target};

/// Maximum length of a descriptor set in a file, in bytes.
const FILE_LEN_MAX: u64 = 64 << 20;

/// Maximum number of names that a message lists.
const NAMES_SHOWN_MAX: usize = 10;

/// A service, method, message or enum of a schema.
#[derive(Debug)]
pub(crate) enum Symbol {
    Service(ServiceDescriptor),
    Method(MethodDescriptor),
    Message(MessageDescriptor),
    Enum(EnumDescriptor),
}

impl SchemaArgs {
    /// Returns true if files have the schema.
    pub(crate) fn has_files(&self) -> bool {
        !self.protoset.is_empty() || !self.proto.is_empty()
    }

    /// Reads the schema of the files, if there are any.
    pub(crate) fn files(&self) -> Result<Option<DescriptorPool>, Failure> {
        if !self.proto.is_empty() {
            return compiled(&self.proto, &self.import_path).map(Some);
        }
        if self.protoset.is_empty() {
            return Ok(None);
        }
        let sets: Vec<_> = self.protoset.iter().map(|path| read(path)).collect::<Result<_, _>>()?;
        let names: Vec<_> = self.protoset.iter().map(|path| path.display().to_string()).collect();
        let schema = guard::schema_from_sets(&sets);
        // A fault of a file that the command line names is one of usage.
        schema.map(Some).map_err(|failure| {
            Failure::usage(format!("{}: {}", names.join(", "), failure.message()))
        })
    }

    /// Reads the schema that has `symbol` from the files, or else from the server.
    pub(crate) async fn find(
        &self,
        global: &Global,
        channel: &Channel,
        symbol: &str,
    ) -> Result<DescriptorPool, Failure> {
        match self.files()? {
            Some(pool) => Ok(pool),
            None => reflection::schema_of(global, channel, symbol).await,
        }
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let unreadable =
        |error: std::io::Error| Failure::usage(format!("cannot read {}: {error}", path.display()));
    let len = std::fs::metadata(path).map_err(unreadable)?.len();
    if len > FILE_LEN_MAX {
        let message = format!("{} has {len} bytes; the limit is {FILE_LEN_MAX}", path.display());
        return Err(Failure::usage(message));
    }
    std::fs::read(path).map_err(unreadable)
}

/// Compiles `.proto` files. A fault has the file, the line and the column.
fn compiled(files: &[PathBuf], imports: &[PathBuf]) -> Result<DescriptorPool, Failure> {
    let here = [PathBuf::from(".")];
    let imports = if imports.is_empty() { &here[..] } else { imports };
    let mut compiler =
        protox::Compiler::new(imports).map_err(|error| Failure::usage(format!("{error:?}")))?;
    compiler.include_imports(true);
    for file in files {
        // protox writes the place of a fault in its `Debug` text alone.
        compiler.open_file(file).map_err(|error| Failure::usage(format!("{error:?}")))?;
    }
    Ok(compiler.descriptor_pool())
}

/// Splits `pkg.Service/Method` or `pkg.Service.Method` into service and method.
pub(crate) fn split_method(text: &str) -> Result<(&str, &str), Failure> {
    let path = text.strip_prefix('/').unwrap_or(text);
    let parts = path.split_once('/').or_else(|| path.rsplit_once('.'));
    let is_name = |name: &str| !name.is_empty() && !name.contains('/');
    parts
        .filter(|(service, method)| is_name(service) && is_name(method))
        .ok_or_else(|| Failure::usage(format!("{text} is not a method: write pkg.Service/Method")))
}

/// Finds a method, or says what there is in its place.
pub(crate) fn method(pool: &DescriptorPool, text: &str) -> Result<MethodDescriptor, Failure> {
    let (service, name) = split_method(text)?;
    let Some(service) = pool.get_service_by_name(service) else {
        let names = pool.services().map(|it| it.full_name().to_owned());
        let message = format!("the schema has no service {service}; it has {}", listed(names));
        return Err(Failure::usage(message));
    };
    service.methods().find(|method| method.name() == name).ok_or_else(|| {
        let names = listed(service.methods().map(|it| it.name().to_owned()));
        let service = service.full_name();
        Failure::usage(format!("{service} has no method {name}; it has {names}"))
    })
}

/// Connects to the target of a call, and finds its method in the schema files or at the target.
pub(crate) async fn called(
    global: &Global,
    args: &CallArgs,
) -> Result<(Channel, MethodDescriptor), Failure> {
    let (service, _) = split_method(&args.method)?;
    // Before the connection: a fault of the files needs no server.
    let files = args.schema.files()?;
    let channel = target::connect(global, &args.target).await?.channel;
    let pool = match files {
        Some(pool) => pool,
        None => args.schema.find(global, &channel, service).await?,
    };
    let described = method(&pool, &args.method)?;
    Ok((channel, described))
}

/// Connects and finds the method for `command`, which calls unary methods alone.
pub(crate) async fn called_unary(
    command: &str,
    global: &Global,
    args: &CallArgs,
) -> Result<(Channel, MethodDescriptor), Failure> {
    let (channel, described) = called(global, args).await?;
    if described.is_client_streaming() || described.is_server_streaming() {
        let method = &args.method;
        let message = format!("{command} calls unary methods only, and {method} has streams");
        return Err(Failure::usage(message));
    }
    Ok((channel, described))
}

/// Finds a service, method, message or enum.
pub(crate) fn symbol(pool: &DescriptorPool, name: &str) -> Result<Symbol, Failure> {
    let name = name.strip_prefix('.').unwrap_or(name);
    let service = pool.get_service_by_name(name).map(Symbol::Service);
    let message = || pool.get_message_by_name(name).map(Symbol::Message);
    let kind = || pool.get_enum_by_name(name).map(Symbol::Enum);
    let method = || {
        let (service, method) = split_method(name).ok()?;
        let service = pool.get_service_by_name(service)?;
        service.methods().find(|it| it.name() == method).map(Symbol::Method)
    };
    service.or_else(message).or_else(kind).or_else(method).ok_or_else(|| {
        let names = listed(pool.services().map(|it| it.full_name().to_owned()));
        Failure::usage(format!(
            "the schema has no service, method, message or enum {name}; its services: {names}"
        ))
    })
}

/// Returns the first names of a list, and how many more there are.
fn listed(names: impl ExactSizeIterator<Item = String>) -> String {
    let count = names.len();
    if count == 0 {
        return "none".into();
    }
    let mut names: Vec<_> = names.collect();
    names.sort_unstable();
    names.truncate(NAMES_SHOWN_MAX);
    let more = count - names.len();
    let names = names.join(", ");
    if more == 0 { names } else { format!("{names} and {more} more") }
}
