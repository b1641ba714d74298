//! Raw RESP, version 2, as a body.
//!
//! Nothing but the end of the connection ends the answer, so the reply is read to its own end, and
//! whatever is missing or more makes it none. How large it may be: [`crate::plan::MAX_RESP_BODY`].
//!
//! By hand: a call needs one kind of request and three kinds of reply of all of RESP, and no reply may
//! trap the VM. The best kept crate for it (redis-protocol 6.0) goes one call deeper for each nested array,
//! however many there are, so that a hostile reply overflows the stack; it has no bound to set; and it
//! brings RESP3 and a parser framework into the module.

use super::{Fault, Login};
use crate::store::remote::HttpAnswer;
use std::borrow::Cow;

/// More parts than any answer has.
const MAX_PARTS: usize = 4096;

pub(super) fn body(words: &[Cow<'_, str>], login: Option<&Login>) -> Vec<u8> {
    let mut out = Vec::new();
    if let Some(login) = login {
        let mut auth = vec!["AUTH"];
        auth.extend(login.user.as_deref());
        auth.push(login.password.reveal());
        command(&auth, &mut out);
    }
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    command(&words, &mut out);
    out
}

fn command(words: &[&str], out: &mut Vec<u8>) {
    out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
}

pub(super) fn texts(answer: HttpAnswer<'_>, logged_in: bool) -> Result<Vec<String>, Fault> {
    if answer.status != 200 {
        return Err(Fault::status(answer.status));
    }
    let mut reader = Reader(answer.body);
    if logged_in {
        match reader.line()? {
            (b'+', _) => {}
            (b'-', text) => return Err(Fault::said(text)),
            _ => return Err(cut()),
        }
    }
    let count = match reader.line()? {
        (b'*', count) => count.parse::<usize>().map_err(|_| cut())?,
        (b'-', text) => return Err(Fault::said(text)),
        _ => return Err(cut()),
    };
    if count > MAX_PARTS {
        return Err(cut());
    }
    let mut texts = Vec::new();
    for _ in 0..count {
        texts.push(reader.text()?);
    }
    // What follows is not ours, so neither may the rest be.
    if reader.0.is_empty() {
        Ok(texts)
    } else {
        Err(cut())
    }
}

fn cut() -> Fault {
    Fault::not("not a whole reply of the engine's script")
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], Fault> {
        let (head, rest) = self.0.split_at_checked(length).ok_or_else(cut)?;
        self.0 = rest;
        Ok(head)
    }

    /// A line's kind and the rest of it.
    fn line(&mut self) -> Result<(u8, &'a str), Fault> {
        let end = memchr::memchr(b'\n', self.0).ok_or_else(cut)?;
        let line = self.take(end + 1)?.strip_suffix(b"\r\n").ok_or_else(cut)?;
        let (kind, rest) = line.split_first().ok_or_else(cut)?;
        Ok((*kind, std::str::from_utf8(rest).map_err(|_| cut())?))
    }

    fn text(&mut self) -> Result<String, Fault> {
        let (b'$', length) = self.line()? else {
            return Err(cut());
        };
        let octets = self.take(length.parse().map_err(|_| cut())?)?;
        if self.take(2)? != b"\r\n" {
            return Err(cut());
        }
        String::from_utf8(octets.to_vec()).map_err(|_| cut())
    }
}
