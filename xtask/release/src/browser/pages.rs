//! The origin of a page: a server of HTTP/1 on loopback that has one page, and is told its verdict.

use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

/// Maximum time of a browser's request. A browser opens connections that it does not use.
const REQUEST_LIMIT: Duration = Duration::from_secs(30);

/// The longest request, in bytes: a verdict has some hundred.
const REQUEST_LEN_MAX: u64 = 64 << 10;

/// An origin. Its threads last until the program ends, or a browser's connection does.
#[derive(Debug)]
pub(super) struct Pages {
    origin: String,
    verdicts: Receiver<String>,
}

impl Pages {
    /// Serves `page` at any path.
    ///
    /// # Errors
    ///
    /// Returns an error if the operating system has no port.
    pub(super) fn serve(page: &'static str) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let origin = format!("http://{}", listener.local_addr()?);
        let (sender, verdicts) = mpsc::channel();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let sender = sender.clone();
                std::thread::spawn(move || {
                    // A browser that breaks off tells no verdict, which is waited for.
                    if let Ok(Some(verdict)) = answer(&stream, page) {
                        let _ = sender.send(verdict);
                    }
                });
            }
        });
        Ok(Self { origin, verdicts })
    }

    /// The origin, as browsers have it.
    pub(super) fn origin(&self) -> &str {
        &self.origin
    }

    /// Returns the verdict of a page.
    ///
    /// # Errors
    ///
    /// Returns an error if no page reports one within `limit`.
    pub(super) fn verdict(&self, limit: Duration) -> Result<String> {
        self.verdicts
            .recv_timeout(limit)
            .with_context(|| format!("the page reported no verdict within {limit:?}"))
    }
}

/// Answers the request of a connection; one that posts has a verdict.
fn answer(stream: &TcpStream, page: &str) -> Result<Option<String>> {
    stream.set_read_timeout(Some(REQUEST_LIMIT))?;
    stream.set_write_timeout(Some(REQUEST_LIMIT))?;
    let request = Request::read(BufReader::new(stream).take(REQUEST_LEN_MAX))?;
    let (page, verdict) = match request {
        Request::Get => (page, None),
        Request::Post(body) => ("", Some(body)),
    };
    write!(
        &mut &*stream,
        "HTTP/1.1 200 OK\r\ncontent-type: text/html; charset=utf-8\r\ncontent-length: {}\r\n\
         connection: close\r\n\r\n{page}",
        page.len()
    )?;
    Ok(verdict)
}

#[derive(Debug, PartialEq, Eq)]
enum Request {
    Get,
    Post(String),
}

impl Request {
    fn read(mut from: impl BufRead) -> Result<Self> {
        let mut head = Vec::new();
        loop {
            let mut line = String::new();
            from.read_line(&mut line)?;
            match line.trim_end() {
                "" if line.is_empty() => bail!("a request was cut off"),
                "" => break,
                line => head.push(line.to_ascii_lowercase()),
            }
        }
        let line = head.first().context("a request has no first line")?;
        if !line.starts_with("post ") {
            return Ok(Self::Get);
        }
        let len = head.iter().find_map(|line| line.strip_prefix("content-length:"));
        let len: u64 = len.context("a verdict has no length")?.trim().parse()?;
        let mut body = String::new();
        let read = from.take(len).read_to_string(&mut body)?;
        ensure!(read as u64 == len, "a verdict was cut off");
        Ok(Self::Post(body))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_for_the_page_or_has_a_verdict() {
        let read = |text: &str| Request::read(text.as_bytes());
        assert_eq!(read("GET /?a=b HTTP/1.1\r\nHost: a\r\n\r\n").unwrap(), Request::Get);
        let verdict = "POST /verdict HTTP/1.1\r\nContent-Length: 5\r\n\r\ndone\n";
        assert_eq!(read(verdict).unwrap(), Request::Post("done\n".to_owned()));
        let broken = ["", "GET / HTTP/1.1\r\n", &verdict[..verdict.len() - 1]];
        for text in broken {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_verdict_comes_through_and_is_waited_for_within_a_bound() {
        let pages = Pages::serve("<p>").unwrap();
        assert!(pages.verdict(Duration::from_millis(1)).is_err());
        let mut stream = TcpStream::connect(pages.origin().replace("http://", "")).unwrap();
        stream.set_read_timeout(Some(REQUEST_LIMIT)).unwrap();
        stream.write_all(b"POST / HTTP/1.1\r\ncontent-length: 5\r\n\r\ndone\n").unwrap();
        assert_eq!(pages.verdict(REQUEST_LIMIT).unwrap(), "done\n");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
}
