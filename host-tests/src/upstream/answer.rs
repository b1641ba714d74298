//! Writing an answer as instructed.

use super::{
    Fault, Instruction, body,
    instruction::{Early, Framing},
    memory::Memory,
    wire::Incoming,
};
use bytes::Bytes;
use std::{io, time::Duration};
use tokio::{io::AsyncWriteExt as _, net::TcpStream};

/// What becomes of the connection.
#[derive(Clone, Copy)]
pub(super) enum After {
    /// It takes another request.
    Next,
    /// It is closed.
    Close,
    /// It is reset.
    Reset,
    /// It stays open, and nobody reads from it.
    Hang,
}

/// What an answer depends on beside its instruction.
pub(super) struct Facts {
    effect: Option<u64>,
    writes: bool,
    is_head: bool,
}

impl Facts {
    pub(super) fn of(request: &Incoming, effect: Option<u64>) -> Self {
        Self {
            effect,
            writes: writes(&request.method),
            is_head: request.method == "HEAD",
        }
    }
}

/// Whether requests of that method act.
pub(super) fn writes(method: &str) -> bool {
    !matches!(method, "GET" | "HEAD" | "OPTIONS" | "TRACE")
}

/// Waits as instructed, then answers or fails.
pub(super) async fn give(
    stream: &mut TcpStream,
    instruction: &Instruction,
    facts: &Facts,
    memory: &Memory,
) -> io::Result<After> {
    for status in &instruction.interim {
        let line = format!("HTTP/1.1 {status} Demo\r\nlink: </demo.css>; rel=preload\r\n\r\n");
        let line = if *status == 100 {
            "HTTP/1.1 100 Continue\r\n\r\n"
        } else {
            &line
        };
        stream.write_all(line.as_bytes()).await?;
    }
    if !instruction.delay.is_zero() {
        tokio::time::sleep(instruction.delay).await;
    }
    if let Some(gate) = &instruction.gate {
        memory.wait_at(gate).await;
    }
    match instruction.fault {
        Some(Fault::Close | Fault::ActClose) => return Ok(After::Close),
        Some(Fault::ActReset) => return Ok(After::Reset),
        Some(Fault::Partial | Fault::PartialReset) | None => {}
    }
    send(stream, instruction, facts, memory).await
}

/// The event of that number in a `text/event-stream`, counted from 1.
#[must_use]
pub fn event(number: usize) -> String {
    format!("event: demo\nid: {number}\ndata: {{\"number\":{number}}}\n\n")
}

