//! Webdis: the words of a command joined by `/` in a POST body; `{"<COMMAND>": <reply>}` back.
//! It has no escapes but `%XX`; `/` parts words, `?` ends them, `.` may name a format, `+` is a space.

use super::{Fault, json, texts as array};
use crate::store::remote::HttpAnswer;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use std::borrow::Cow;

/// What our words are made of needs no escape; the script does.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b',')
    .remove(b':')
    .remove(b';')
    .remove(b'=')
    .remove(b'{')
    .remove(b'}');

pub(super) fn body(words: &[Cow<'_, str>]) -> Vec<u8> {
    let mut out = Vec::new();
    for (at, word) in words.iter().enumerate() {
        if at > 0 {
            out.push(b'/');
        }
        for piece in utf8_percent_encode(word, ESCAPED) {
            out.extend_from_slice(piece.as_bytes());
        }
    }
    out
}

pub(super) fn texts(answer: HttpAnswer<'_>) -> Result<Vec<String>, Fault> {
    if answer.status != 200 {
        return Err(Fault::status(answer.status));
    }
    let Some(Value::Object(mut members)) = json(answer.body) else {
        return Err(Fault::not("not JSON of Webdis"));
    };
    let reply = members
        .remove("EVALSHA")
        .or_else(|| members.remove("EVAL"))
        .ok_or_else(|| Fault::not("not JSON of Webdis"))?;
    // An error is `[false, "text"]`.
    if let Some([Value::Bool(false), Value::String(text)]) = reply.as_array().map(Vec::as_slice) {
        return Err(Fault::said(text));
    }
    array(reply).ok_or_else(|| Fault::not("not a reply of the engine's script"))
}
