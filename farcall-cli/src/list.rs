//! `farcall list`: the services of a server or a schema, or the methods of one.

use crate::args::{Global, SymbolArgs};
use crate::failure::Failure;
use crate::output::Output;
use crate::schema::{self, Symbol};
use crate::{reflection, target};

pub(crate) async fn run(
    global: &Global,
    args: &SymbolArgs,
    output: &Output,
) -> Result<(), Failure> {
    let (target, symbol) = args.split()?;
    let mut names = match (args.schema.files()?, symbol) {
        (Some(pool), None) => pool.services().map(|it| it.full_name().to_owned()).collect(),
        (Some(pool), Some(service)) => methods(&pool, service)?,
        (None, symbol) => {
            let channel = target::connect(global, args.required(target)?).await?.channel;
            output.note(&format!("> over {}", channel.path()));
            match symbol {
                None => reflection::services(global, &channel).await?,
                Some(service) => {
                    let pool = reflection::schema_of(global, &channel, service).await?;
                    methods(&pool, service)?
                }
            }
        }
    };
    names.sort_unstable();
    if output.is_json() {
        return output.value(&names);
    }
    names.iter().try_for_each(|name| output.line(name))
}

/// Returns the full names of a service's methods.
fn methods(pool: &prost_reflect::DescriptorPool, service: &str) -> Result<Vec<String>, Failure> {
    match schema::symbol(pool, service)? {
        Symbol::Service(service) => {
            Ok(service.methods().map(|method| method.full_name().to_owned()).collect())
        }
        _ => Err(Failure::usage(format!("{service} is not a service"))),
    }
}

impl SymbolArgs {
    /// Returns the target and the symbol. Beside schema files, a word that is no address is the
    /// symbol.
    pub(crate) fn split(&self) -> Result<(Option<&str>, Option<&str>), Failure> {
        let is_target = |text: &str| text.contains([':', '@']);
        match self.target_and_symbol.as_slice() {
            [] => Ok((None, None)),
            [one] if self.schema.has_files() && !is_target(one) => Ok((None, Some(one))),
            [target] => Ok((Some(target), None)),
            [target, symbol, ..] => Ok((Some(target), Some(symbol))),
        }
    }

    /// Returns the target, which a schema without files comes from.
    pub(crate) fn required<'a>(&self, target: Option<&'a str>) -> Result<&'a str, Failure> {
        target.ok_or_else(|| {
            Failure::usage("give a target, such as auto://host:port, or --proto or --protoset")
        })
    }
}
