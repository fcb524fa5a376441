//! Files as editors and build systems leave them, and messages that cannot exist.

#![allow(clippy::unwrap_used, reason = "a failed test is how these tests report")]

use std::fs;
use std::path::{Path, PathBuf};

use rpc_codegen::CodegenError;

const PLAIN: &str = "// A licence.\nsyntax = \"proto3\";\npackage plain;\n\n/* Greets\n * twice. \
                     */\nservice Greeter {\n  // Says hello.\n  //\n  // Once.\n  rpc Hello(Name) \
                     returns (Name); // Behind.\n}\n// Who it is.\nmessage Name {\n  string name = \
                     1; // Text.\n}\n";

/// Compiles a file, and returns the generated text of the package `plain`.
fn compile(proto: &Path, include: &Path) -> Result<String, CodegenError> {
    let out = tempfile::tempdir().unwrap();
    let builder = rpc_codegen::configure().out_dir(out.path()).emit_rerun_if_changed(false);
    builder.compile_protos(&[proto], &[include])?;
    Ok(fs::read_to_string(out.path().join("plain.rs")).unwrap())
}

/// Compiles `source` as the file `a.proto`.
fn compile_source(source: impl AsRef<[u8]>) -> Result<String, CodegenError> {
    let dir = tempfile::tempdir().unwrap();
    let proto = dir.path().join("a.proto");
    fs::write(&proto, source).unwrap();
    compile(&proto, dir.path())
}

/// Returns the error for `source`, without the directory of the file.
fn refusal(source: impl AsRef<[u8]>) -> String {
    let text = compile_source(source).unwrap_err().to_string();
    text.rsplit_once("/a.proto").map(|(_, text)| format!("a.proto{text}")).unwrap_or(text)
}

#[test]
fn byte_order_mark_and_crlf_change_no_code() {
    let plain = compile_source(PLAIN).unwrap();
    let crlf = PLAIN.replace('\n', "\r\n");
    for source in [format!("\u{feff}{PLAIN}"), crlf.clone(), format!("\u{feff}{crlf}")] {
        assert_eq!(compile_source(&source).unwrap(), plain, "{source:?}");
    }
}

#[test]
fn imports_may_begin_with_a_byte_order_mark() {
    let dir = tempfile::tempdir().unwrap();
    let (proto, import) = (dir.path().join("a.proto"), dir.path().join("b.proto"));
    let header = "\u{feff}syntax = \"proto3\";\r\npackage plain;\r\n";
    fs::write(&proto, format!("{header}import \"b.proto\";\r\nmessage A {{ B b = 1; }}")).unwrap();
    fs::write(&import, format!("{header}message B {{}}")).unwrap();
    assert!(compile(&proto, dir.path()).unwrap().contains("pub struct B"));
}

#[test]
fn errors_after_a_byte_order_mark_keep_their_location() {
    let broken =
        "\u{feff}syntax = \"proto3\";\r\npackage plain;\r\n\r\nmessage A { Nothing n = 1; }";
    assert!(refusal(broken).starts_with("a.proto:4:"), "{}", refusal(broken));
    let edition = "\u{feff}edition = \"2023\";";
    assert!(refusal(edition).contains("protobuf editions are not supported"), "{edition}");
}

#[test]
fn utf_16_is_named_with_its_fix() {
    let units = PLAIN.encode_utf16().collect::<Vec<_>>();
    for (mark, to_bytes) in
        [([0xff, 0xfe], u16::to_le_bytes as fn(u16) -> _), ([0xfe, 0xff], u16::to_be_bytes)]
    {
        let text = units.iter().flat_map(|unit| to_bytes(*unit));
        let source: Vec<u8> = mark.into_iter().chain(text).collect();
        assert!(refusal(source).contains("the file is UTF-16: save it as UTF-8"));
    }
}

/// Creates `real/a.proto` in a folder, and the link `link` to `real`.
#[cfg(unix)]
fn linked() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let (real, link) = (dir.path().join("real"), dir.path().join("link"));
    fs::create_dir(&real).unwrap();
    fs::write(real.join("a.proto"), PLAIN).unwrap();
    std::os::unix::fs::symlink(&real, &link).unwrap();
    (dir, real, link)
}

