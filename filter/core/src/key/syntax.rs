//! From what is on the wire to the plain text of a key.
//!
//! The quoted form is an RFC 9651 Item whose bare item is a String (§3.3.3, parsed by §4.2.3);
//! parameters must parse and are ignored. The bare form is what most clients send instead: visible
//! ASCII without double quotes and commas.

use super::reason;
use crate::plan::KeySyntax;
use sfv::visitor::{Ignored, ItemVisitor, ParameterVisitor};
use sfv::{BareItemFromInput, KeyRef};
use std::borrow::Cow;
use std::convert::Infallible;

/// The longest header value that is looked at: 255 characters, each escaped, with room for
/// parameters. Anything longer is refused before it is parsed.
const MAX_VALUE: usize = 1024;

/// Drops optional white space (RFC 9110 §5.6.3) at both ends.
pub(super) fn trim_ows(value: &[u8]) -> &[u8] {
    let is_ows = |b: &u8| matches!(b, b' ' | b'\t');
    let start = value.iter().take_while(|b| is_ows(b)).count();
    let rest = value.get(start..).unwrap_or_default();
    let end = rest.len() - rest.iter().rev().take_while(|b| is_ows(b)).count();
    rest.get(..end).unwrap_or_default()
}

/// The key text of a header value.
pub(super) fn header_text(sent: &[u8], syntax: KeySyntax) -> Result<Cow<'_, str>, &'static str> {
    let value = trim_ows(sent);
    if value.is_empty() && !sent.is_empty() {
        return Err(reason::BLANK);
    }
    if value.len() > MAX_VALUE {
        return Err(reason::TOO_LONG);
    }
    let value = ascii(value)?;
    if value.starts_with('"') {
        let text = unquote(value)?;
        check(&text)?;
        return Ok(text);
    }
    if syntax == KeySyntax::Strict && !value.is_empty() {
        return Err(reason::UNQUOTED);
    }
    if value.contains(',') {
        return Err(reason::LIST);
    }
    if value.contains('"') {
        return Err(reason::QUOTING);
    }
    check(value)?;
    Ok(Cow::Borrowed(value))
}

/// The key text of a body member: the string itself.
pub(super) fn body_text(text: &str) -> Result<&str, &'static str> {
    let text = ascii(text.as_bytes())?;
    check(text)?;
    Ok(text)
}

/// What holds for every key, however it was written.
fn check(text: &str) -> Result<(), &'static str> {
    if text.is_empty() {
        Err(reason::EMPTY)
    } else if text.bytes().all(|b| b == b' ') {
        Err(reason::BLANK)
    } else if text.contains(' ') {
        Err(reason::SPACE)
    } else if text.starts_with('"') {
        // A quoted key inside quotes: somebody encoded it twice.
        Err(reason::QUOTING)
    } else {
        Ok(())
    }
}

fn ascii(value: &[u8]) -> Result<&str, &'static str> {
    let text = std::str::from_utf8(value).map_err(|_| reason::NOT_UTF8)?;
    if !text.is_ascii() {
        return Err(reason::NOT_ASCII);
    }
    if text.bytes().any(|b| b.is_ascii_control()) {
        return Err(reason::CONTROL);
    }
    Ok(text)
}

/// Reads an RFC 9651 Item that is a String and gives its content.
pub(super) fn unquote(value: &str) -> Result<Cow<'_, str>, &'static str> {
    match sfv::Parser::new(value).parse_item_with_visitor(StringItem) {
        Ok(Some(text)) => Ok(text),
        Ok(None) => Err(reason::QUOTING),
        // Lines that were merged: the String ends well and a comma follows.
        Err(_) if is_merged(value) => Err(reason::LIST),
        Err(_) => Err(reason::QUOTING),
    }
}

/// Whether the value is a list of items; only tells two refusals apart.
fn is_merged(value: &str) -> bool {
    value.contains(',')
        && sfv::Parser::new(value)
            .parse_list_with_visitor(Ignored)
            .is_ok()
}

/// Keeps the bare item if it is a String.
struct StringItem;

/// Ignores every parameter and hands on what the bare item was.
struct SkipParameters<'de>(Option<Cow<'de, str>>);

impl<'de> ItemVisitor<'de> for StringItem {
    type Out = Option<Cow<'de, str>>;
    type Error = Infallible;

    fn bare_item(
        self,
        item: BareItemFromInput<'de>,
    ) -> Result<impl ParameterVisitor<'de, Out = Self::Out>, Self::Error> {
        Ok(SkipParameters(match item {
            BareItemFromInput::String(Cow::Borrowed(text)) => Some(Cow::Borrowed(text.as_str())),
            BareItemFromInput::String(Cow::Owned(text)) => Some(Cow::Owned(text.into())),
            _ => None,
        }))
    }
}

impl<'de> ParameterVisitor<'de> for SkipParameters<'de> {
    type Out = Option<Cow<'de, str>>;
    type Error = Infallible;

    fn parameter(&mut self, _: &'de KeyRef, _: BareItemFromInput<'de>) -> Result<(), Infallible> {
        Ok(())
    }

    fn finish(self) -> Result<Self::Out, Infallible> {
        Ok(self.0)
    }
}
