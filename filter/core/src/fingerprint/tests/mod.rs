//! What is the same request, and what is not.

#[cfg(not(target_arch = "wasm32"))]
mod properties;
mod settings;

use super::*;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

/// A request in owned parts, to be changed one at a time.
#[derive(Clone, Debug)]
struct Case {
    rule: FingerprintRule,
    lines: Vec<(String, Vec<u8>)>,
    path: Vec<u8>,
    principal: Option<Vec<u8>>,
    body: Vec<u8>,
}

fn case(content_type: &str, body: impl Into<Vec<u8>>) -> Case {
    let lines = [
        (":method", "POST"),
        (":path", "/v1/orders/1/charges?a=1&b=2"),
        (":authority", "api.example"),
        ("content-type", content_type),
    ];
    Case {
        rule: FingerprintRule::default(),
        lines: lines
            .iter()
            .filter(|(_, value)| !value.is_empty())
            .map(|(n, v)| ((*n).to_owned(), v.as_bytes().to_vec()))
            .collect(),
        path: b"/v1/orders/1/charges".to_vec(),
        principal: None,
        body: body.into(),
    }
}

const JSON: &str = "application/json";
const FORM: &str = "application/x-www-form-urlencoded";

impl Case {
    fn set(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.lines.retain(|(n, _)| n != name);
        self.add(name, value)
    }

    fn add(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.lines.push((name.into(), value.as_ref().to_vec()));
        self
    }

    fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    fn path(mut self, path: &str) -> Self {
        self.path = path.into();
        self
    }

    fn principal(mut self, principal: &str) -> Self {
        self.principal = Some(principal.into());
        self
    }

    fn rule(mut self, edit: impl FnOnce(&mut FingerprintRule)) -> Self {
        edit(&mut self.rule);
        self
    }

