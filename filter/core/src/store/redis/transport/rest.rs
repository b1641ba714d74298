//! Redis over REST: the words of a command as a JSON array; `{"result": …}` or `{"error": "…"}`
//! back. A call is one command, so the form for many (`/pipeline`) would only wrap it once more.

use super::{Fault, json, texts as array};
use crate::store::remote::HttpAnswer;
use serde_json::Value;
use std::borrow::Cow;

pub(super) fn body(words: &[Cow<'_, str>]) -> Vec<u8> {
    let words = words.iter().map(|word| Value::from(word.as_ref()));
    Value::Array(words.collect()).to_string().into_bytes()
}

pub(super) fn texts(answer: HttpAnswer<'_>) -> Result<Vec<String>, Fault> {
    let Some(Value::Object(mut members)) = json(answer.body) else {
        return Err(Fault::status(answer.status));
    };
    // A refused command has status 400.
    if let Some(Value::String(text)) = members.get("error") {
        return Err(Fault::said(text));
    }
    if answer.status != 200 {
        return Err(Fault::status(answer.status));
    }
    let result = members.remove("result").and_then(array);
    result.ok_or_else(|| Fault::not("not a reply of the engine's script"))
}
