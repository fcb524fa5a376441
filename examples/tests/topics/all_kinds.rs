//! A call of each kind. The trait is tonic's, and so are the streams.

use std::pin::Pin;

use farcall::{Channel, Request, Response, Server, Status, Streaming};
use farcall_examples::talk::Line;
use farcall_examples::talk::talk_rpc::{TalkService, TalkStub};
use farcall_examples::talk::talk_server::Talk;
use tokio_stream::{Stream, StreamExt};

struct Echo;

type Lines = Pin<Box<dyn Stream<Item = Result<Line, Status>> + Send>>;

fn line(text: &str) -> Line {
    Line { text: text.to_owned() }
}

#[farcall::async_trait]
impl Talk for Echo {
    type ListenStream = Lines;
    type ChatStream = Lines;

    async fn ask(&self, request: Request<Line>) -> Result<Response<Line>, Status> {
        Ok(Response::new(request.into_inner()))
    }

    async fn listen(&self, request: Request<Line>) -> Result<Response<Lines>, Status> {
        let sentence = request.into_inner().text;
        let lines: Vec<_> = sentence.split(' ').map(|word| Ok(line(word))).collect();
        Ok(Response::new(Box::pin(tokio_stream::iter(lines))))
    }

    async fn tell(&self, request: Request<Streaming<Line>>) -> Result<Response<Line>, Status> {
        let mut lines = request.into_inner();
        let mut text = Vec::new();
        while let Some(line) = lines.message().await? {
            text.push(line.text);
        }
        Ok(Response::new(line(&text.join(" "))))
    }

    async fn chat(&self, request: Request<Streaming<Line>>) -> Result<Response<Lines>, Status> {
        let answers = request.into_inner().map(|said| Ok(line(&said?.text.to_uppercase())));
        Ok(Response::new(Box::pin(answers)))
    }
}

#[tokio::test]
async fn a_call_of_each_kind() -> anyhow::Result<()> {
    let server = Server::builder().add_service(TalkService::new(Echo));
    let listener = server.bind("tcp://127.0.0.1:0").await?;
    let address = listener.local_address().clone();
    tokio::spawn(listener.serve());
    let stub = TalkStub::new(Channel::connect(&address).await?);

    assert_eq!(stub.ask(line("one")).await?.into_inner().text, "one");

    let mut heard = stub.listen(line("one two")).await?.into_inner();
    let mut count = 0;
    while heard.message().await?.is_some() {
        count += 1;
    }
    assert_eq!(count, 2);

    let said = tokio_stream::iter([line("one"), line("two")]);
    assert_eq!(stub.tell(said).await?.into_inner().text, "one two");

    let mut answers = stub.chat(tokio_stream::iter([line("one")])).await?.into_inner();
    assert_eq!(answers.message().await?.expect("an answer").text, "ONE");
    assert_eq!(answers.message().await?, None);
    Ok(())
}
