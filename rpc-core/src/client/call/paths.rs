//! Descriptors of methods that are called by their paths alone.
//!
//! A descriptor is `'static`, as generated code has it. One that is made here is kept for as long
//! as the process runs, so that there is a bound on how many are made: a program calls the methods
//! that its clients were generated for, and a proxy those of the servers behind it.

use std::collections::HashMap;
use std::sync::{OnceLock, PoisonError, RwLock};

use tonic::Status;

use crate::call::refusal;
use crate::{CallKind, Detach, Idempotency, MethodDescriptor};

/// The most paths. With the longest that there may be, all of them take 4 MiB.
const PATHS_MAX: usize = 4096;

/// The longest path in bytes. The names of gRPC's own services have less than 100.
const PATH_LEN_MAX: usize = 1024;

/// The kinds times the levels of idempotency.
const VARIANTS: usize = 4 * 3;

/// The descriptors of one path: servers may describe it differently.
type Variants = [Option<&'static MethodDescriptor>; VARIANTS];

#[derive(Default)]
struct Paths(HashMap<&'static str, Variants>);

fn variant(kind: CallKind, idempotency: Idempotency) -> usize {
    let level = match idempotency {
        Idempotency::Unknown => 0,
        Idempotency::NoSideEffects => 1,
        Idempotency::Idempotent => 2,
    };
    let kind = usize::from(kind.has_request_stream()) + 2 * usize::from(kind.has_response_stream());
    3 * kind + level
}

impl Paths {
    fn find(
        &self,
        path: &str,
        kind: CallKind,
        idempotency: Idempotency,
    ) -> Option<&'static MethodDescriptor> {
        self.0.get(path)?[variant(kind, idempotency)]
    }

    fn add(
        &mut self,
        path: &str,
        kind: CallKind,
        idempotency: Idempotency,
    ) -> Result<&'static MethodDescriptor, Status> {
        if let Some(known) = self.find(path, kind, idempotency) {
            return Ok(known);
        }
        let kept = match self.0.get_key_value(path) {
            Some((kept, _)) => *kept,
            None if self.0.len() < PATHS_MAX => &*Box::leak(Box::<str>::from(path)),
            None => return Err(refusal::too_many_paths(path, PATHS_MAX)),
        };
        let detach = Detach::NONE;
        let made: &_ =
            Box::leak(Box::new(MethodDescriptor { path: kept, kind, idempotency, detach }));
        self.0.entry(kept).or_default()[variant(kind, idempotency)] = Some(made);
        Ok(made)
    }
}

/// The descriptor of the method at `path`.
///
/// # Errors
///
/// When the path is too long, or there are too many already.
pub(super) fn descriptor(
    path: &str,
    kind: CallKind,
    idempotency: Idempotency,
) -> Result<&'static MethodDescriptor, Status> {
    static PATHS: OnceLock<RwLock<Paths>> = OnceLock::new();
    if path.len() > PATH_LEN_MAX {
        let len = path.len();
        let words = format!("the method's path of {len} bytes is over the limit of {PATH_LEN_MAX}");
        return Err(Status::unimplemented(words));
    }
    let paths = PATHS.get_or_init(RwLock::default);
    // A map is consistent between any two statements.
    let known = paths.read().unwrap_or_else(PoisonError::into_inner).find(path, kind, idempotency);
    if let Some(known) = known {
        return Ok(known);
    }
    paths.write().unwrap_or_else(PoisonError::into_inner).add(path, kind, idempotency)
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    #[test]
    fn a_path_has_one_descriptor_of_each_kind() {
        let make = |kind| descriptor("/paths.A/B", kind, Idempotency::Idempotent).unwrap();
        let (unary, again) = (make(CallKind::Unary), make(CallKind::Unary));
        assert!(std::ptr::eq(unary, again));
        assert_eq!((unary.path, unary.kind), ("/paths.A/B", CallKind::Unary));
        let other = make(CallKind::Streaming);
        assert!(std::ptr::eq(unary.path, other.path), "the text is kept once");
        assert_eq!((other.kind, other.idempotency), (CallKind::Streaming, Idempotency::Idempotent));
    }

    #[test]
    fn what_is_kept_has_a_bound() {
        let mut paths = Paths::default();
        let mut add = |number: usize| {
            paths.add(&format!("/paths.A/M{number}"), CallKind::Unary, Idempotency::Unknown)
        };
        for number in 0..PATHS_MAX {
            add(number).unwrap();
        }
        assert_eq!(add(PATHS_MAX).unwrap_err().code(), Code::ResourceExhausted);
        assert!(add(0).is_ok(), "those that are known stay");
        let long = "m".repeat(PATH_LEN_MAX + 1);
        let refused = descriptor(&long, CallKind::Unary, Idempotency::Unknown).unwrap_err();
        assert_eq!(refused.code(), Code::Unimplemented);
    }
}
