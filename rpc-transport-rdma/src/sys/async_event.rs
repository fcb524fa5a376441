//! Asynchronous device events, with the type read as an integer.
//!
//! Here because an event that a Rust enum does not know would be undefined behaviour (S3). Not
//! here: what an event means.

use std::ffi::c_void;
use std::io;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use super::abi::{self, Verbs, ibv_context, ibv_qp};

/// `struct ibv_async_event` with an integer for its type.
#[repr(C)]
pub(crate) struct AsyncEventRecord {
    pub(super) element: EventElement,
    pub(super) event_type: i32,
}

/// The union of `struct ibv_async_event`: a pointer to the object, or a port number.
#[repr(C)]
pub(crate) union EventElement {
    pub(super) object: *mut c_void,
    pub(super) port: libc::c_int,
}

/// The subject of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventSubject {
    /// A port, by number.
    Port(i32),
    /// A queue pair, by number.
    QueuePair(u32),
    /// Something else, or the device as a whole.
    Other,
}

/// An event as it was read: the number of its type and its subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RawAsyncEvent {
    pub(crate) event_type: i32,
    pub(crate) subject: EventSubject,
}

/// Takes the next event, or `None` when there is none. Acknowledges it at once, because destroying
/// the object it names waits for that.
///
/// # Safety
///
/// `context` is an open device context whose async descriptor is non-blocking.
pub(crate) unsafe fn next_async_event(
    verbs: Verbs,
    context: NonNull<ibv_context>,
) -> io::Result<Option<RawAsyncEvent>> {
    let mut record = MaybeUninit::<AsyncEventRecord>::zeroed();
    let event = record.as_mut_ptr();
    // SAFETY: the caller's promise for the context; the record has the layout that the call
    // fills (S1).
    if unsafe { verbs.ibv_get_async_event(context.as_ptr(), event) } != 0 {
        let error = io::Error::last_os_error();
        return match error.kind() {
            io::ErrorKind::WouldBlock => Ok(None),
            _ => Err(error),
        };
    }
    // SAFETY: zeroed bytes are a valid value of the record (S2), and the call filled it.
    let record = unsafe { record.assume_init_ref() };
    // SAFETY: libibverbs filled the record, and it is acknowledged only below.
    let subject = unsafe { subject_of(record) };
    let event_type = record.event_type;
    // SAFETY: the pointer is to an event that was taken and not acknowledged yet.
    unsafe { verbs.ibv_ack_async_event(event) };
    Ok(Some(RawAsyncEvent { event_type, subject }))
}

/// # Safety
///
/// The record was filled by libibverbs and is not acknowledged yet, so its object is alive:
/// destroying an object waits until its events are acknowledged.
unsafe fn subject_of(record: &AsyncEventRecord) -> EventSubject {
    const QUEUE_PAIR_EVENTS: [i32; 8] = [
        abi::IBV_EVENT_QP_FATAL,
        abi::IBV_EVENT_QP_REQ_ERR,
        abi::IBV_EVENT_QP_ACCESS_ERR,
        abi::IBV_EVENT_COMM_EST,
        abi::IBV_EVENT_SQ_DRAINED,
        abi::IBV_EVENT_PATH_MIG,
        abi::IBV_EVENT_PATH_MIG_ERR,
        abi::IBV_EVENT_QP_LAST_WQE_REACHED,
    ];
    const PORT_EVENTS: [i32; 7] = [
        abi::IBV_EVENT_PORT_ACTIVE,
        abi::IBV_EVENT_PORT_ERR,
        abi::IBV_EVENT_LID_CHANGE,
        abi::IBV_EVENT_PKEY_CHANGE,
        abi::IBV_EVENT_SM_CHANGE,
        abi::IBV_EVENT_CLIENT_REREGISTER,
        abi::IBV_EVENT_GID_CHANGE,
    ];
    if PORT_EVENTS.contains(&record.event_type) {
        // SAFETY: for these events libibverbs fills the port number; any bits are an integer.
        return EventSubject::Port(unsafe { record.element.port });
    }
    if QUEUE_PAIR_EVENTS.contains(&record.event_type) {
        // SAFETY: for these events the union holds the queue pair's pointer.
        let queue_pair = unsafe { record.element.object }.cast::<ibv_qp>();
        // SAFETY: the caller's promise: the object is alive.
        return EventSubject::QueuePair(unsafe { (*queue_pair).qp_num });
    }
    EventSubject::Other
}
