//! The source of a schema that `list` and `describe` show: files, or a server.

use farcall::{Channel, Code};
use prost_reflect::DescriptorPool;

use crate::args::{Global, SymbolArgs};
use crate::failure::Failure;
use crate::output::Output;
use crate::schema::{self, Symbol};
use crate::{reflection, target};

/// The source of a schema.
pub(crate) enum SchemaSource<'a> {
    /// Files that the command line names.
    Files(DescriptorPool),
    /// A server, which is asked by reflection.
    Server(Channel, &'a Global),
}

impl<'a> SchemaSource<'a> {
    /// Opens the source that the command line names, and returns it with the symbol to show, if
    /// there is one.
    pub(crate) async fn open(
        global: &'a Global,
        args: &'a SymbolArgs,
        output: &Output,
    ) -> Result<(Self, Option<&'a str>), Failure> {
        let (target, symbol) = split(args);
        if let Some(pool) = args.schema.files()? {
            return Ok((Self::Files(pool), symbol));
        }
        let target = target.ok_or_else(|| {
            Failure::usage("give a target, such as auto://host:port, or --proto or --protoset")
        })?;
        let channel = target::connect(global, target).await?.channel;
        output.note(&format!("> over {}", channel.path()));
        Ok((Self::Server(channel, global), symbol))
    }

    /// Returns the names of its services.
    pub(crate) async fn services(&self) -> Result<Vec<String>, Failure> {
        match self {
            Self::Files(pool) => Ok(pool.services().map(|it| it.full_name().to_owned()).collect()),
            Self::Server(channel, global) => reflection::services(global, channel).await,
        }
    }

    /// Finds a service, method, message or enum.
    pub(crate) async fn symbol(&self, name: &str) -> Result<Symbol, Failure> {
        match self {
            Self::Files(pool) => schema::symbol(pool, name),
            Self::Server(channel, global) => {
                // Servers know methods by a dot, and some know no slash.
                let name = name.trim_start_matches('.').replace('/', ".");
                let found = match reflection::schema_of(global, channel, &name).await {
                    Err(failure) if failure.code() == Some(Code::NotFound) => {
                        // grpcio's servers know services and messages, but no methods.
                        let Some((service, _)) = name.rsplit_once('.') else { return Err(failure) };
                        let found = reflection::schema_of(global, channel, service).await;
                        found.map_err(|_| failure)
                    }
                    found => found,
                };
                schema::symbol(&found?, &name)
            }
        }
    }
}

/// Returns the target and the symbol. Beside schema files, a word that is no address is the symbol.
fn split(args: &SymbolArgs) -> (Option<&str>, Option<&str>) {
    let is_target = |text: &str| text.contains([':', '@']);
    match args.target_and_symbol.as_slice() {
        [] => (None, None),
        [one] if args.schema.has_files() && !is_target(one) => (None, Some(one)),
        [target] => (Some(target), None),
        [target, symbol, ..] => (Some(target), Some(symbol)),
    }
}
