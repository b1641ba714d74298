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
    /// Acts, answers the headers and half of the announced body, then closes.
    Partial,
    /// The same, then resets.
    PartialReset,
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
/// | `x-demo-gate: NAME` | waits after acting until that gate is opened |
/// | `x-demo-chunks: 4` | a chunked body in so many pieces |
/// | `x-demo-chunk-delay-ms: 5` | waits before each piece |
/// | `x-demo-body-gate: NAME` | waits at that gate after the first piece (or half) of the body |
/// | `x-demo-no-effect: 1` | answers without acting |
/// | `x-demo-fault: close, act-close, act-reset, partial` or `partial-reset` | see [`Fault`] |
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
    /// Wait for this gate before answering.
    pub gate: Option<String>,
    /// Number of chunks; 0: Content-Length.
    pub chunks: usize,
    /// Wait before each chunk.
    pub chunk_delay: Duration,
    /// Wait for this gate within the body.
    pub body_gate: Option<String>,
    /// Do not act.
    pub no_effect: bool,
    /// Fail.
    pub fault: Option<Fault>,
}

impl Instruction {
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
            "gate" => self.gate = Some(text()),
            "chunks" => {
                self.chunks = usize::try_from(number()?).map_err(|_| "x-demo-chunks: too many")?;
            }
            "chunk-delay-ms" => self.chunk_delay = Duration::from_millis(number()?),
            "body-gate" => self.body_gate = Some(text()),
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
        ] {
            assert!(read(&[bad]).is_err(), "{bad:?}");
        }
    }
}