/// The pieces that the body is written in. An empty body has none.
fn pieces(instruction: &Instruction, facts: &Facts, breaks: bool) -> Vec<Bytes> {
    if instruction.events > 0 {
        return (1..=instruction.events).map(|n| event(n).into()).collect();
    }
    let whole: Bytes = match (&instruction.body, instruction.size, facts.effect) {
        (Some(body), _, _) => body.clone().into(),
        (None, Some(size), _) => body::octets(instruction.seed, size),
        (None, None, Some(n)) => format!(r#"{{"id":"ch_{n:08}","effect":{n}}}"#).into(),
        (None, None, None) => Bytes::from_static(br#"{"ok":true}"#),
    };
    let least = match (breaks, &instruction.body_gate) {
        (true, _) => instruction.cut_after + 1,
        (false, Some(_)) => 2,
        (false, None) => 1,
    };
    let size = whole.len().div_ceil(instruction.chunks.max(least)).max(1);
    (0..whole.len())
        .step_by(size)
        .map(|at| whole.slice(at..whole.len().min(at + size)))
        .collect()
}

async fn send(
    stream: &mut TcpStream,
    instruction: &Instruction,
    facts: &Facts,
    memory: &Memory,
) -> io::Result<After> {
    let breaks = match instruction.fault {
        Some(Fault::Partial) => Some(After::Close),
        Some(Fault::PartialReset) => Some(After::Reset),
        _ => None,
    };
    let pieces = pieces(instruction, facts, breaks.is_some());
    let length = pieces.iter().map(Bytes::len).sum();
    let framing = instruction.framing();
    let status = instruction
        .status
        .unwrap_or(if facts.writes { 201 } else { 200 });
    let mut out = Vec::with_capacity(256);
    start(&mut out, instruction, facts, status, framing, length);
    let bodyless = facts.is_head || matches!(status, 204 | 304);
    let waits = instruction.chunk_gate.is_some()
        || instruction.body_gate.is_some()
        || instruction.end_gate.is_some()
        || !instruction.chunk_delay.is_zero();
    if bodyless || (framing == Framing::Length && breaks.is_none() && !waits) {
        if !bodyless {
            pieces.iter().for_each(|p| out.extend_from_slice(p));
        }
        stream.write_all(&out).await?;
        return Ok(After::Next);
    }
    stream.write_all(&out).await?;
    for (index, piece) in pieces.iter().enumerate() {
        if let Some(prefix) = &instruction.chunk_gate {
            memory.wait_at(&format!("{prefix}{}", index + 1)).await;
        }
        if let Some(after) = breaks
            && index == instruction.cut_after
        {
            return cut(stream, instruction, after).await;
        }
        if let (1, Some(gate)) = (index, &instruction.body_gate) {
            memory.wait_at(gate).await;
        }
        if !instruction.chunk_delay.is_zero() {
            tokio::time::sleep(instruction.chunk_delay).await;
        }
        if framing == Framing::Chunked {
            let size = format!("{:x}\r\n", piece.len());
            let framed = [size.as_bytes(), piece, b"\r\n"].concat();
            stream.write_all(&framed).await?;
        } else {
            stream.write_all(piece).await?;
        }
    }
    if let Some(gate) = &instruction.end_gate {
        memory.wait_at(gate).await;
    }
    if let Some(after) = breaks {
        return cut(stream, instruction, after).await;
    }
    match framing {
        Framing::Length => Ok(After::Next),
        Framing::Close => Ok(After::Close),
        Framing::Chunked => {
            let mut end = b"0\r\n".to_vec();
            push_lines(&mut end, &instruction.trailers);
            end.extend_from_slice(b"\r\n");
            stream.write_all(&end).await?;
            Ok(After::Next)
        }
    }
}

/// Breaks off.
async fn cut(stream: &mut TcpStream, instruction: &Instruction, after: After) -> io::Result<After> {
    stream.flush().await?;
    if instruction.chunk_gate.is_none() {
        // Time for the proxy to have passed on what came before the break.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(after)
}

/// The head of an instructed answer.
fn start(
    out: &mut Vec<u8>,
    instruction: &Instruction,
    facts: &Facts,
    status: u16,
    framing: Framing,
    length: usize,
) {
    let mut lines = instruction.headers.clone();
    let is_default = instruction.body.is_none() && instruction.size.is_none();
    if let (Some(n), true, 0) = (facts.effect, is_default, instruction.events) {
        let location = format!("/v1/charges/ch_{n:08}");
        lines.push((b"location".to_vec(), location.into()));
    }
    if matches!(instruction.early, Some(Early::Ignore | Early::Close)) {
        // RFC 9112 §9.3: who does not read a request to its end cannot take another one.
        lines.push((b"connection".to_vec(), b"close".to_vec()));
    }
    let names_type = lines
        .iter()
        .any(|(n, _)| n.eq_ignore_ascii_case(b"content-type"));
    let usual = if instruction.events > 0 {
        "text/event-stream"
    } else if instruction.size.is_some() {
        "application/octet-stream"
    } else {
        "application/json"
    };
    let content_type =
        (!instruction.no_content_type && !names_type && status != 204).then_some(usual);
    // RFC 9110 §6.4.1: no content, and so no length either.
    let bodyless = matches!(status, 204 | 304);
    match framing {
        Framing::Length if !bodyless => {
            head(out, status, &lines, content_type, Some(length));
        }
        Framing::Chunked if !bodyless => {
            lines.push((b"transfer-encoding".to_vec(), b"chunked".to_vec()));
            head(out, status, &lines, content_type, None);
        }
        _ => head(out, status, &lines, content_type, None),
    }
}

fn push_lines(out: &mut Vec<u8>, lines: &[(Vec<u8>, Vec<u8>)]) {
    for (name, value) in lines {
        out.extend_from_slice(name);
        out.extend_from_slice(b": ");
        out.extend_from_slice(value);
        out.extend_from_slice(b"\r\n");
    }
}

/// The head of any answer.
pub(super) fn head(
    out: &mut Vec<u8>,
    status: u16,
    lines: &[(Vec<u8>, Vec<u8>)],
    content_type: Option<&str>,
    length: Option<usize>,
) {
    out.extend_from_slice(format!("HTTP/1.1 {status} Demo\r\n").as_bytes());
    if let Some(value) = content_type {
        out.extend_from_slice(format!("content-type: {value}\r\n").as_bytes());
    }
    push_lines(out, lines);
    if let Some(n) = length {
        out.extend_from_slice(format!("content-length: {n}\r\n").as_bytes());
    }
    out.extend_from_slice(b"\r\n");
}
