//! `farcall list`: the services of a server or a schema, or the methods of one.

use crate::args::{Global, SymbolArgs};
use crate::failure::Failure;
use crate::output::Output;
use crate::schema::Symbol;
use crate::source::SchemaSource;

pub(crate) async fn run(
    global: &Global,
    args: &SymbolArgs,
    output: &Output,
) -> Result<(), Failure> {
    let (source, service) = SchemaSource::open(global, args, output).await?;
    let mut names: Vec<_> = match service {
        None => source.services().await?,
        Some(name) => match source.symbol(name).await? {
            Symbol::Service(service) => {
                service.methods().map(|method| method.full_name().to_owned()).collect()
            }
            _ => {
                return Err(Failure::usage(format!(
                    "{name} is not a service: list the server without it"
                )));
            }
        },
    };
    names.sort_unstable();
    if output.is_json() {
        return output.value(&names);
    }
    names.iter().try_for_each(|name| output.line(name))
}
