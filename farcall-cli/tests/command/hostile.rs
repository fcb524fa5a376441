//! Servers that mean harm: they cost one run of the command, with a bounded text and bounded
//! memory.

use farcall::prost::Message as _;
use farcall::{Request, Response, Server, Status, Streaming, async_trait};
use futures::StreamExt as _;
use prost_reflect::prost_types::{
    DescriptorProto, FieldDescriptorProto, FileDescriptorProto, MethodDescriptorProto,
    ServiceDescriptorProto, field_descriptor_proto,
};
use tonic::codegen::BoxStream;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest as Question;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse as Answer;
use tonic_reflection::pb::v1::server_reflection_server::{
    ServerReflection, ServerReflectionServer,
};
use tonic_reflection::pb::v1::{
    ErrorResponse, FILE_DESCRIPTOR_SET, FileDescriptorResponse, ListServiceResponse,
    ServerReflectionRequest, ServerReflectionResponse, ServiceResponse,
};

use crate::program::{Ran, farcall};
use crate::servers::{Running, serve};

type Script = fn(Question) -> Answer;

/// A reflection service that answers by a function.
struct Scripted(Script);

#[async_trait]
impl ServerReflection for Scripted {
    type ServerReflectionInfoStream = BoxStream<ServerReflectionResponse>;

    async fn server_reflection_info(
        &self,
        request: Request<Streaming<ServerReflectionRequest>>,
    ) -> Result<Response<Self::ServerReflectionInfoStream>, Status> {
        let script = self.0;
        let answers = request.into_inner().map(move |question| {
            let question = question?.message_request.ok_or_else(|| Status::internal("none"))?;
            let message_response = Some(script(question));
            Ok(ServerReflectionResponse { message_response, ..Default::default() })
        });
        Ok(Response::new(Box::pin(answers)))
    }
}

async fn scripted(script: Script) -> Running {
    let service = ServerReflectionServer::new(Scripted(script));
    let builder = Server::builder().add_grpc_service(service, FILE_DESCRIPTOR_SET);
    serve(builder, "tcp://127.0.0.1:0").await
}

/// Runs `line` against a server with that reflection. Nothing that it prints moves a cursor.
async fn run(script: Script, line: &str) -> Ran {
    let server = scripted(script).await;
    let (command, rest) = line.split_once(' ').unwrap_or((line, ""));
    let ran = farcall(&format!("{command} {} {rest}", server.address)).await;
    let text = format!("{}{}", ran.stdout, ran.stderr);
    assert!(text.chars().all(|it| it == '\n' || !it.is_control()), "{text:?}");
    assert!(text.len() < 4096, "{} bytes", text.len());
    assert!(!text.contains("panicked"), "{text}");
    ran
}

fn listed(names: impl IntoIterator<Item = String>) -> Answer {
    let service = names.into_iter().map(|name| ServiceResponse { name }).collect();
    Answer::ListServicesResponse(ListServiceResponse { service })
}

fn files(files: &[FileDescriptorProto]) -> Answer {
    let file_descriptor_proto = files.iter().map(FileDescriptorProto::encode_to_vec).collect();
    Answer::FileDescriptorResponse(FileDescriptorResponse { file_descriptor_proto })
}

fn file(name: &str) -> FileDescriptorProto {
    FileDescriptorProto { name: Some(name.into()), ..Default::default() }
}

fn message(name: &str) -> DescriptorProto {
    DescriptorProto { name: Some(name.into()), ..Default::default() }
}

/// A field of the message type `kind`.
fn field(name: &str, kind: &str) -> FieldDescriptorProto {
    FieldDescriptorProto {
        name: Some(name.into()),
        number: Some(1),
        r#type: Some(field_descriptor_proto::Type::Message.into()),
        type_name: Some(kind.into()),
        label: Some(field_descriptor_proto::Label::Optional.into()),
        ..Default::default()
    }
}

fn service(name: &str, method: &str, kind: &str) -> ServiceDescriptorProto {
    let method = MethodDescriptorProto {
        name: Some(method.into()),
        input_type: Some(kind.into()),
        output_type: Some(kind.into()),
        ..Default::default()
    };
    ServiceDescriptorProto { name: Some(name.into()), method: vec![method], ..Default::default() }
}

#[tokio::test]
async fn names_that_are_no_identifiers_are_refused() {
    let ran = run(|_| listed(["a\x1b[2J\nroot# ".into()]), "list").await;
    ran.failed(77, "`a\\u{1b}[2J\\nroot# `, which is not a service name");
    let script = |_| {
        let mut file = file("a.proto");
        file.message_type = vec![message("M")];
        file.service = vec![service("S", "do\u{9b}2J", ".M")];
        files(&[file])
    };
    run(script, "describe S").await.failed(77, "do\\u{9b}2J");
    run(script, "call S/x").await.failed(77, "do\\u{9b}2J");
    let script = |_| {
        let mut file = file("a.proto");
        let mut inner = message("M");
        inner.field = vec![field("\u{202e}f", ".M")];
        file.message_type = vec![inner];
        files(&[file])
    };
    run(script, "describe M").await.failed(77, "");
}

