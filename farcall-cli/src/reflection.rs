//! The schema of a server, by gRPC's reflection: v1, and v1alpha where that is all there is.

use std::collections::{BTreeMap, BTreeSet};

use farcall::prost::Message as _;
use farcall::{CallKind, Channel, Code, Idempotency, MethodDescriptor, Streaming};
use prost_reflect::DescriptorPool;
use prost_reflect::prost_types::FileDescriptorProto;
use tokio::sync::mpsc;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest as Question;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse as Answer;
use tonic_reflection::pb::v1::{ServerReflectionRequest, ServerReflectionResponse};

use crate::args::Global;
use crate::failure::Failure;
use crate::guard::{self, is_full_name};
use crate::output::escape;

/// Maximum length of a server's descriptors, in bytes.
const SCHEMA_LEN_MAX: usize = 8 << 20;
/// Maximum number of a server's files.
const FILES_MAX: usize = 2_000;
/// Maximum number of a server's services.
const SERVICES_MAX: usize = 10_000;

const fn reflection(path: &'static str) -> MethodDescriptor {
    let kind = CallKind::Streaming;
    MethodDescriptor::new(path, kind, Idempotency::NoSideEffects)
}

/// The versions, newest first. Their messages have the same encoding.
static VERSIONS: [MethodDescriptor; 2] = [
    reflection("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"),
    reflection("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"),
];

/// A stream of questions and answers.
struct Session {
    questions: mpsc::Sender<ServerReflectionRequest>,
    answers: Streaming<ServerReflectionResponse>,
}

/// Returns the names of the server's services, sorted.
pub(crate) async fn services(global: &Global, channel: &Channel) -> Result<Vec<String>, Failure> {
    let question = Question::ListServices(String::new());
    let (_session, answer) = Session::start(global, channel, question).await?;
    let Answer::ListServicesResponse(list) = answer else { return Err(unexpected()) };
    if list.service.len() > SERVICES_MAX {
        let message = format!("the server lists more than {SERVICES_MAX} services");
        return Err(Failure::peer(message));
    }
    let mut names: Vec<_> = list.service.into_iter().map(|service| service.name).collect();
    if let Some(name) = names.iter().find(|name| !is_full_name(name)) {
        let message = format!("the server lists `{}`, which is not a service name", escape(name));
        return Err(Failure::peer(message));
    }
    names.sort_unstable();
    names.dedup();
    Ok(names)
}

/// Returns the files that define `symbol`, with all that they import.
pub(crate) async fn schema_of(
    global: &Global,
    channel: &Channel,
    symbol: &str,
) -> Result<DescriptorPool, Failure> {
    let question = Question::FileContainingSymbol(symbol.to_owned());
    let (mut session, answer) = Session::start(global, channel, question).await?;
    let mut files = Files::default();
    files.add(answer)?;
    while let Some(name) = files.next_missing() {
        let answer = session.ask(Question::FileByFilename(name.clone())).await;
        let answer = answer.map_err(|failure| failure.context(&format!("file {name}")))?;
        files.add(answer)?;
        files.require(&name)?;
    }
    files.into_pool()
}

impl Session {
    /// Begins a session by its first question.
    async fn start(
        global: &Global,
        channel: &Channel,
        question: Question,
    ) -> Result<(Self, Answer), Failure> {
        let mut last = None;
        for version in &VERSIONS {
            match Self::start_version(global, channel, version, question.clone()).await {
                Err(failure) if failure.code() == Some(Code::Unimplemented) => last = Some(failure),
                result => return result,
            }
        }
        let hint = "the server has no reflection service; give the schema with --proto or \
                    --protoset";
        Err(last.map_or_else(unexpected, |failure| failure.context(hint)))
    }