    fn with<T>(&self, f: impl FnOnce(&Request<'_>) -> T) -> T {
        let headers: Headers = self.lines.iter().cloned().collect();
        f(&Request {
            headers: &headers,
            canonical_path: &self.path,
            principal: self.principal.as_deref(),
            body: &self.body,
        })
    }

    fn fingerprint(&self) -> Result<Fingerprint, FingerprintError> {
        self.with(|r| compute(&self.rule, r))
    }

    fn against(&self, fresh: &Self) -> Comparison {
        let stored = self.fingerprint().unwrap();
        stored.compare(&fresh.fingerprint().unwrap())
    }

    fn form(&self) -> Form {
        self.fingerprint().unwrap().form
    }
}

fn json(body: &str) -> Case {
    case(JSON, body)
}

fn multipart(boundary: &str, name: &str) -> Case {
    case(
        &format!("multipart/form-data; boundary={boundary}"),
        format!(
            "--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n1\r\n--{boundary}--\r\n"
        ),
    )
}

#[test]
fn the_same_request() {
    let base = json(r#"{"a":1,"b":[1,2]}"#);
    for (what, a, b) in [
        ("itself", base.clone(), base.clone()),
        (
            "member order",
            base.clone(),
            base.clone().body(r#"{"b":[1,2],"a":1}"#),
        ),
        (
            "white space",
            base.clone(),
            base.clone().body(" {\"a\" : 1, \"b\":[1, 2]}\n"),
        ),
        ("spelling of a number", json("[1]"), json("[1.0]")),
        (
            "spelling of a string",
            json(r#"["\u0061"]"#),
            json(r#"["a"]"#),
        ),
        (
            "query order",
            base.clone(),
            base.clone().set(":path", "/v1/orders/1/charges?b=2&a=1"),
        ),
        (
            "query escapes",
            base.clone(),
            base.clone().set(":path", "/v1/orders/1/charges?%61=1&b=2"),
        ),
        (
            "media type parameters",
            base.clone(),
            base.clone()
                .set("content-type", "Application/JSON; charset=utf-8"),
        ),
        (
            "identity",
            base.clone(),
            base.clone().set("content-encoding", "Identity"),
        ),
        (
            "codings on two lines",
            base.clone().set("content-encoding", "aes128gcm, GZIP"),
            base.clone()
                .add("content-encoding", "aes128gcm")
                .add("content-encoding", "gzip"),
        ),
        (
            "other headers",
            base.clone(),
            base.clone().set("x-request-id", "7").set("user-agent", "z"),
        ),
        ("boundary", multipart("one", "a"), multipart("other", "a")),
        ("form order", case(FORM, "a=1&b=2"), case(FORM, "b=2&a=1")),
        ("form escapes", case(FORM, "a=x+y"), case(FORM, "%61=x%20y")),
        (
            "principal",
            base.clone().principal("p"),
            base.clone().principal("p"),
        ),
        (
            "no query, empty query",
            json("1").set(":path", "/x"),
            json("1").set(":path", "/x?"),
        ),
    ] {
        assert_eq!(a.against(&b), Comparison::Same, "{what}");
        assert_eq!(
            a.fingerprint().unwrap().digest,
            b.fingerprint().unwrap().digest,
            "{what}"
        );
    }
}

#[test]
fn another_request() {
    let base = json(r#"{"a":1,"b":[1,2]}"#);
    let signed = |lines: &[&str]| {
        let case = base
            .clone()
            .rule(|r| r.headers = vec!["x-h".into(), "x-i".into()]);
        lines.iter().fold(case, |case, line| case.add("x-h", line))
    };
    for (what, a, b) in [
        (
            "body",
            base.clone(),
            base.clone().body(r#"{"a":2,"b":[1,2]}"#),
        ),
        ("no body", base.clone(), base.clone().body("")),
        (
            "query",
            base.clone(),
            base.clone().set(":path", "/v1/orders/1/charges?a=1&b=3"),
        ),
        (
            "no query",
            base.clone(),
            base.clone().set(":path", "/v1/orders/1/charges"),
        ),
        (
            "template instance",
            base.clone(),
            base.clone().path("/v1/orders/2/charges"),
        ),
        (
            "media type",
            base.clone(),
            base.clone().set("content-type", "application/vnd.x+json"),
        ),
        ("no media type", case("text/plain", "x"), case("", "x")),
        (
            "two media types",
            base.clone(),
            base.clone().add("content-type", JSON),
        ),
        (
            "media types that are not text",
            base.clone().set("content-type", b"a/\xff"),
            base.clone().set("content-type", b"a/\xfe"),
        ),
        ("method", base.clone(), base.clone().set(":method", "PUT")),
        (
            "content encoding",
            base.clone(),
            base.clone().set("content-encoding", "gzip"),
        ),
        (
            "order of codings",
            base.clone().set("content-encoding", "a, b"),
            base.clone().set("content-encoding", "b, a"),
        ),
        ("1 and \"1\"", json("[1]"), json(r#"["1"]"#)),
        ("null and missing", json(r#"{"a":null}"#), json("{}")),
        ("array order", json("[1,2]"), json("[2,1]")),
        ("true and 1", json("[true]"), json("[1]")),
        ("false and null", json("[false]"), json("[null]")),
        ("{} and []", json("{}"), json("[]")),
        (
            "nesting",
            json(r#"{"a":{"b":1}}"#),
            json(r#"{"a":{},"b":1}"#),
        ),
        (
            "unnormalised text",
            json("[\"\u{c5}\"]"),
            json("[\"A\u{30a}\"]"),
        ),
        (
            "long numbers",
            json("[9007199254740993]"),
            json("[9007199254740992]"),
        ),
        (
            "more than long numbers",
            json("[18446744073709551617]"),
            json("[18446744073709551616]"),
        ),
        (
            "small digits",
            json("[0.10000000000000000001]"),
            json("[0.1]"),
        ),
        ("too large for a double", json("[1e400]"), json("[1e401]")),
        ("too small for a double", json("[1e-400]"), json("[0]")),
        ("duplicates", json(r#"{"a":1,"a":2}"#), json(r#"{"a":2}"#)),
        (
            "order of duplicates",
            json(r#"{"a":1,"a":2}"#),
            json(r#"{"a":2,"a":1}"#),
        ),
        (
            "lone surrogates",
            json(r#"["\ud800"]"#),
            json(r#"["\ud801"]"#),
        ),
        (
            "octets that are not text",
            json("x").body(b"[\"\xff\"]".to_vec()),
            json("x").body(b"[\"\xfe\"]".to_vec()),
        ),
        ("byte order mark", json("{}"), json("\u{feff}{}")),
        (
            "form multiplicity",
            case(FORM, "a=1"),
            case(FORM, "a=1&a=1"),
        ),
        (
            "order of equal names",
            case(FORM, "a=1&a=2"),
            case(FORM, "a=2&a=1"),
        ),
        ("form octets", case(FORM, "a=%FF"), case(FORM, "a=%FE")),
        (
            "query octets",
            base.clone().set(":path", "/?a=%FF"),
            base.clone().set(":path", "/?a=%FE"),
        ),
        ("broken escapes", case(FORM, "a=%zz"), case(FORM, "a=%25zz")),
        ("part name", multipart("one", "a"), multipart("one", "b")),
        (
            "raw octets",
            case("text/plain", "a b"),
            case("text/plain", "a  b"),
        ),
        ("one line and two", signed(&["a, b"]), signed(&["a", "b"])),
        ("order of lines", signed(&["a", "b"]), signed(&["b", "a"])),
        ("number of lines", signed(&["a"]), signed(&["a", "a"])),
        ("empty line and none", signed(&[""]), signed(&[])),
        ("line split", signed(&["ab", "c"]), signed(&["a", "bc"])),
        (
            "same value, other header",
            signed(&["a"]),
            signed(&[]).add("x-i", "a"),
        ),
    ] {
        assert_eq!(a.against(&b), Comparison::Different, "{what}");
        assert_eq!(b.against(&a), Comparison::Different, "{what}");
    }
}

#[test]
fn parts_do_not_run_into_each_other() {
    let at = |method: &str, path: &str| json("1").set(":method", method).path(path);
    assert_eq!(
        at("POST", "/x").against(&at("POS", "T/x")),
        Comparison::Different
    );
    let octets = |path: &str, body: &str| case("", body).path(path);
    assert_eq!(
        octets("/xy", "z").against(&octets("/x", "yz")),
        Comparison::Different
    );
    // A body that spells the framing of another request.
    let inner = octets("/x", "body\0\0\0\0\0\0\0\u{3}raw");
    assert_eq!(octets("/x", "").against(&inner), Comparison::Different);
}

#[test]
fn the_same_octets_under_another_boundary_are_not_the_same() {
    // Not canonical (a preamble), and each boundary finds other parts.
    let body = "x\r\n--A\r\nX: 1\r\n\r\n1\r\n--A--\r\n--B\r\nX: 1\r\n\r\n2\r\n--B--\r\n";
    for media_type in [
        "multipart/form-data",
        "multipart/mixed",
        "Multipart/Related",
    ] {
        let of = |boundary: &str| case(&format!("{media_type}; boundary={boundary}"), body);
        assert_eq!(of("A").form(), Form::Raw);
        assert_eq!(of("A").against(&of("A")), Comparison::Same);
        assert_eq!(of("A").against(&of("B")), Comparison::Different);
    }
}

#[test]
fn the_form_says_what_was_done() {
    let gzip = |case: Case| case.set("content-encoding", "gzip");
    for (expected, case) in [
        (Form::Empty, json("")),
        (Form::Empty, case("", "")),
        (Form::Empty, json("").rule(|r| r.body = BodyMode::Raw)),
        (Form::Json, json("1")),
        (Form::Json, case("application/vnd.x+json; v=1", "1")),
        (
            Form::Json,
            case("text/plain", "1").rule(|r| r.body = BodyMode::Json),
        ),
        (Form::Raw, json("{")),
        (Form::Raw, json("{").rule(|r| r.body = BodyMode::Json)),
        (Form::Raw, json(" ")),
        (Form::Raw, json("1").rule(|r| r.body = BodyMode::Raw)),
        (Form::Raw, json("1").add("content-type", "text/plain")),
        (Form::Raw, gzip(json("1"))),
        (Form::Raw, gzip(json("1")).rule(|r| r.body = BodyMode::Json)),
        (Form::Raw, case("application/json-seq", "1")),
        (Form::Raw, case("", "1")),
        (Form::FormUrlencoded, case(FORM, "a=1")),
        (
            Form::FormUrlencoded,
            json("a=1").rule(|r| r.body = BodyMode::Form),
        ),
        (Form::Raw, case(FORM, "a=%")),
        (Form::Multipart, multipart("x", "a")),
        (
            Form::Raw,
            multipart("x", "a").set("content-type", "multipart/form-data"),
        ),
        (
            Form::Raw,
            multipart("x", "a").set("content-type", "multipart/mixed; boundary=x"),
        ),
        (Form::Unread, json("1").rule(|r| r.body = BodyMode::None)),
    ] {
        assert_eq!(
            case.form(),
            expected,
            "{:?}",
            String::from_utf8_lossy(&case.body)
        );
    }
}

#[test]
fn a_body_that_is_not_looked_at_does_not_count() {
    let of = |body: &str| json(body).rule(|r| r.body = BodyMode::None);
    assert_eq!(of("1").against(&of("2")), Comparison::Same);
    assert_eq!(
        of("1").against(&of("1").set(":method", "PUT")),
        Comparison::Different
    );
}

#[test]
fn include_and_exclude_apply_to_canonical_json_only() {
    let amount = |body: &str| json(body).rule(|r| r.include = vec!["/amount".into()]);
    assert_eq!(
        amount(r#"{"amount":1,"t":1}"#).against(&amount(r#"{"amount":1,"t":2}"#)),
        Comparison::Same
    );
    assert_eq!(
        amount(r#"{"amount":1,"t":1,"t":1}"#).against(&amount(r#"{"amount":1,"t":2,"t":2}"#)),
        Comparison::Different
    );
    let timeless = |body: &str| json(body).rule(|r| r.exclude = vec!["/t".into()]);
    assert_eq!(
        timeless(r#"{"a":1,"t":1}"#).against(&timeless(r#"{"a":1}"#)),
        Comparison::Same
    );
    assert_eq!(
        timeless("[1").against(&timeless("[1 ")),
        Comparison::Different
    );
    // An included part is not taken for the document that spells it.
    let raw = amount(r#"{"amount":1}"#).fingerprint().unwrap();
    assert_ne!(raw.digest, json("1").fingerprint().unwrap().digest);
}
