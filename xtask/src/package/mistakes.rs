//! The first mistakes that a reader can make who comes from tonic, and whether rustc's words say
//! how to mend them.

use anyhow::{Context as _, Result, bail};

use super::packed::{self, Packed};
use super::readme::Shown;
use super::user::{PROGRAM, UserCrate};

/// How the README serves its implementation.
const RIGHT: &str = "GreeterService::new(MyGreeter)";

/// The implementation itself, and tonic's server of it.
const WRONG: [&str; 2] = ["MyGreeter", "proto::greeter_server::GreeterServer::new(MyGreeter)"];

/// What rustc is to say, in which `greeter_rpc` stands for any service's module.
const ADVICE: &str = "`greeter_rpc::GreeterService::new(implementation)`";

/// Makes each mistake in the crate that `entrance`'s README shows, and reads what cargo says of it.
///
/// # Errors
///
/// When one builds, or the words lack the advice.
pub(super) fn are_explained(entrance: &Packed, packages: &[Packed]) -> Result<()> {
    let workspace = packed::metadata()?;
    let target = &workspace.target_directory;
    for wrong in WRONG {
        let readme = entrance.folder.join("README.md");
        let mistake = |files: &mut [Shown]| make(files, wrong);
        let user = UserCrate::changed(&readme, packages, &workspace.workspace_root, mistake)?;
        let said = user.refusal(target).with_context(|| format!("serving {wrong}"))?;
        user.clean(target, PROGRAM)?;
        if !said.contains(ADVICE) {
            bail!("serving {wrong}, rustc does not say {ADVICE}:\n{said}");
        }
    }
    Ok(())
}

fn make(files: &mut [Shown], wrong: &str) -> Result<()> {
    let main = files.iter_mut().find(|file| file.text.contains(RIGHT));
    let main = main.with_context(|| format!("it does not serve {RIGHT}"))?;
    main.text = main.text.replace(RIGHT, wrong);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistake_stands_where_the_right_words_stood() {
        let mut files = [Shown { path: "main.rs".into(), text: format!("a({RIGHT})") }];
        make(&mut files, "b").unwrap();
        assert_eq!(files[0].text, "a(b)");
        assert!(make(&mut files, "c").is_err());
    }
}
