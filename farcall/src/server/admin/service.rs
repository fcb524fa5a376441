//! The service `farcall.admin.v1.Admin`.

use std::sync::Arc;

use rpc_core::server::{HandlerFuture, ServerCall};
use rpc_core::{Service, ServiceDescriptor};
use tonic::{Request, Response};

use super::AdminState;
use super::api::{SERVICE, SnapshotRequest};

/// Answers with snapshots of the server.
pub(crate) struct AdminService(pub(crate) Arc<AdminState>);

impl Service for AdminService {
    fn descriptor(&self) -> &'static ServiceDescriptor {
        &SERVICE
    }

    fn call(&self, _: usize, call: ServerCall) -> HandlerFuture {
        let state = Arc::clone(&self.0);
        call.unary(|request: Request<SnapshotRequest>| async move {
            Ok(Response::new(state.snapshot(request.get_ref().max_connections)))
        })
    }
}
