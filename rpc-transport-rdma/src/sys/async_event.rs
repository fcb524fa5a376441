//! Asynchronous device events, with the type read as an integer.
//!
//! Here because `rdma-sys` types the event as a Rust enum, so that an event it does not know would
//! be undefined behaviour (S3). Not here: what an event means.

use std::ffi::c_void;
use std::io;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use rdma_sys::{ibv_context, ibv_event_type, ibv_qp};

/// `struct ibv_async_event` with an integer for its type.
#[repr(C)]
pub(super) struct AsyncEventRecord {
    pub(super) element: EventElement,
    pub(super) event_type: i32,
}

/// The union of `struct ibv_async_event`: a pointer to the object, or a port number.
#[repr(C)]
pub(super) union EventElement {
    pub(super) object: *mut c_void,
    pub(super) port: libc::c_int,
}

/// What an event is about.
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
    context: NonNull<ibv_context>,
) -> io::Result<Option<RawAsyncEvent>> {
    let mut record = MaybeUninit::<AsyncEventRecord>::zeroed();
    let event = record.as_mut_ptr().cast::<rdma_sys::ibv_async_event>();
    // SAFETY: the caller's promise for the context; the record has the layout that the call
    // fills (S1).
    if unsafe { rdma_sys::ibv_get_async_event(context.as_ptr(), event) } != 0 {
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
    unsafe { rdma_sys::ibv_ack_async_event(event) };
    Ok(Some(RawAsyncEvent { event_type, subject }))
}

/// # Safety
///
/// The record was filled by libibverbs and is not acknowledged yet, so its object is alive:
/// destroying an object waits until its events are acknowledged.
unsafe fn subject_of(record: &AsyncEventRecord) -> EventSubject {
    const QUEUE_PAIR_EVENTS: [ibv_event_type; 8] = [
        ibv_event_type::IBV_EVENT_QP_FATAL,
        ibv_event_type::IBV_EVENT_QP_REQ_ERR,
        ibv_event_type::IBV_EVENT_QP_ACCESS_ERR,
        ibv_event_type::IBV_EVENT_COMM_EST,
        ibv_event_type::IBV_EVENT_SQ_DRAINED,
        ibv_event_type::IBV_EVENT_PATH_MIG,
        ibv_event_type::IBV_EVENT_PATH_MIG_ERR,
        ibv_event_type::IBV_EVENT_QP_LAST_WQE_REACHED,
    ];
    const PORT_EVENTS: [ibv_event_type; 7] = [
        ibv_event_type::IBV_EVENT_PORT_ACTIVE,
        ibv_event_type::IBV_EVENT_PORT_ERR,
        ibv_event_type::IBV_EVENT_LID_CHANGE,
        ibv_event_type::IBV_EVENT_PKEY_CHANGE,
        ibv_event_type::IBV_EVENT_SM_CHANGE,
        ibv_event_type::IBV_EVENT_CLIENT_REREGISTER,
        ibv_event_type::IBV_EVENT_GID_CHANGE,
    ];
    let is_one_of =
        |known: &[ibv_event_type]| known.iter().any(|event| *event as i32 == record.event_type);
    if is_one_of(&PORT_EVENTS) {
        // SAFETY: for these events libibverbs fills the port number; any bits are an integer.
        return EventSubject::Port(unsafe { record.element.port });
    }
    if is_one_of(&QUEUE_PAIR_EVENTS) {
        // SAFETY: for these events the union holds the queue pair's pointer.
        let queue_pair = unsafe { record.element.object }.cast::<ibv_qp>();
        // SAFETY: the caller's promise: the object is alive.
        return EventSubject::QueuePair(unsafe { (*queue_pair).qp_num });
    }
    EventSubject::Other
}
