//! `multipart/form-data` bodies (RFC 7578, RFC 2046 §5.1), independent of the boundary.
//!
//! A client picks a new random boundary for each attempt, so the boundary must not count. All
//! else does: the parts in order, every header line of a part and its content, octet for octet.
//! Only the order of a part's header lines and the case of their names are free.
//!
//! Written by hand because it must be stricter than any reader behind it. General parsers skip
//! preambles and epilogues, forgive bare line feeds, unfold headers or keep only the headers they
//! know (and bring an asynchronous stack along); what a parser forgives, it merges. Whatever is not
//! exactly the form below, and any second place where the boundary's characters stand, makes the
//! body be compared as it stands:
//!
//! ```text
//! --B CRLF  *(name ":" value CRLF) CRLF content  *(CRLF --B CRLF …)  CRLF --B-- [CRLF]
//! ```

use super::hash::frame;
use crate::order;

/// Length-framed parts; `None` where the body is not strictly of the form.
pub(super) fn canonical(content_type: &[u8], body: &[u8]) -> Option<Vec<u8>> {
    let boundary = boundary(content_type)?;
    let mut dash = b"--".to_vec();
    dash.extend_from_slice(boundary);

    let mut rest = body.strip_prefix(dash.as_slice())?.strip_prefix(b"\r\n")?;
    let mut out = Vec::with_capacity(body.len());
    loop {
        let at = find(rest, &dash)?;
        let (before, after) = rest.split_at_checked(at)?;
        push_part(&mut out, before.strip_suffix(b"\r\n")?)?;
        let after = after.strip_prefix(dash.as_slice())?;
        match after.strip_prefix(b"\r\n") {
            Some(next) => rest = next,
            None => return matches!(after, b"--" | b"--\r\n").then_some(out),
        }
    }
}

/// The one parameter that there may be. Media types compare without parameters, so an unknown one
/// must not be passed over here.
fn boundary(content_type: &[u8]) -> Option<&[u8]> {
    let mut halves = content_type.splitn(2, |b| *b == b';');
    halves.next()?;
    let parameter = halves.next()?.trim_ascii();
    let (name, value) = parameter.split_at_checked(b"boundary=".len())?;
    if !name.eq_ignore_ascii_case(b"boundary=") {
        return None;
    }
    let quoted = value
        .strip_prefix(b"\"")
        .and_then(|v| v.strip_suffix(b"\""));
    let boundary = quoted.unwrap_or(value);
    let legal = |b: &u8| {
        let bare = b.is_ascii_alphanumeric() || b"'+_-.".contains(b);
        bare || (quoted.is_some() && b"(),/:=? ".contains(b))
    };
    let sized = (1..=70).contains(&boundary.len()) && !boundary.ends_with(b" ");
    (sized && boundary.iter().all(legal)).then_some(boundary)
}

/// Frames one part: its header lines, sorted by name, and its content.
fn push_part(out: &mut Vec<u8>, part: &[u8]) -> Option<()> {
    let mut lines: Vec<(Vec<u8>, &[u8])> = Vec::new();
    let mut rest = part;
    let content = loop {
        let (line, after) = rest.split_at_checked(find(rest, b"\r\n")?)?;
        rest = after.strip_prefix(b"\r\n")?;
        if line.is_empty() {
            break rest;
        }
        let (name, value) = line.split_at_checked(line.iter().position(|b| *b == b':')?)?;
        let value = value.strip_prefix(b":")?.trim_ascii();
        // A folded line starts with white space, which is no token. Controls in a value, bare CR
        // and LF among them, are read differently by different readers.
        let plain = |b: &u8| *b == b'\t' || !b.is_ascii_control();
        if name.is_empty() || !name.iter().all(token) || !value.iter().all(plain) {
            return None;
        }
        lines.push((name.to_ascii_lowercase(), value));
    };
    order::sort_by(&mut lines, |a, b| a.0.cmp(&b.0));
    out.extend_from_slice(&(lines.len() as u64).to_be_bytes());
    for (name, value) in &lines {
        frame(out, name);
        frame(out, value);
    }
    frame(out, content);
    Some(())
}

/// RFC 9110 `tchar`.
fn token(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte)
}

