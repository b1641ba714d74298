//! What a request may ask the upstream to do, in `x-demo-*` headers.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use std::time::Duration;

/// Ways to fail on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Closes the connection; nothing was done.
    Close,
    /// Acts, then closes without a byte of an answer.
    ActClose,
    /// Acts, then resets the connection.
    ActReset,
    /// Acts, answers the headers and a part of the body (by default half), then closes.
    Partial,
    /// The same, then resets.
    PartialReset,
}

/// Whether the rest of an upload is read that is answered before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Early {
    /// It is, after the answer.
    Read,
    /// It is not. The answer says `connection: close`, and the peer may be the one to close.
    Ignore,
    /// It is not. The answer says `connection: close`, and so it is done.
    Close,
}

/// How the end of an answer is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// By Content-Length.
    Length,
    /// By the last chunk.
    Chunked,
    /// By the end of the connection.
    Close,
}

/// How one request is answered. Every part has a header of its own:
///
/// | header | meaning |
/// |---|---|
/// | `x-demo-status: 402` | status |
/// | `x-demo-body-b64: …` | the body, base64 |
/// | `x-demo-header: name=value` | a header line of the answer; may be repeated |
/// | `x-demo-trailer: name=value` | a trailer; makes the answer chunked |
/// | `x-demo-no-content-type: 1` | no `content-type` |
/// | `x-demo-delay-ms: 50` | waits after acting, before answering |
/// | `x-demo-act-gate: NAME` | waits before acting until that gate is opened, whether or not the peer is still there |
/// | `x-demo-gate: NAME` | waits after acting until that gate is opened |
/// | `x-demo-chunks: 4` | a chunked body in so many pieces |
/// | `x-demo-chunk-delay-ms: 5` | waits before each piece |
/// | `x-demo-body-gate: NAME` | waits at that gate after the first piece (or half) of the body |
/// | `x-demo-chunk-gate: NAME` | waits before piece 1 at gate `NAME1`, before piece 2 at `NAME2`, and so on |
/// | `x-demo-end-gate: NAME` | waits at that gate after the last octet, before the end |
/// | `x-demo-size: 1048576` | a body of so many octets, see [`octets`](super::octets) |
/// | `x-demo-seed: 7` | which octets |
/// | `x-demo-events: 5` | a `text/event-stream` of so many events, each a chunk, see [`event`](super::event) |
/// | `x-demo-framing: length, chunked` or `close` | see [`Framing`] |
/// | `x-demo-interim: 103` | an interim answer first; may be repeated |
/// | `x-demo-early: read, ignore` or `close` | answers (and acts) before the upload ends, see [`Early`] |
/// | `x-demo-early-after: 4096` | once so many octets have come; by default at once |
/// | `x-demo-read-gate: NAME` | reads the body only when that gate is opened |
/// | `x-demo-read-gate-after: 4096` | only what comes after so many octets |
/// | `x-demo-no-effect: 1` | answers without acting |
/// | `x-demo-fault: close, act-close, act-reset, partial` or `partial-reset` | see [`Fault`] |
/// | `x-demo-cut-after: 2` | partial answers break off after so many pieces; by default after one |
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// Status; by default 201 for writes, 200 else.
    pub status: Option<u16>,
    /// The body; by default JSON that names the effect.
    pub body: Option<Vec<u8>>,
    /// Further header lines.
    pub headers: Vec<(Vec<u8>, Vec<u8>)>,
    /// Trailers.
    pub trailers: Vec<(Vec<u8>, Vec<u8>)>,
    /// Leave out `content-type`.
    pub no_content_type: bool,
    /// Wait before answering.
    pub delay: Duration,
    /// Wait for this gate before acting.
    pub act_gate: Option<String>,
    /// Wait for this gate before answering.
    pub gate: Option<String>,
    /// Number of pieces; 0: one, with Content-Length.
    pub chunks: usize,
    /// Wait before each chunk.
    pub chunk_delay: Duration,
    /// Wait for this gate within the body.
    pub body_gate: Option<String>,
    /// Wait before piece n at the gate of this name with n appended.
    pub chunk_gate: Option<String>,
    /// Wait for this gate between the last octet and the end.
    pub end_gate: Option<String>,
    /// A body of so many octets.
    pub size: Option<usize>,
    /// Which octets.
    pub seed: u64,
    /// A stream of so many events.
    pub events: usize,
    /// How the end is told; by default as the rest asks for.
    pub framing: Option<Framing>,
    /// Interim answers.
    pub interim: Vec<u16>,
    /// Answer before the upload ends.
    pub early: Option<Early>,
    /// Once so many octets have come.
    pub early_after: u64,
    /// Wait for this gate before reading the body.
    pub read_gate: Option<String>,
    /// Only after so many octets.
    pub read_gate_after: u64,
    /// Do not act.
    pub no_effect: bool,
    /// Fail.
    pub fault: Option<Fault>,
    /// Break off after so many pieces.
    pub cut_after: usize,
}

impl Default for Instruction {
    fn default() -> Self {
        Self {
            status: None,
            body: None,
            headers: Vec::new(),
            trailers: Vec::new(),
            no_content_type: false,
            delay: Duration::ZERO,
            act_gate: None,
            gate: None,
            chunks: 0,
            chunk_delay: Duration::ZERO,
            body_gate: None,
            chunk_gate: None,
            end_gate: None,
            size: None,
            seed: 0,
            events: 0,
            framing: None,
            interim: Vec::new(),
            early: None,
            early_after: 0,
            read_gate: None,
            read_gate_after: 0,
            no_effect: false,
            fault: None,
            cut_after: 1,
        }
    }
}

