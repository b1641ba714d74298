//! Noise, in every mode.

use super::super::*;
use super::*;
use proptest::prelude::*;

const MODES: [BodyMode; 7] = [
    BodyMode::Auto,
    BodyMode::Raw,
    BodyMode::Json,
    BodyMode::Form,
    BodyMode::Multipart,
    BodyMode::ContentDigest,
    BodyMode::None,
];

/// Noise, and noise made of what the readers look for.
fn body() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..120),
        "[a=&%+;F0\\[\\]]{0,40}".prop_map(String::into_bytes),
        "(--B|\r\n|\n|A: b|--|x){0,14}".prop_map(String::into_bytes),
        "[\\[\\]{}\",:0-9eE.+\\\\u-]{0,40}".prop_map(String::into_bytes),
    ]
}

/// All that is bound whatever the rule, from few values, so that two are often alike in most.
fn request() -> impl Strategy<Value = Case> {
    let one = |of: &[&'static str]| prop::sample::select(of.to_vec());
    (
        one(&["POST", "PUT", "PATCH"]),
        one(&["/a", "/a/b", "/ab"]),
        one(&["", "x=1", "x=2", "x=1&x=1"]),
        one(&["", "text/plain", "image/png"]),
        one(&["", "gzip", "br"]),
        prop::option::of(one(&["alice", "bob", ""])),
        one(&["", "a", "b", "ab"]),
    )
        .prop_map(|(method, path, query, media, coding, principal, body)| {
            let mut case = case(media, body).set(":method", method).path(path);
            let query = if query.is_empty() {
                String::new()
            } else {
                format!("?{query}")
            };
            case = case.set(":path", format!("{path}{query}"));
            if !coding.is_empty() {
                case = case.set("content-encoding", coding);
            }
            case.principal = principal.map(|p| p.as_bytes().to_vec());
            case
        })
}

/// What of a request counts, as it was put in.
fn bound(case: &Case) -> impl PartialEq + std::fmt::Debug + use<> {
    let mut lines = case.lines.clone();
    lines.retain(|(name, _)| name != ":authority");
    lines.sort();
    (
        lines,
        case.path.clone(),
        case.principal.clone(),
        case.body.clone(),
    )
}

proptest! {
    #[test]
    fn the_same_fingerprint_is_the_same_request(a in request(), b in request()) {
        let (first, second) = (a.fingerprint().unwrap(), b.fingerprint().unwrap());
        prop_assert_eq!(first.digest == second.digest, bound(&a) == bound(&b));
        let same = a.against(&b) == Comparison::Same;
        prop_assert_eq!(same, bound(&a) == bound(&b));
    }

    #[test]
    fn what_is_not_bound_never_counts(
        a in request(),
        lines in prop::collection::vec(("x-[a-z]{1,6}", prop::collection::vec(any::<u8>(), 0..8)), 0..6),
        host in "[a-z]{1,8}",
        turn in any::<prop::sample::Index>(),
        parameter in "[a-z]{1,4}=[a-z0-9]{1,4}",
    ) {
        let mut other = a.clone().set(":authority", host);
        other.lines.extend(lines);
        // A parameter of the media type; not of one that is not there.
        for (name, value) in &mut other.lines {
            if name == "content-type" {
                value.extend(format!("; {parameter}").bytes());
            }
        }
        let turn = turn.index(other.lines.len());
        other.lines.rotate_left(turn);
        prop_assert_eq!(a.against(&other), Comparison::Same);
        prop_assert_eq!(a.fingerprint().unwrap().digest, other.fingerprint().unwrap().digest);
    }

    #[test]
    fn a_boundary_never_counts(a in "[A-Za-z0-9]{1,20}", b in "[A-Za-z0-9]{1,20}", name in "[a-z]{1,8}") {
        prop_assert_eq!(multipart(&a, &name).against(&multipart(&b, &name)), Comparison::Same);
        let other = format!("{name}.");
        prop_assert_ne!(multipart(&a, &name).against(&multipart(&b, &other)), Comparison::Same);
    }

    #[test]
    fn nothing_panics_and_all_is_stable(
        body in body(),
        query in prop::collection::vec(any::<u8>(), 0..40),
        content_type in prop_oneof![
            Just(&b"application/json"[..]),
            Just(&b"multipart/form-data; boundary=B"[..]),
            Just(&b"application/x-www-form-urlencoded"[..]),
            Just(&b"\xff;\xfe"[..]),
        ],
        digest in prop::collection::vec(any::<u8>(), 0..40),
        pointer in "[/~01a-]{0,8}",
    ) {
        for mode in MODES {
            let case = case("", body.clone())
                .set("content-type", content_type)
                .set("content-digest", &digest)
                .set(":path", [b"/?".as_slice(), query.as_slice()].concat())
                .rule(|r| {
                    r.body = mode;
                    r.include = vec![pointer.clone()];
                    r.exclude = vec![pointer.clone()];
                });
            prop_assert_eq!(case.fingerprint(), case.fingerprint());
            let _ = case.with(|r| parts(&case.rule, r));
        }
    }

    #[test]
    fn raw_tells_all_octets_apart(a in body(), b in body()) {
        let of = |body: &[u8]| case("", body).fingerprint().unwrap().digest;
        prop_assert_eq!(of(&a) == of(&b), a == b);
    }

    #[test]
    fn query_order_of_distinct_names_never_counts(
        names in prop::collection::btree_set("[a-z%+]{1,4}", 1..6),
        turn in 0usize..6,
    ) {
        let members: Vec<String> = names.iter().enumerate().map(|(i, n)| format!("{n}={i}")).collect();
        let mut turned = members.clone();
        turned.rotate_left(turn % members.len());
        prop_assert_eq!(
            query::canonical(members.join("&").as_bytes()),
            query::canonical(turned.join("&").as_bytes())
        );
    }

    #[test]
    fn what_a_query_says_is_what_its_canonical_form_says(
        a in "[ab=%2BF+,\\[\\]]{0,10}", b in "[ab=%2BF+,\\[\\]]{0,10}",
    ) {
        // Equal canonical forms may come only of equal members, under both readings of `+`.
        if query::canonical(a.as_bytes()) == query::canonical(b.as_bytes()) {
            let read = |q: &str, plus: &str| {
                let mut members: Vec<Vec<u8>> = q
                    .replace('+', plus)
                    .split('&')
                    .map(|m| percent_encoding::percent_decode_str(m).collect())
                    .collect();
                members.sort();
                members
            };
            prop_assert_eq!(read(&a, " "), read(&b, " "));
            prop_assert_eq!(read(&a, "+"), read(&b, "+"));
        }
    }

    #[test]
    fn a_streamed_body_has_the_fingerprint_of_the_same_body_held(
        body in prop::collection::vec(any::<u8>(), 1..4000),
        cuts in prop::collection::vec(1usize..700, 1..40),
        sha in any::<bool>(),
    ) {
        let case = case("application/octet-stream", body.clone()).rule(|r| {
            if sha {
                r.digest = DigestAlgorithm::Sha256;
            }
        });
        let mut streamed = case.with(|r| Streamed::new(&case.rule, r));
        let mut rest = body.as_slice();
        for cut in cuts {
            let (piece, more) = rest.split_at(cut.min(rest.len()));
            streamed.update(piece);
            rest = more;
        }
        streamed.update(rest);
        prop_assert_eq!(streamed.length(), body.len() as u64);
        prop_assert_eq!(Ok(streamed.finish()), case.fingerprint());
    }

    #[test]
    fn beginnings_are_the_same_exactly_where_their_octets_and_lengths_are(
        a in prop::collection::vec(0u8..3, 8..12),
        b in prop::collection::vec(0u8..3, 8..12),
        octets in 4usize..8,
        told in any::<[bool; 2]>(),
    ) {
        let head = |body: &[u8], told: bool| {
            let beginning = case("", &body[..octets]);
            let declared = told.then_some(body.len() as u64);
            beginning.with(|r| head_of(&beginning.rule, r, declared))
        };
        let (first, second) = (head(&a, told[0]), head(&b, told[1]));
        let lengths_differ = told == [true, true] && a.len() != b.len();
        let expected = if a[..octets] == b[..octets] && !lengths_differ {
            Comparison::Same
        } else {
            Comparison::Different
        };
        prop_assert_eq!(first.compare(&second), expected);
        // Against a whole body it never says more than it knows.
        let whole = case("", b.clone()).fingerprint().unwrap();
        let expected = if told[0] && a.len() != b.len() {
            Comparison::Different
        } else {
            Comparison::NeedsBody
        };
        prop_assert_eq!(whole.compare(&first), expected);
        // As the stored one was made, from the whole: the same question, answered.
        let rule = FingerprintRule::default();
        let again = case("", b.clone());
        let like = again.with(|r| head_like(&first, &rule, r, Some(b.len() as u64))).unwrap();
        let same = a[..octets] == b[..octets] && (!told[0] || a.len() == b.len());
        prop_assert_eq!(first.compare(&like) == Comparison::Same, same);
    }
}