    async fn start_version(
        global: &Global,
        channel: &Channel,
        version: &'static MethodDescriptor,
        question: Question,
    ) -> Result<(Self, Answer), Failure> {
        let (questions, mut receiver) = mpsc::channel(1);
        let stream = futures::stream::poll_fn(move |context| receiver.poll_recv(context));
        // Some servers send headers with their first answer alone: the question goes first.
        send(&questions, question).await?;
        let response = farcall::client::streaming(channel, version, global.request(stream)).await;
        let answers = response.map_err(|status| Failure::call(&status))?.into_inner();
        let mut session = Self { questions, answers };
        let answer = session.answer().await?;
        Ok((session, answer))
    }

    async fn ask(&mut self, question: Question) -> Result<Answer, Failure> {
        send(&self.questions, question).await?;
        self.answer().await
    }

    async fn answer(&mut self) -> Result<Answer, Failure> {
        let message = self.answers.message().await.map_err(|status| Failure::call(&status))?;
        match message.and_then(|message| message.message_response) {
            Some(Answer::ErrorResponse(error)) => {
                let code = Code::from(error.error_code);
                Err(Failure::call(&farcall::Status::new(code, error.error_message)))
            }
            Some(answer) => Ok(answer),
            None => Err(unexpected()),
        }
    }
}

async fn send(
    questions: &mpsc::Sender<ServerReflectionRequest>,
    question: Question,
) -> Result<(), Failure> {
    let request = ServerReflectionRequest { host: String::new(), message_request: Some(question) };
    questions.send(request).await.map_err(|_| unexpected())
}

fn unexpected() -> Failure {
    Failure::peer(
        "the server's reflection service ended its stream early, or sent an unexpected \
                   response",
    )
}

/// Files of a server, complete once nothing that they import is missing.
#[derive(Debug, Default)]
struct Files {
    files: BTreeMap<String, FileDescriptorProto>,
    missing: BTreeSet<String>,
    len: usize,
}

impl Files {
    fn add(&mut self, answer: Answer) -> Result<(), Failure> {
        let Answer::FileDescriptorResponse(answer) = answer else { return Err(unexpected()) };
        for bytes in answer.file_descriptor_proto {
            self.len += bytes.len();
            if self.len > SCHEMA_LEN_MAX {
                let message = format!("the server's schema is over {SCHEMA_LEN_MAX} bytes");
                return Err(Failure::peer(message));
            }
            let file = FileDescriptorProto::decode(bytes.as_slice())
                .map_err(|error| Failure::peer(format!("the server's schema: {error}")))?;
            self.insert(file)?;
        }
        Ok(())
    }

    fn insert(&mut self, file: FileDescriptorProto) -> Result<(), Failure> {
        let name = file.name().to_owned();
        for import in &file.dependency {
            if !self.files.contains_key(import) {
                self.missing.insert(import.clone());
            }
        }
        self.missing.remove(&name);
        self.files.entry(name).or_insert(file);
        if self.files.len() + self.missing.len() > FILES_MAX {
            return Err(Failure::peer(format!("the server's schema has over {FILES_MAX} files")));
        }
        Ok(())
    }

    /// Returns the next file to ask the server for. Files of protobuf itself need no question.
    fn next_missing(&mut self) -> Option<String> {
        let name = self.missing.first()?.clone();
        match DescriptorPool::global().get_file_by_name(&name) {
            Some(file) => {
                self.missing.remove(&name);
                let proto = file.file_descriptor_proto().clone();
                self.missing.extend(
                    proto.dependency.iter().filter(|it| !self.files.contains_key(*it)).cloned(),
                );
                self.files.insert(name, proto);
                self.next_missing()
            }
            None => Some(name),
        }
    }

    /// Fails if the server's answer did not have the file that it was asked for.
    fn require(&self, name: &str) -> Result<(), Failure> {
        match self.missing.contains(name) {
            false => Ok(()),
            true => Err(Failure::peer(format!(
                "the server's reflection response lacks the file \
                                               {name}"
            ))),
        }
    }

    fn into_pool(self) -> Result<DescriptorPool, Failure> {
        guard::schema_from_files(self.files.into_values())
    }
}
