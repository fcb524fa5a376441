//! `farcall completions` and `farcall man`.

use clap::CommandFactory as _;
use clap_mangen::Man;

use crate::args::{Cli, CompletionsArgs, ManArgs};
use crate::failure::Failure;
use crate::output::Output;

const NAME: &str = "farcall";

pub(crate) fn completions(args: &CompletionsArgs, output: &Output) -> Result<(), Failure> {
    // Into memory: the generator panics where its reader has left.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), NAME, &mut script);
    output.text(&String::from_utf8_lossy(&script))
}

pub(crate) fn page(args: &ManArgs, output: &Output) -> Result<(), Failure> {
    let mut farcall = Cli::command();
    // Gives the commands the global flags.
    farcall.build();
    let command = match &args.command {
        None => farcall,
        Some(name) => {
            let unknown =
                || Failure::usage(format!("farcall has no command {name}: see farcall --help"));
            let command = farcall.find_subcommand(name).ok_or_else(unknown)?;
            command.clone()
        }
    };
    let mut page = Vec::new();
    Man::new(command).render(&mut page)?;
    output.text(&String::from_utf8_lossy(&page))
}