/// Where the needle first stands. Needles are at most 72 octets, which bounds the work on text made of
/// near matches; a search library would be a dependency for that alone.
fn find(text: &[u8], needle: &[u8]) -> Option<usize> {
    let first = *needle.first()?;
    let mut from = 0usize;
    loop {
        let rest = text.get(from..)?;
        let at = rest.iter().position(|b| *b == first)?;
        if rest.get(at..)?.starts_with(needle) {
            return Some(from.saturating_add(at));
        }
        from = from.saturating_add(at).saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    const TYPE: &str = "multipart/form-data; boundary=";

    fn of(boundary: &str, template: &str) -> Option<Vec<u8>> {
        let body = template.replace('@', boundary).replace('\n', "\r\n");
        canonical(format!("{TYPE}{boundary}").as_bytes(), body.as_bytes())
    }

    const TWO: &str = "--@\nContent-Disposition: form-data; name=\"a\"\n\n1\n--@\n\
        Content-Disposition: form-data; name=\"f\"; filename=\"x.txt\"\nContent-Type: text/plain\n\n\
        line\n\nline\n--@--\n";

    #[test]
    fn the_boundary_does_not_count() {
        let base = of("AaB03x", TWO);
        assert!(base.is_some());
        assert_eq!(of("----WebKitFormBoundary7MA4YWxkTrZu0gW", TWO), base);
        assert_eq!(of("AaB03x", TWO.trim_end()), base);
        let body = TWO.replace('@', "q u").replace('\n', "\r\n");
        for content_type in [
            "multipart/form-data; boundary=\"q u\"",
            "multipart/form-data;Boundary=\"q u\" ",
        ] {
            assert_eq!(canonical(content_type.as_bytes(), body.as_bytes()), base);
        }
    }

    #[test]
    fn order_and_case_of_header_names_do_not_count() {
        let turned = TWO.replace(
            "Content-Disposition: form-data; name=\"f\"; filename=\"x.txt\"\nContent-Type: text/plain\n",
            "content-type:text/plain \nCONTENT-DISPOSITION: form-data; name=\"f\"; filename=\"x.txt\"\n",
        );
        assert_ne!(turned, TWO);
        assert_eq!(of("b", &turned), of("b", TWO));
    }

    #[test]
    fn all_else_counts() {
        let base = of("bound", TWO);
        for (from, to) in [
            ("name=\"a\"", "name=\"b\""),
            ("x.txt", "y.txt"),
            ("text/plain", "text/html"),
            ("\n\n1\n", "\n\n2\n"),
            ("\n\n1\n", "\n\n1\n\n"),
            ("line\n\nline", "line\nline"),
            ("Content-Type: text/plain\n", ""),
            (
                "Content-Type: text/plain\n",
                "Content-Type: text/plain\nX-Y: z\n",
            ),
            ("; filename=\"x.txt\"", ""),
        ] {
            let other = TWO.replace(from, to);
            assert_ne!(other, TWO);
            let other = of("bound", &other);
            assert!(other.is_some(), "{from}");
            assert_ne!(other, base, "{from}");
        }
    }

    #[test]
    fn order_and_number_of_parts_count() {
        let part = |n: &str| format!("--@\nContent-Disposition: form-data; name=\"{n}\"\n\n{n}\n");
        let body = |names: &[&str]| {
            let parts: String = names.iter().map(|n| part(n)).collect();
            of("b0", &format!("{parts}--@--")).unwrap()
        };
        assert_ne!(body(&["x", "y"]), body(&["y", "x"]));
        assert_ne!(body(&["x"]), body(&["x", "x"]));
    }

    #[test]
    fn a_part_may_have_no_headers_and_no_content() {
        assert!(of("zz", "--@\n\n\n--@--").is_some());
        assert_ne!(of("zz", "--@\n\n\n--@--"), of("zz", "--@\n\n\n\n--@--"));
    }

    #[test]
    fn what_readers_disagree_on_is_left_alone() {
        for (what, body) in [
            ("preamble", "hello\n--@\nA: b\n\n1\n--@--\n"),
            ("empty line first", "\n--@\nA: b\n\n1\n--@--\n"),
            ("epilogue", "--@\nA: b\n\n1\n--@--\nmore"),
            ("no end", "--@\nA: b\n\n1\n"),
            ("no end mark", "--@\nA: b\n\n1\n--@\n"),
            ("no part", "--@--\n"),
            ("padding", "--@ \nA: b\n\n1\n--@--\n"),
            ("padding at the end", "--@\nA: b\n\n1\n--@-- \n"),
            ("longer boundary inside", "--@\nA: b\n\n1\n--@x\n--@--\n"),
            ("boundary inside a line", "--@\nA: b\n\n1--@\n--@--\n"),
            ("folded header", "--@\nA: b\n c\n\n1\n--@--\n"),
            ("space before the colon", "--@\nA : b\n\n1\n--@--\n"),
            ("no colon", "--@\nA\n\n1\n--@--\n"),
            ("no name", "--@\n: b\n\n1\n--@--\n"),
            ("no empty line", "--@\nA: b\n--@--\n"),
            ("control", "--@\nA: b\u{0}\n\n1\n--@--\n"),
            ("other boundary", "--other\nA: b\n\n1\n--other--\n"),
            ("", ""),
        ] {
            assert_eq!(of("BOUND", body), None, "{what}");
        }
        let crlf = "--BB\r\nA: b\r\n\r\n1\r\n--BB--\r\n";
        let content_type = format!("{TYPE}BB");
        assert!(canonical(content_type.as_bytes(), crlf.as_bytes()).is_some());
        for (from, to) in [
            ("\r\n", "\n"),
            ("1\r\n--", "1\n--"),
            ("b\r\n", "b\n"),
            ("b\r", "b\rc\r"),
        ] {
            let body = crlf.replace(from, to);
            assert_eq!(
                canonical(content_type.as_bytes(), body.as_bytes()),
                None,
                "{body:?}"
            );
        }
    }

    #[test]
    fn only_a_plain_boundary_parameter_is_taken() {
        let seventy = "b".repeat(70);
        assert!(boundary(format!("{TYPE}{seventy}").as_bytes()).is_some());
        for value in [
            "multipart/form-data",
            "multipart/form-data;",
            "multipart/form-data; boundary",
            "multipart/form-data; boundary=",
            "multipart/form-data; boundary=\"\"",
            "multipart/form-data; boundary=a b",
            "multipart/form-data; boundary=\"a ",
            "multipart/form-data; boundary=\"a \"",
            "multipart/form-data; boundary=\"a\\\"b\"",
            "multipart/form-data; boundary=a; boundary=b",
            "multipart/form-data; boundary=a; charset=utf-8",
            "multipart/form-data; charset=utf-8; boundary=a",
            "multipart/form-data; boundary =a",
            "multipart/form-data; boundary*=utf-8''a",
            "multipart/form-data; boundary=a, multipart/form-data; boundary=b",
            &format!("{TYPE}{seventy}b"),
        ] {
            assert_eq!(boundary(value.as_bytes()), None, "{value}");
        }
    }
}
