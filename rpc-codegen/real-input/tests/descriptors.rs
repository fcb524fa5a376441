//! The generated descriptors of services whose definitions are published elsewhere.

use std::collections::HashSet;

use rpc_codegen_real_input::{etcd, health, interop, odd_names, otlp, plain, reflection};
use rpc_core::codegen::{CallKind, Idempotency, ServiceDescriptor};

/// Returns the methods as `name: kind`, after checking that their paths begin with the service.
fn methods(service: &'static ServiceDescriptor) -> Vec<(&'static str, CallKind)> {
    let method_of = |path: &'static str| {
        let path = path.strip_prefix('/').and_then(|path| path.strip_prefix(service.name));
        path.and_then(|path| path.strip_prefix('/')).expect("the path names its service")
    };
    service.methods.iter().map(|method| (method_of(method.path), method.kind)).collect()
}

#[test]
fn etcds_key_value_store_has_its_methods() {
    let service = &etcd::etcdserverpb::kv_rpc::SERVICE;
    assert_eq!(service.name, "etcdserverpb.KV");
    assert_eq!(service.methods[0].path, "/etcdserverpb.KV/Range");
    let methods = methods(service);
    for name in ["Range", "Put", "DeleteRange", "Txn", "Compact"] {
        assert!(methods.contains(&(name, CallKind::Unary)), "{methods:?}");
    }
}

#[test]
fn etcds_streams_are_streams() {
    use CallKind::{ServerStreaming, Streaming};
    let watch = methods(&etcd::etcdserverpb::watch_rpc::SERVICE);
    assert_eq!(watch, [("Watch", Streaming)]);
    let lease = methods(&etcd::etcdserverpb::lease_rpc::SERVICE);
    assert!(lease.contains(&("LeaseKeepAlive", Streaming)), "{lease:?}");
    let election = methods(&etcd::v3electionpb::election_rpc::SERVICE);
    assert!(election.contains(&("Observe", ServerStreaming)), "{election:?}");
    assert_eq!(etcd::v3lockpb::lock_rpc::SERVICE.methods[0].path, "/v3lockpb.Lock/Lock");
}

#[test]
fn otlps_collectors_export() {
    use otlp::opentelemetry::proto::collector as c;
    let services = [
        (&c::trace::v1::trace_service_rpc::SERVICE, "trace.v1.TraceService"),
        (&c::metrics::v1::metrics_service_rpc::SERVICE, "metrics.v1.MetricsService"),
        (&c::logs::v1::logs_service_rpc::SERVICE, "logs.v1.LogsService"),
        (
            &c::profiles::v1development::profiles_service_rpc::SERVICE,
            "profiles.v1development.ProfilesService",
        ),
    ];
    for (service, name) in services {
        assert_eq!(service.name, format!("opentelemetry.proto.collector.{name}"));
        assert_eq!(methods(service), [("Export", CallKind::Unary)]);
    }
}

#[test]
fn grpcs_own_services_are_there() {
    use CallKind::{ServerStreaming, Streaming, Unary};
    let health = methods(&health::grpc::health::v1::health_rpc::SERVICE);
    assert!(health.contains(&("Check", Unary)) && health.contains(&("Watch", ServerStreaming)));
    let v1 = &reflection::grpc::reflection::v1::server_reflection_rpc::SERVICE;
    let v1alpha = &reflection::grpc::reflection::v1alpha::server_reflection_rpc::SERVICE;
    for service in [v1, v1alpha] {
        assert_eq!(methods(service), [("ServerReflectionInfo", Streaming)]);
    }
}

#[test]
fn the_interoperability_service_has_every_kind_of_call() {
    use CallKind::{ClientStreaming, ServerStreaming, Streaming, Unary};
    let service = methods(&interop::grpc::testing::test_service_rpc::SERVICE);
    for expected in [
        ("EmptyCall", Unary),
        ("StreamingOutputCall", ServerStreaming),
        ("StreamingInputCall", ClientStreaming),
        ("FullDuplexCall", Streaming),
    ] {
        assert!(service.contains(&expected), "{service:?}");
    }
}

#[test]
fn idempotency_comes_from_the_proto() {
    let methods = plain::sample::v1::greeter_rpc::SERVICE.methods;
    assert_eq!(methods[0].idempotency, Idempotency::Unknown);
    assert_eq!(methods[1].idempotency, Idempotency::NoSideEffects);
    assert_eq!(methods[2].idempotency, Idempotency::Idempotent);
}

#[test]
fn renamed_methods_are_unchanged_on_the_wire() {
    let option = &odd_names::odd::r#type::option_rpc::SERVICE;
    assert_eq!(option.methods[0].path, "/odd.type.Option/Do");
    let paths = odd_names::odd::r#type::methods_rpc::SERVICE.methods.iter().map(|m| m.path);
    let distinct: HashSet<_> = paths.clone().collect();
    assert_eq!(distinct.len(), paths.len());
    assert!(
        distinct.contains("/odd.type.Methods/New") && distinct.contains("/odd.type.Methods/Type")
    );
    assert_eq!(plain::pinger_rpc::SERVICE.methods[0].path, "/Pinger/Ping");
}