#[cfg(unix)]
#[test]
fn symbolic_links_and_dots_lead_to_the_same_code() {
    let (_dir, real, link) = linked();
    let plain = compile(&real.join("a.proto"), &real).unwrap();
    let dotted = real.join("../link/../real");
    for (folder, include) in
        [(&link, &real), (&real, &link), (&link, &link), (&dotted, &link), (&real, &dotted)]
    {
        assert_eq!(compile(&folder.join("a.proto"), include).unwrap(), plain);
    }
    // The file itself is a link, as build systems assemble sources.
    let (elsewhere, _, _) = linked();
    let file = elsewhere.path().join("b.proto");
    std::os::unix::fs::symlink(real.join("a.proto"), &file).unwrap();
    assert_eq!(compile(&file, elsewhere.path()).unwrap(), plain);
    assert_eq!(compile(&file, &real).unwrap(), plain);
}

#[cfg(unix)]
#[test]
fn two_names_of_one_include_directory_do_not_shadow() {
    let (_dir, real, link) = linked();
    let out = tempfile::tempdir().unwrap();
    let compile = |includes: &[&Path]| {
        let builder = rpc_codegen::configure().out_dir(out.path()).emit_rerun_if_changed(false);
        builder.compile_protos(&[&*real.join("a.proto")], includes)
    };
    compile(&[&link, &real]).unwrap();
    let other = tempfile::tempdir().unwrap();
    fs::write(other.path().join("a.proto"), PLAIN).unwrap();
    let shadowed = compile(&[other.path(), &real]).unwrap_err().to_string();
    assert!(shadowed.contains("is shadowed by"), "{shadowed}");
}

#[test]
fn message_that_requires_itself_is_refused() {
    let file = |messages: &str| format!("syntax = \"proto2\";\npackage plain;\n{messages}");
    let node = file("message Other {}\nmessage Node {\n  required Node next = 1;\n}");
    let expected = "a.proto:5:3: message plain.Node requires itself (required plain.Node next): \
                    it has no finite value; make one of these fields optional";
    assert_eq!(refusal(node), expected);
    let pair = file("message A { required B b = 1; }\nmessage B { required A a = 1; }");
    assert!(refusal(&pair).contains("(required plain.B b, required plain.A a)"), "{pair}");
    let group = file("message A { required group G = 1 { required A a = 1; } }");
    assert!(refusal(&group).starts_with("a.proto:3:"), "{}", refusal(&group));
    // A path that leads to the cycle is not part of it.
    let behind = file("message A { required C c = 1; }\nmessage C { required C c = 1; }");
    assert!(refusal(&behind).starts_with("a.proto:4:"), "{}", refusal(&behind));
    let crossing = file("message A { message In { required A a = 1; } required In i = 1; }");
    assert!(refusal(&crossing).contains("plain.A"), "{}", refusal(&crossing));
}

#[test]
fn messages_that_can_end_are_accepted() {
    for messages in [
        "message A { optional A a = 1; }",
        "message A { repeated A a = 1; }",
        "message A { map<string, A> a = 1; }",
        "message A { oneof kind { A a = 1; string text = 2; } }",
        "message A { required B b = 1; }\nmessage B { optional A a = 1; }",
        "message A { required B b = 1; required B c = 2; }\nmessage B { required int32 n = 1; }",
    ] {
        let source = format!("syntax = \"proto2\";\npackage plain;\n{messages}");
        compile_source(source).unwrap();
    }
}

#[test]
fn a_set_without_source_info_names_the_file() {
    let source = "syntax = \"proto2\"; package plain; message A { required A a = 1; }";
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.proto"), source).unwrap();
    let mut fds = protox::compile(["a.proto"], [dir.path()]).unwrap();
    for file in &mut fds.file {
        file.source_code_info = None;
    }
    let error = rpc_codegen::configure().out_dir(dir.path()).compile_fds(fds).unwrap_err();
    assert!(error.to_string().starts_with("a.proto: message plain.A requires itself"), "{error}");
}

/// The messages and services that chapters of the book show.
#[test]
fn protos_of_the_book_compile() {
    let book = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/book/src");
    let mut count = 0;
    // A packed crate has no book.
    for entry in fs::read_dir(&book).into_iter().flatten() {
        let path = entry.unwrap().path();
        let Ok(page) = fs::read_to_string(&path) else { continue };
        let blocks = page.split("```proto\n").skip(1).filter_map(|rest| rest.split("```").next());
        // `cargo xtask package` compiles whole files.
        let parts: Vec<&str> = blocks.filter(|block| !block.contains("syntax = ")).collect();
        if !parts.is_empty() {
            let source = format!("syntax = \"proto3\";\npackage plain;\n{}", parts.concat());
            compile_source(source).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            count += 1;
        }
    }
    assert!(count > 1 || !book.exists(), "only {count} pages with messages were found");
}