#[tokio::test]
async fn method_is_found_by_its_service_alone() {
    let script = |question| match question {
        Question::FileContainingSymbol(name) if name == "S" => {
            let mut file = file("a.proto");
            file.message_type = vec![message("M")];
            file.service = vec![service("S", "x", ".M")];
            files(&[file])
        }
        _ => Answer::ErrorResponse(ErrorResponse {
            error_code: 5,
            error_message: "not found".into(),
        }),
    };
    let described = run(script, "describe S.x").await.succeeded();
    assert_eq!(described, "S.x is a method:\nrpc x(.M) returns (.M);\n");
    run(script, "describe S.y").await.failed(1, "no service, method, message or enum S.y");
    run(script, "describe T.x").await.failed(69, "NOT_FOUND: not found");
    run(script, "describe T").await.failed(69, "NOT_FOUND: not found");
}

#[tokio::test]
async fn error_of_reflection_is_escaped() {
    let script = |_| {
        let error_message = "gone\x1b]0;title\x07\nroot# ".repeat(10);
        Answer::ErrorResponse(ErrorResponse { error_code: 5, error_message })
    };
    run(script, "list").await.failed(69, "gone\\u{1b}]0;title\\u{7}\n  root# ");
}

#[tokio::test]
async fn endless_imports_end() {
    let script = |question| {
        let name = match question {
            Question::FileByFilename(name) => name,
            _ => "f0.proto".into(),
        };
        let number: u32 = name[1..name.len() - 6].parse().unwrap_or_default();
        let mut file = file(&name);
        file.dependency = vec![format!("f{}.proto", number + 1)];
        files(&[file])
    };
    run(script, "describe S").await.failed(77, "over 2000 files");
}

#[tokio::test]
async fn file_that_never_comes_ends_the_session() {
    let script = |_| {
        let mut file = file("a.proto");
        file.dependency = vec!["b\x1b.proto".into()];
        files(&[file])
    };
    run(script, "describe S").await.failed(77, "lacks the file b\\u{1b}.proto");
}

#[tokio::test]
async fn imports_and_types_in_a_circle_end() {
    let script = |_| {
        let mut files_in_circle = [file("a.proto"), file("b.proto")];
        files_in_circle[0].dependency = vec!["b.proto".into()];
        files_in_circle[1].dependency = vec!["a.proto".into()];
        files(&files_in_circle)
    };
    let ran = run(script, "describe S").await;
    assert_ne!(ran.code, 0, "{ran:?}");
    let script = |_| {
        let mut file = file("a.proto");
        let mut inner = message("M");
        inner.field = vec![field("m", ".M")];
        file.message_type = vec![inner];
        files(&[file])
    };
    let shown = run(script, "describe M --msg-template").await.succeeded();
    assert!(shown.contains("  .M m = 1;\n"), "{shown}");
}

#[tokio::test]
async fn large_schema_and_long_list_are_refused() {
    let script = |question| {
        let mut named = file(match &question {
            Question::FileByFilename(name) => name,
            _ => "f0.proto",
        });
        let number = named.name().len();
        named.dependency = vec![format!("f{}.proto", "0".repeat(number))];
        named.message_type = vec![message(&"m".repeat(3 << 20))];
        files(&[named])
    };
    run(script, "describe S").await.failed(77, "over 8388608 bytes");
    let script = |_| listed((0..10_001).map(|it| format!("s{it}")));
    run(script, "list").await.failed(77, "more than 10000 services");
    let script = |_| listed((0..600_000).map(|it| format!("service{it}")));
    run(script, "list").await.failed(72, "RESOURCE_EXHAUSTED");
}

#[tokio::test]
async fn malformed_descriptors_are_a_failure() {
    let script = |_| {
        let file_descriptor_proto = vec![vec![0xff, 0xff, 1, 2]];
        Answer::FileDescriptorResponse(FileDescriptorResponse { file_descriptor_proto })
    };
    run(script, "describe S").await.failed(77, "the server's schema");
    let script = |_| {
        let mut file = file("a.proto");
        file.service = vec![service("S", "Do", ".no.Such")];
        files(&[file])
    };
    run(script, "describe S").await.failed(77, "no.Such");
    let script = |_| {
        let mut file = file("a.proto");
        file.message_type = vec![message("M"), message("M")];
        files(&[file])
    };
    run(script, "describe M").await.failed(77, "the schema is invalid");
    run(|_| listed([]), "describe S").await.failed(77, "an unexpected response");
}
