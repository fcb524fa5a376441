//! The check without prost-reflect: type names must be full, defined, and identifiers.
//!
//! protoc writes every type name with its package, so sets from protoc pass.

use std::collections::HashSet;

use prost_types::{DescriptorProto, EnumDescriptorProto, FileDescriptorProto, FileDescriptorSet};

use super::{invalid, is_full_name};
use crate::error::CodegenError;

/// Checks that the set has all files and types that it refers to, under names that prost accepts.
///
/// # Errors
///
/// Returns an error that names the missing or malformed part.
pub(super) fn check(fds: &FileDescriptorSet) -> Result<(), CodegenError> {
    let files: HashSet<&str> = fds.file.iter().map(FileDescriptorProto::name).collect();
    let mut names = Names::default();
    for file in &fds.file {
        if let Some(import) = file.dependency.iter().find(|name| !files.contains(name.as_str())) {
            let file = file.name();
            return Err(invalid(format!(
                "{file} imports {import:?}, which the set lacks (it must contain its imports)"
            )));
        }
        let scope = match file.package() {
            "" => String::new(),
            package => format!(".{}", names.check(package, file.name())?),
        };
        file.message_type.iter().try_for_each(|it| names.add_message(it, &scope))?;
        file.enum_type.iter().try_for_each(|it| names.add_enum(it, &scope))?;
        for service in &file.service {
            let owner = names.check(service.name(), file.name())?;
            for method in &service.method {
                names.check(method.name(), owner)?;
                for name in [method.input_type(), method.output_type()] {
                    names.used.push((name.to_owned(), owner.to_owned()));
                }
            }
        }
    }
    names.check_used()
}

/// The types that a set defines, and the type names that it uses.
#[derive(Debug, Default)]
struct Names {
    defined: HashSet<String>,
    /// Each name with the message or service that uses it.
    used: Vec<(String, String)>,
}

impl Names {
    fn check<'a>(&self, name: &'a str, owner: &str) -> Result<&'a str, CodegenError> {
        match is_full_name(name) {
            true => Ok(name),
            false => Err(invalid(format!("{name:?} in {owner} is not a protobuf identifier"))),
        }
    }

    fn add_message(&mut self, message: &DescriptorProto, scope: &str) -> Result<(), CodegenError> {
        let name = format!("{scope}.{}", self.check(message.name(), scope)?);
        for field in message.field.iter().chain(&message.extension) {
            self.check(field.name(), &name)?;
            if let Some(type_name) = &field.type_name {
                self.used.push((type_name.clone(), name.clone()));
            }
            let count = message.oneof_decl.len();
            let index = field.oneof_index.and_then(|it| usize::try_from(it).ok());
            if field.oneof_index.is_some() && index.is_none_or(|index| index >= count) {
                return Err(invalid(format!(
                    "a field of {name} names a oneof that does not exist"
                )));
            }
        }
        message.oneof_decl.iter().try_for_each(|it| self.check(it.name(), &name).map(drop))?;
        message.nested_type.iter().try_for_each(|it| self.add_message(it, &name))?;
        message.enum_type.iter().try_for_each(|it| self.add_enum(it, &name))?;
        self.defined.insert(name);
        Ok(())
    }

    fn add_enum(&mut self, values: &EnumDescriptorProto, scope: &str) -> Result<(), CodegenError> {
        let name = format!("{scope}.{}", self.check(values.name(), scope)?);
        values.value.iter().try_for_each(|it| self.check(it.name(), &name).map(drop))?;
        self.defined.insert(name);
        Ok(())
    }

    fn check_used(&self) -> Result<(), CodegenError> {
        match self.used.iter().find(|(name, _)| !self.defined.contains(name)) {
            None => Ok(()),
            Some((name, owner)) if !name.starts_with('.') => Err(invalid(format!(
                "{name:?} in {owner} does not begin with a dot: a relative name needs \
                 rpc-codegen's feature `protox`"
            ))),
            Some((name, owner)) => {
                Err(invalid(format!("{owner} refers to {name}, which is not defined")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use prost_types::{FieldDescriptorProto, MethodDescriptorProto, ServiceDescriptorProto};

    use super::*;

    fn set(type_name: &str) -> FileDescriptorSet {
        let field = FieldDescriptorProto {
            name: Some("next".to_owned()),
            type_name: Some(type_name.to_owned()),
            ..Default::default()
        };
        let message = DescriptorProto {
            name: Some("Item".to_owned()),
            field: vec![field],
            ..Default::default()
        };
        let file = FileDescriptorProto {
            name: Some("a.proto".to_owned()),
            package: Some("shop.v1".to_owned()),
            message_type: vec![message],
            ..Default::default()
        };
        FileDescriptorSet { file: vec![file] }
    }

    fn refusal(set: &FileDescriptorSet) -> String {
        check(set).unwrap_err().to_string()
    }

    #[test]
    fn defined_full_names_pass() {
        check(&set(".shop.v1.Item")).unwrap();
    }

    #[test]
    fn undefined_and_relative_names_are_refused() {
        let undefined = refusal(&set(".shop.v1.Cart"));
        assert!(undefined.contains("refers to .shop.v1.Cart"), "{undefined}");
        let relative = refusal(&set("Item"));
        assert!(relative.contains("feature `protox`"), "{relative}");
    }

    #[test]
    fn missing_imports_and_bad_names_are_refused() {
        let mut without_import = set(".shop.v1.Item");
        without_import.file[0].dependency.push("b.proto".to_owned());
        assert!(refusal(&without_import).contains("imports \"b.proto\""));
        let mut bad = set(".shop.v1.Item");
        bad.file[0].message_type[0].name = Some("2".to_owned());
        assert!(refusal(&bad).contains("not a protobuf identifier"));
    }

    #[test]
    fn services_with_holes_are_refused() {
        let method = MethodDescriptorProto { name: Some("Do".to_owned()), ..Default::default() };
        for service in [
            ServiceDescriptorProto::default(),
            ServiceDescriptorProto {
                name: Some("Half".to_owned()),
                method: vec![method],
                options: None,
            },
        ] {
            let mut set = set(".shop.v1.Item");
            set.file[0].service.push(service);
            assert!(matches!(check(&set), Err(CodegenError::DescriptorSet { .. })));
        }
    }
}
