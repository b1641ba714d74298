//! One connection of the upstream: act, remember, answer or misbehave.

use super::{
    Fault, Instruction, control,
    memory::{Memory, Received},
    wire::{Connection, Incoming},
};
use std::{io, sync::Arc, time::Duration};
use tokio::{io::AsyncWriteExt as _, net::TcpStream};

/// Serves requests until the peer leaves or a fault ends the connection.
pub(super) async fn connection(stream: TcpStream, memory: Arc<Memory>) {
    // Answers are written whole: delaying them for more can only hurt.
    let _ = stream.set_nodelay(true);
    let mut connection = Connection::new(stream);
    // A peer that leaves in the middle of a request is what some tests are about.
    while let Ok(Some(request)) = connection.next().await {
        let keep_alive = request.keep_alive;
        match answer(&mut connection.stream, request, &memory).await {
            Ok(After::Next) if keep_alive => {}
            Ok(After::Next | After::Close) | Err(_) => break,
            Ok(After::Reset) => {
                let _ = connection.stream.set_zero_linger();
                break;
            }
        }
    }
}

enum After {
    Next,
    Close,
    Reset,
}

async fn answer(stream: &mut TcpStream, request: Incoming, memory: &Memory) -> io::Result<After> {
    if let Some(rest) = request.target.strip_prefix("/_demo/") {
        let (status, body) = control::answer(&request.method, rest, memory);
        let mut out = Vec::new();
        head(
            &mut out,
            status,
            &[],
            Some("application/json"),
            Some(body.len()),
        );
        out.extend_from_slice(body.as_bytes());
        stream.write_all(&out).await?;
        return Ok(After::Next);
    }
    let own = match Instruction::read(
        request
            .headers
            .iter()
            .map(|(n, v)| (n.as_str(), v.as_slice())),
    ) {
        Ok(own) => own,
        Err(problem) => {
            // 599 so that a typing error cannot be taken for anything a test expects.
            let mut out = Vec::new();
            head(&mut out, 599, &[], Some("text/plain"), Some(problem.len()));
            out.extend_from_slice(problem.as_bytes());
            stream.write_all(&out).await?;
            return Ok(After::Next);
        }
    };
    let instruction = own
        .or_else(|| memory.default_instruction())
        .unwrap_or_default();
    let writes = !matches!(
        request.method.as_str(),
        "GET" | "HEAD" | "OPTIONS" | "TRACE"
    );
    let acts = writes && !instruction.no_effect && instruction.fault != Some(Fault::Close);
    let effect = acts.then(|| memory.act());
    let is_head = request.method == "HEAD";
    if memory.keeps() {
        memory.record(Received {
            method: request.method,
            target: request.target,
            headers: request.headers,
            body: request.body,
            effect,
        });
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
    send(stream, &instruction, effect, writes, is_head, memory).await
}

/// Writes the answer as instructed.
async fn send(
    stream: &mut TcpStream,
    instruction: &Instruction,
    effect: Option<u64>,
    writes: bool,
    is_head: bool,
    memory: &Memory,
) -> io::Result<After> {
    let status = instruction.status.unwrap_or(if writes { 201 } else { 200 });
    let mut lines = instruction.headers.clone();
    let body = instruction.body.clone().unwrap_or_else(|| match effect {
        Some(n) => {
            lines.push((
                b"location".to_vec(),
                format!("/v1/charges/ch_{n:08}").into(),
            ));
            format!(r#"{{"id":"ch_{n:08}","effect":{n}}}"#).into_bytes()
        }
        None => br#"{"ok":true}"#.to_vec(),
    });
    let names_type = lines
        .iter()
        .any(|(n, _)| n.eq_ignore_ascii_case(b"content-type"));
    let content_type = (!instruction.no_content_type && !names_type && status != 204)
        .then_some("application/json");
    let chunked = instruction.chunks > 0 || !instruction.trailers.is_empty();
    let mut out = Vec::with_capacity(256 + body.len());
    if matches!(status, 204 | 304) {
        // RFC 9110 §6.4.1: no content, and so no length either.
        head(&mut out, status, &lines, content_type, None);
        stream.write_all(&out).await?;
        return Ok(After::Next);
    }
    if chunked {
        lines.push((b"transfer-encoding".to_vec(), b"chunked".to_vec()));
        head(&mut out, status, &lines, content_type, None);
    } else {
        head(&mut out, status, &lines, content_type, Some(body.len()));
    }
    if is_head {
        stream.write_all(&out).await?;
        return Ok(After::Next);
    }
    let breaks = match instruction.fault {
        Some(Fault::Partial) => Some(After::Close),
        Some(Fault::PartialReset) => Some(After::Reset),
        _ => None,
    };
    let pauses = instruction.body_gate.is_some() || breaks.is_some();
    if !chunked && !pauses {
        out.extend_from_slice(&body);
        stream.write_all(&out).await?;
        return Ok(After::Next);
    }
    stream.write_all(&out).await?;
    let pieces = if pauses {
        instruction.chunks.max(2)
    } else {
        instruction.chunks.max(1)
    };
    let size = body.len().div_ceil(pieces).max(1);
    for (index, piece) in body.chunks(size).enumerate() {
        if index == 1 {
            if let Some(after) = breaks {
                // Time for the proxy to have passed on what came before the break.
                stream.flush().await?;
                tokio::time::sleep(Duration::from_millis(20)).await;
                return Ok(after);
            }
            if let Some(gate) = &instruction.body_gate {
                memory.wait_at(gate).await;
            }
        }
        tokio::time::sleep(instruction.chunk_delay).await;
        if chunked {
            let framed = [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat();
            stream.write_all(&framed).await?;
        } else {
            stream.write_all(piece).await?;
        }
    }
    if let Some(after) = breaks {
        return Ok(after);
    }
    if chunked {
        let mut end = b"0\r\n".to_vec();
        push_lines(&mut end, &instruction.trailers);
        end.extend_from_slice(b"\r\n");
        stream.write_all(&end).await?;
    }
    Ok(After::Next)
}

fn push_lines(out: &mut Vec<u8>, lines: &[(Vec<u8>, Vec<u8>)]) {
    for (name, value) in lines {
        out.extend_from_slice(name);
        out.extend_from_slice(b": ");
        out.extend_from_slice(value);
        out.extend_from_slice(b"\r\n");
    }
}

fn head(
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
