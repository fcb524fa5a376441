//! Arguments for a protoc that does not run, and the settings with the same effect.

/// Returns the warning for an argument.
pub(crate) fn warning(argument: &str) -> String {
    let flag = argument.split('=').next().unwrap_or(argument);
    let instead = match flag {
        "--experimental_allow_proto3_optional" => "protox understands `optional` anyway",
        "--include_imports" | "--include_source_info" => "descriptor sets always contain both",
        "--proto_path" => "pass the folder among the includes",
        "--descriptor_set_out" => "call file_descriptor_set_path",
        _ if flag.starts_with("-I") => "pass the folder among the includes",
        _ if flag.starts_with("-o") => "call file_descriptor_set_path",
        _ => "run protoc yourself and pass its output to compile_fds",
    };
    format!("protoc_arg({argument:?}) has no effect, since no protoc runs: {instead}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_name_the_argument_and_its_replacement() {
        for (argument, instead) in [
            ("--experimental_allow_proto3_optional", "understands"),
            ("-I../proto", "includes"),
            ("--proto_path=../proto", "includes"),
            ("--descriptor_set_out=a", "file_descriptor_set_path"),
            ("-oa", "file_descriptor_set_path"),
            ("--plugin=x", "compile_fds"),
        ] {
            let warning = warning(argument);
            assert!(warning.contains(argument) && warning.contains(instead), "{warning}");
        }
    }
}
