//! The first mistakes that a reader can make who comes from tonic, and whether rustc's words say
//! how to mend them.

use anyhow::{Context as _, Result, bail};

use super::packed::{self, Packed};
use super::readme::Shown;
use super::user::{PROGRAM, UserCrate};

/// A mistake: what stands in the README's program, what a reader writes in its place, and what
/// rustc is to say.
struct Mistake {
    right: &'static str,
    wrong: &'static str,
    said: &'static str,
}

/// The README's way to serve its implementation.
const SERVED: &str = "GreeterService::new(MyGreeter)";

/// The advice that rustc must print. `greeter_rpc` stands for the module of any service.
const ADVICE: &str = "`greeter_rpc::GreeterService::new(implementation)`";

/// The address that the README's server listens at.
const ADDRESS: &str = "\"auto://127.0.0.1:0\"";

/// The message that rustc must print for a value that is no address.
const TEXT: &str = "an address is text as it is, without `parse`";

const MISTAKES: [Mistake; 5] = [
    // The implementation itself, and tonic's server of it.
    Mistake { right: SERVED, wrong: "MyGreeter", said: ADVICE },
    Mistake {
        right: SERVED,
        wrong: "proto::greeter_server::GreeterServer::new(MyGreeter)",
        said: ADVICE,
    },
    Mistake { right: ADDRESS, wrong: "7000", said: TEXT },
    // In edition 2024 a type that cannot be told is `!`.
    Mistake { right: ADDRESS, wrong: "\"127.0.0.1:0\".parse()?", said: TEXT },
    // The trait is tonic's; docs/book/src/moving-from-tonic.md explains what rustc says.
    Mistake {
        right: "GreeterStub::new(channel.clone())",
        wrong: "proto::greeter_client::GreeterClient::new(channel.clone())",
        said: "`Channel: Service<Request<Body>>` is not satisfied",
    },
];

/// Makes each mistake in the crate that `entrance`'s README shows, and reads what cargo says of it.
///
/// # Errors
///
/// Returns an error if one builds, or the words lack the advice.
pub(super) fn are_explained(entrance: &Packed, packages: &[Packed]) -> Result<()> {
    let workspace = packed::metadata()?;
    let target = &workspace.target_directory;
    for mistake in MISTAKES {
        let readme = entrance.folder.join("README.md");
        let change = |files: &mut [Shown]| make(files, &mistake);
        let user = UserCrate::changed(&readme, packages, &workspace.workspace_root, change)?;
        let Mistake { wrong, said: advice, .. } = mistake;
        let said = user.refusal(target).with_context(|| format!("with {wrong}"))?;
        user.clean(target, PROGRAM)?;
        if !said.contains(advice) {
            bail!("with {wrong}, rustc does not print {advice}:\n{said}");
        }
    }
    Ok(())
}

fn make(files: &mut [Shown], Mistake { right, wrong, .. }: &Mistake) -> Result<()> {
    let main = files.iter_mut().find(|file| file.path == "src/main.rs");
    let main = main.filter(|file| file.text.contains(right));
    let main = main.with_context(|| format!("it does not say {right}"))?;
    main.text = main.text.replace(right, wrong);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistake_stands_where_the_right_words_stood() {
        let mut files = [Shown { path: "src/main.rs".into(), text: format!("a({SERVED})") }];
        let mistake = Mistake { right: SERVED, wrong: "b", said: "" };
        make(&mut files, &mistake).unwrap();
        assert_eq!(files[0].text, "a(b)");
        assert!(make(&mut files, &mistake).is_err());
    }
}
