//! Descriptors of methods that are called by their paths alone.
//!
//! A descriptor is `'static`, as generated code has it. One that is made here is kept for as long
//! as the process runs, so that there is a bound on how many are made: a program calls the methods
//! that its clients were generated for, and a proxy those of the servers behind it.
//!
//! Layers see the descriptor of a call before there is a connection, so that a path has to be kept
//! before a server says whether it has the method. A proxy's clients can call any path. So the
//! paths that no server has named count against the maker of their calls, too, and one maker whose
//! clients are hostile takes no more than its part of the process's paths.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

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
struct Paths(HashMap<&'static str, Entry>);

/// What is kept of a path.
#[derive(Default)]
struct Entry {
    variants: Variants,
    /// Whether a server has said that it has the method.
    is_named: bool,
}

/// The most paths that no server has named, of one maker of calls. A program that starts may call
/// as many methods before its first connection is there.
const UNNAMED_MAX: usize = 256;

/// The paths that one maker of calls has added, and that no server has named. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct UnnamedPaths(Arc<Mutex<Vec<&'static str>>>);

impl UnnamedPaths {
    /// Locked behind the process's paths, where both are.
    fn list(&self) -> MutexGuard<'_, Vec<&'static str>> {
        // A push and a retain leave it whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

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
        self.0.get(path)?.variants[variant(kind, idempotency)]
    }

    fn name(&mut self, path: &str) {
        if let Some(entry) = self.0.get_mut(path) {
            entry.is_named = true;
        }
    }

    fn is_named(&self, path: &str) -> bool {
        self.0.get(path).is_some_and(|entry| entry.is_named)
    }

    /// Refuses a new path of a maker of calls that has added too many.
    fn check(&self, path: &str, unnamed: &mut Vec<&'static str>) -> Result<(), Status> {
        if unnamed.len() >= UNNAMED_MAX {
            unnamed.retain(|path| !self.is_named(path));
        }
        match unnamed.len() < UNNAMED_MAX {
            true => Ok(()),
            false => Err(refusal::too_many_unnamed_paths(path, UNNAMED_MAX)),
        }
    }

    /// Adds a path for a maker of calls, unless it is there.
    fn add_unnamed(
        &mut self,
        path: &str,
        unnamed: &UnnamedPaths,
    ) -> Result<&'static MethodDescriptor, Status> {
        let mut unnamed = unnamed.list();
        let is_new = !self.0.contains_key(path);
        if is_new {
            self.check(path, &mut unnamed)?;
        }
        let made = self.add(path, UNDESCRIBED.0, UNDESCRIBED.1)?;
        if is_new {
            unnamed.push(made.path);
        }
        Ok(made)
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
        self.0.entry(kept).or_default().variants[variant(kind, idempotency)] = Some(made);
        Ok(made)
    }
}

/// What a method is taken for before a server has described it.
const UNDESCRIBED: (CallKind, Idempotency) = (CallKind::Streaming, Idempotency::Unknown);

fn paths() -> &'static RwLock<Paths> {
    static PATHS: OnceLock<RwLock<Paths>> = OnceLock::new();
    PATHS.get_or_init(RwLock::default)
}

/// The descriptor of the method at `path`, which no server has described yet, and whether one has
/// named it.
///
/// # Errors
///
/// When the path is too long, or there are too many already.
pub(super) fn undescribed(
    path: &str,
    unnamed: &UnnamedPaths,
) -> Result<(&'static MethodDescriptor, bool), Status> {
    if path.len() > PATH_LEN_MAX {
        let len = path.len();
        let words = format!("the method's path of {len} bytes is over the limit of {PATH_LEN_MAX}");
        return Err(Status::unimplemented(words));
    }
    {
        // A map is consistent between any two statements.
        let paths = paths().read().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = paths.find(path, UNDESCRIBED.0, UNDESCRIBED.1) {
            return Ok((known, paths.is_named(path)));
        }
        // Here already, so that a flood of such paths does not keep other calls from the lock.
        if !paths.0.contains_key(path) {
            paths.check(path, &mut unnamed.list())?;
        }
    }
    let mut paths = paths().write().unwrap_or_else(PoisonError::into_inner);
    Ok((paths.add_unnamed(path, unnamed)?, paths.is_named(path)))
}

/// The descriptor of a method as a server has described it.
///
/// # Errors
///
/// When there are too many paths already.
pub(in crate::client) fn described(
    path: &str,
    kind: CallKind,
    idempotency: Idempotency,
) -> Result<&'static MethodDescriptor, Status> {
    {
        let paths = paths().read().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = paths.find(path, kind, idempotency).filter(|_| paths.is_named(path)) {
            return Ok(known);
        }
    }
    let mut paths = paths().write().unwrap_or_else(PoisonError::into_inner);
    let made = paths.add(path, kind, idempotency)?;
    paths.name(path);
    Ok(made)
}

/// Records that a server has the method at `path`.
pub(super) fn set_named(path: &str) {
    paths().write().unwrap_or_else(PoisonError::into_inner).name(path);
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    #[test]
    fn a_path_has_one_descriptor_of_each_kind() {
        let make = |kind| described("/paths.A/B", kind, Idempotency::Idempotent).unwrap();
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
        let refused = undescribed(&long, &UnnamedPaths::default()).unwrap_err();
        assert_eq!(refused.code(), Code::Unimplemented);
    }

    #[test]
    fn a_maker_of_calls_adds_so_many_paths_that_no_server_names() {
        let (mut paths, unnamed) = (Paths::default(), UnnamedPaths::default());
        let add = |paths: &mut Paths, number: usize, unnamed: &UnnamedPaths| {
            paths.add_unnamed(&format!("/paths.A/N{number}"), unnamed).map(|made| made.path)
        };
        for number in 0..UNNAMED_MAX {
            add(&mut paths, number, &unnamed).unwrap();
        }
        let refused = add(&mut paths, UNNAMED_MAX, &unnamed.clone()).unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted);
        assert_eq!(paths.0.len(), UNNAMED_MAX, "nothing is kept of it");
        assert!(add(&mut paths, 0, &unnamed).is_ok(), "those that are known stay");
        // Another one has a part of its own, and adds to none for what is known.
        let other = UnnamedPaths::default();
        assert!(add(&mut paths, 0, &other).is_ok());
        assert!(add(&mut paths, UNNAMED_MAX, &other).is_ok());
        assert_eq!(other.list().len(), 1);
        // What a server names counts no more.
        paths.name("/paths.A/N7");
        assert!(add(&mut paths, UNNAMED_MAX + 1, &unnamed).is_ok());
        assert!(add(&mut paths, UNNAMED_MAX + 2, &unnamed).is_err());
    }
}