impl Instruction {
    /// How the end is told.
    pub(super) fn framing(&self) -> Framing {
        let many = self.chunks > 0 || self.events > 0 || !self.trailers.is_empty();
        let usual = if many {
            Framing::Chunked
        } else {
            Framing::Length
        };
        self.framing.unwrap_or(usual)
    }

    /// Reads the instructions among header lines; `None` where there is none.
    ///
    /// # Errors
    /// An instruction that cannot be understood, so that a test's typing error is not taken for a
    /// plain request.
    pub fn read<'a>(
        lines: impl Iterator<Item = (&'a str, &'a [u8])>,
    ) -> Result<Option<Self>, String> {
        let mut found: Option<Self> = None;
        for (name, value) in lines {
            let is_ours = name
                .get(..7)
                .is_some_and(|p| p.eq_ignore_ascii_case("x-demo-"));
            if is_ours {
                found
                    .get_or_insert_default()
                    .set(&name[7..].to_ascii_lowercase(), value)?;
            }
        }
        Ok(found)
    }

    fn set(&mut self, name: &str, value: &[u8]) -> Result<(), String> {
        let text = || String::from_utf8_lossy(value).into_owned();
        let number = || {
            text()
                .parse::<u64>()
                .map_err(|_| format!("x-demo-{name}: not a number"))
        };
        let pair = || {
            let at = value
                .iter()
                .position(|b| *b == b'=')
                .ok_or_else(|| format!("x-demo-{name}: name=value expected"))?;
            Ok::<_, String>((value[..at].to_vec(), value[at + 1..].to_vec()))
        };
        let count = || usize::try_from(number()?).map_err(|_| format!("x-demo-{name}: too large"));
        match name {
            "status" => {
                self.status = Some(
                    u16::try_from(number()?)
                        .ok()
                        .filter(|s| (200..=999).contains(s))
                        .ok_or("x-demo-status: 200 to 999")?,
                );
            }
            "body-b64" => {
                self.body = Some(
                    STANDARD
                        .decode(value)
                        .map_err(|e| format!("x-demo-body-b64: {e}"))?,
                );
            }
            "header" => self.headers.push(pair()?),
            "trailer" => self.trailers.push(pair()?),
            "no-content-type" => self.no_content_type = true,
            "delay-ms" => self.delay = Duration::from_millis(number()?),
            "act-gate" => self.act_gate = Some(text()),
            "gate" => self.gate = Some(text()),
            "chunks" => self.chunks = count()?,
            "chunk-delay-ms" => self.chunk_delay = Duration::from_millis(number()?),
            "body-gate" => self.body_gate = Some(text()),
            "chunk-gate" => self.chunk_gate = Some(text()),
            "end-gate" => self.end_gate = Some(text()),
            "size" => self.size = Some(count()?),
            "seed" => self.seed = number()?,
            "events" => self.events = count()?,
            "framing" => {
                self.framing = Some(match value {
                    b"length" => Framing::Length,
                    b"chunked" => Framing::Chunked,
                    b"close" => Framing::Close,
                    _ => return Err(format!("x-demo-framing: unknown framing {}", text())),
                });
            }
            "interim" => self.interim.push(
                u16::try_from(number()?)
                    .ok()
                    .filter(|s| (100..=199).contains(s))
                    .ok_or("x-demo-interim: 100 to 199")?,
            ),
            "early" => {
                self.early = Some(match value {
                    b"read" => Early::Read,
                    b"ignore" => Early::Ignore,
                    b"close" => Early::Close,
                    _ => {
                        return Err(format!(
                            "x-demo-early: read, ignore or close, not {}",
                            text()
                        ));
                    }
                });
            }
            "early-after" => self.early_after = number()?,
            "read-gate" => self.read_gate = Some(text()),
            "read-gate-after" => self.read_gate_after = number()?,
            "cut-after" => self.cut_after = count()?,
            "no-effect" => self.no_effect = true,
            "fault" => {
                self.fault = Some(match value {
                    b"close" => Fault::Close,
                    b"act-close" => Fault::ActClose,
                    b"act-reset" => Fault::ActReset,
                    b"partial" => Fault::Partial,
                    b"partial-reset" => Fault::PartialReset,
                    _ => return Err(format!("x-demo-fault: unknown fault {}", text())),
                });
            }
            _ => return Err(format!("unknown instruction x-demo-{name}")),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &[(&str, &[u8])]) -> Result<Option<Instruction>, String> {
        Instruction::read(lines.iter().copied())
    }

    #[test]
    fn no_instruction_is_none() {
        assert_eq!(read(&[("accept", b"*/*"), ("x-dem", b"1")]), Ok(None));
    }

    #[test]
    fn repeated_headers_are_kept_with_their_bytes() {
        let got = read(&[
            ("X-Demo-Header", b"a=1, 2"),
            ("x-demo-header", b"a=\xff="),
            ("x-demo-status", b"402"),
        ])
        .unwrap()
        .unwrap();
        assert_eq!(got.status, Some(402));
        assert_eq!(
            got.headers,
            [
                (b"a".to_vec(), b"1, 2".to_vec()),
                (b"a".to_vec(), b"\xff=".to_vec())
            ]
        );
    }

    #[test]
    fn a_typing_error_is_not_a_plain_request() {
        for bad in [
            ("x-demo-sttaus", &b"1"[..]),
            ("x-demo-status", b"20"),
            ("x-demo-fault", b"clse"),
            ("x-demo-header", b"novalue"),
            ("x-demo-body-b64", b"*"),
            ("x-demo-framing", b"chunky"),
            ("x-demo-early", b"yes"),
            ("x-demo-interim", b"200"),
            ("x-demo-size", b"1MiB"),
        ] {
            assert!(read(&[bad]).is_err(), "{bad:?}");
        }
    }
}
