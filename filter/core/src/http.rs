//! Header lines as bytes, exactly as the host gave them.
//!
//! Hosts deliver names in lower case (HTTP/2, RFC 9113 §8.2) and values as opaque octets
//! (RFC 9110 §5.5). Nothing here assumes UTF-8.

use std::fmt;

/// One header line: a lower-case name and an opaque value.
pub type Line = (Vec<u8>, Vec<u8>);

/// All header lines of one message, in order, repeated lines kept apart.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Headers {
    lines: Vec<Line>,
}

impl Headers {
    /// Takes the lines as the host delivered them; names are put into lower case.
    #[must_use]
    pub fn new(mut lines: Vec<Line>) -> Self {
        for (name, _) in &mut lines {
            name.make_ascii_lowercase();
        }
        Self { lines }
    }

    /// Every line, in order.
    #[must_use]
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// Gives the lines back.
    #[must_use]
    pub fn into_lines(self) -> Vec<Line> {
        self.lines
    }

    /// The values of every line of that (lower-case) name, in order.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.lines
            .iter()
            .filter(move |(n, _)| n == name.as_bytes())
            .map(|(_, v)| v.as_slice())
    }

    /// The first value of that (lower-case) name.
    #[must_use]
    pub fn first(&self, name: &str) -> Option<&[u8]> {
        self.lines
            .iter()
            .find(|(n, _)| n == name.as_bytes())
            .map(|(_, v)| v.as_slice())
    }

    /// The first value of that name where it is UTF-8.
    #[must_use]
    pub fn first_str(&self, name: &str) -> Option<&str> {
        self.first(name).and_then(|v| std::str::from_utf8(v).ok())
    }

    /// Whether any line has that name.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.first(name).is_some()
    }

    /// Appends a line.
    pub fn push(&mut self, name: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) {
        self.lines.push((name.into(), value.into()));
    }

    /// `:method`, or empty.
    #[must_use]
    pub fn method(&self) -> &[u8] {
        self.first(":method").unwrap_or_default()
    }

    /// `:path` with its query, or empty.
    #[must_use]
    pub fn path_and_query(&self) -> &[u8] {
        self.first(":path").unwrap_or_default()
    }

    /// `:path` split at the first `?`: path, and query without the mark where there is one.
    #[must_use]
    pub fn split_path(&self) -> (&[u8], Option<&[u8]>) {
        let whole = self.path_and_query();
        let mut parts = whole.splitn(2, |b| *b == b'?');
        (parts.next().unwrap_or_default(), parts.next())
    }

    /// `:authority`, or `host`, or empty.
    #[must_use]
    pub fn authority(&self) -> &[u8] {
        self.first(":authority")
            .or_else(|| self.first("host"))
            .unwrap_or_default()
    }
}

/// Values may be credentials or keys, so only names are shown.
impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.lines.iter().map(|(n, _)| String::from_utf8_lossy(n)))
            .finish()
    }
}

impl<N: Into<Vec<u8>>, V: Into<Vec<u8>>> FromIterator<(N, V)> for Headers {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(iter: I) -> Self {
        Self::new(
            iter.into_iter()
                .map(|(n, v)| (n.into(), v.into()))
                .collect(),
        )
    }
}

/// The media type of a `Content-Type` value: type and subtype in lower case, no parameters
/// (RFC 9110 §8.3.1); empty where there is none.
#[must_use]
pub fn media_type(content_type: Option<&[u8]>) -> String {
    let value = content_type.unwrap_or_default();
    let essence = value.split(|b| *b == b';').next().unwrap_or_default();
    String::from_utf8_lossy(essence.trim_ascii()).to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_lines_stay_apart_and_names_are_lower_case() {
        let h: Headers = [("Accept", "a"), ("accept", "b")].into_iter().collect();
        assert_eq!(h.all("accept").collect::<Vec<_>>(), [b"a", b"b"]);
    }

    #[test]
    fn path_splits_at_the_first_question_mark_only() {
        let h: Headers = [(":path", "/a?b=c?d")].into_iter().collect();
        assert_eq!(h.split_path(), (&b"/a"[..], Some(&b"b=c?d"[..])));
        let h: Headers = [(":path", "/a")].into_iter().collect();
        assert_eq!(h.split_path(), (&b"/a"[..], None));
    }

    #[test]
    fn media_type_drops_parameters_and_case() {
        assert_eq!(
            media_type(Some(b"Application/JSON; charset=utf-8")),
            "application/json"
        );
        assert_eq!(media_type(None), "");
    }

    #[test]
    fn debug_shows_no_value() {
        let h: Headers = [("authorization", "Bearer s3cret")].into_iter().collect();
        assert!(!format!("{h:?}").contains("s3cret"));
    }
}
