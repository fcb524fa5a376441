//! Bringing a guest's output to this program's own, live, with a mark for each host when there are
//! two.

use std::io::{self, BufRead as _, BufReader, Read, Write};
use std::thread::{self, JoinHandle};

/// Copies `from` to `to` until its end, in a thread. With a mark, it copies whole lines and puts
/// the mark before each.
pub(super) fn spawn(
    from: impl Read + Send + 'static,
    to: impl Write + Send + 'static,
    mark: Option<String>,
) -> JoinHandle<io::Result<()>> {
    thread::spawn(move || match mark {
        Some(mark) => copy_lines(from, to, &mark),
        None => copy_chunks(from, to),
    })
}

fn copy_chunks(mut from: impl Read, mut to: impl Write) -> io::Result<()> {
    let mut chunk = vec![0; 16 * 1024];
    loop {
        let len = from.read(&mut chunk)?;
        if len == 0 {
            return Ok(());
        }
        to.write_all(&chunk[..len])?;
        to.flush()?;
    }
}

/// Each line goes out in one write, so that lines of two hosts do not mix.
fn copy_lines(from: impl Read, mut to: impl Write, mark: &str) -> io::Result<()> {
    let mut from = BufReader::new(from);
    loop {
        let mut line = mark.as_bytes().to_vec();
        if from.read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        if !line.ends_with(b"\n") {
            line.push(b'\n');
        }
        to.write_all(&line)?;
        to.flush()?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_gets_the_mark_and_the_last_one_its_end() {
        let mut to = Vec::new();
        copy_lines(&b"one\n\ntwo"[..], &mut to, "0| ").unwrap();
        assert_eq!(to, b"0| one\n0| \n0| two\n");
    }

    #[test]
    fn without_a_mark_bytes_stay_as_they_are() {
        let mut to = Vec::new();
        copy_chunks(&b"no\xffline"[..], &mut to).unwrap();
        assert_eq!(to, b"no\xffline");
    }
}
