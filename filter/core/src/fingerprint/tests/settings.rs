//! Principals, settings, algorithms, limits, reports.

use super::super::*;
use super::*;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

#[test]
fn content_digest_stands_for_the_body() {
    let sha256 = |c: &str| format!("sha-256=:{}=:", c.repeat(42) + "A");
    let sha512 = format!("sha-512=:{}==:", "A".repeat(86));
    let of = |digest: &str, body: &str| {
        let case = json(body).rule(|r| {
            r.body = BodyMode::ContentDigest;
            r.max_body = Some(0);
        });
        case.set("content-digest", digest)
    };
    let base = of(&sha256("A"), "1");
    let fingerprint = base.fingerprint().unwrap();
    assert_eq!(
        (fingerprint.form, fingerprint.length),
        (Form::ContentDigest, 0)
    );
    assert_eq!(base.against(&of(&sha256("A"), "2")), Comparison::Same);
    assert_eq!(
        base.against(&of(&format!("{sha512}, {}", sha256("A")), "1")),
        Comparison::Same
    );
    assert_eq!(base.against(&of(&sha256("B"), "1")), Comparison::Different);
    assert_eq!(base.against(&of(&sha512, "1")), Comparison::Incomparable);
    assert_eq!(
        of("sha-256=1", "1").fingerprint(),
        Err(FingerprintError::MalformedContentDigest)
    );
    assert_eq!(
        of("md5=:AA==:", "").fingerprint(),
        Err(FingerprintError::MissingContentDigest)
    );
}

#[test]
fn another_principal_comes_before_all_else() {
    let base = json("1").principal("alice");
    for fresh in [
        json("1").principal("bob"),
        json("2").principal("bob"),
        json("1"),
        json("1").principal(""),
        json("1")
            .principal("bob")
            .rule(|r| r.digest = DigestAlgorithm::Sha256),
        json("1").principal("bob").rule(|r| r.body = BodyMode::Raw),
    ] {
        assert_eq!(base.against(&fresh), Comparison::OtherPrincipal);
        assert_eq!(fresh.against(&base), Comparison::OtherPrincipal);
    }
    assert_eq!(
        base.against(&json("2").principal("alice")),
        Comparison::Different
    );
    // Bound into the digest itself as well.
    let digest = |case: Case| case.fingerprint().unwrap().digest;
    assert_ne!(digest(base), digest(json("1").principal("bob")));
}

#[test]
fn other_settings_cannot_be_compared() {
    let base = json("1").rule(|r| r.headers = vec!["x-a".into(), "x-b".into()]);
    type Edit = fn(&mut FingerprintRule);
    let edits: [Edit; 6] = [
        |r| r.body = BodyMode::Json,
        |r| r.include = vec!["/a".into()],
        |r| r.exclude = vec!["/a".into()],
        |r| r.headers = vec!["x-a".into()],
        |r| r.headers = vec!["x-ax-b".into()],
        |r| r.digest = DigestAlgorithm::Sha256,
    ];
    for edit in edits {
        assert_eq!(
            base.against(&base.clone().rule(edit)),
            Comparison::Incomparable
        );
        assert_eq!(
            base.clone().rule(edit).against(&base),
            Comparison::Incomparable
        );
    }
    let include = |list: &[&str]| {
        let list = list.iter().map(|p| (*p).to_owned()).collect();
        json(r#"{"a":1,"b":2}"#).rule(|r| r.include = list)
    };
    assert_eq!(
        include(&["/a", "/b"]).against(&include(&["/a/b"])),
        Comparison::Incomparable
    );
    // Another notation of the same settings, and a limit, are not other settings.
    assert_eq!(
        include(&["/a", "/b"]).against(&include(&["/b", "/a", "/a"])),
        Comparison::Same
    );
    let same: [Edit; 2] = [
        |r| r.headers = vec!["X-B".into(), "x-a".into(), "x-b".into()],
        |r| r.max_body = Some(7),
    ];
    for edit in same {
        assert_eq!(base.against(&base.clone().rule(edit)), Comparison::Same);
    }
    let mut stored = base.fingerprint().unwrap();
    stored.version = 2;
    assert_eq!(
        stored.compare(&base.fingerprint().unwrap()),
        Comparison::Incomparable
    );
}

#[test]
fn a_changed_algorithm_still_compares() {
    let old = json("1").rule(|r| r.digest = DigestAlgorithm::Sha256);
    let stored = old.fingerprint().unwrap();
    let like = |case: &Case| case.with(|r| compute_like(&stored, &case.rule, r));
    let compare = |case: &Case| stored.compare(&like(case).unwrap());
    assert_eq!(compare(&json("1")), Comparison::Same);
    assert_eq!(compare(&json("2")), Comparison::Different);
    assert_eq!(
        compare(&json("1").principal("p")),
        Comparison::OtherPrincipal
    );
    assert_eq!(like(&json("1").rule(|r| r.body = BodyMode::Raw)), None);
    assert_eq!(like(&json("1").rule(|r| r.max_body = Some(0))), None);
    let mut later = stored.clone();
    later.version = 2;
    assert_eq!(
        json("1").with(|r| compute_like(&later, &FingerprintRule::default(), r)),
        None
    );
}

#[test]
fn the_limit_is_inclusive() {
    let of = |body: &str| json(body).rule(|r| r.max_body = Some(4)).fingerprint();
    assert!(of("1234").is_ok());
    assert_eq!(of("12345"), Err(FingerprintError::TooLarge { limit: 4 }));
    let unread = json("12345").rule(|r| {
        r.max_body = Some(4);
        r.body = BodyMode::None;
    });
    assert!(unread.fingerprint().is_ok());
}

#[test]
fn reports_are_bounded_and_printable() {
    let media_type = |value: &[u8]| {
        json("1")
            .set("content-type", value)
            .fingerprint()
            .unwrap()
            .media_type
    };
    assert_eq!(media_type(b"Text/Plain ; charset=x"), "text/plain");
    assert_eq!(media_type(b"a/\xff\x01\n b"), "a/????b");
    assert_eq!(
        media_type("x".repeat(1000).as_bytes()).len(),
        MAX_MEDIA_TYPE
    );
    assert_eq!(json(" [1]").fingerprint().unwrap().length, 4);
}

#[test]
fn parts_name_everything_and_show_nothing() {
    let secret = json(r#"{"card":"4111"}"#)
        .principal("alice")
        .rule(|r| r.headers = vec!["x-currency".into()])
        .set("x-currency", "EUR");
    let parts = |case: &Case| case.with(|r| parts(&case.rule, r)).unwrap();
    let before = parts(&secret);
    let names: Vec<_> = before.iter().map(|p| p.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "method",
            "path",
            "query",
            "media-type",
            "content-encoding",
            "principal",
            "header:x-currency",
            "body"
        ]
    );
    assert_eq!(before.last().unwrap().form, Some(Form::Json));
    let shown = format!("{before:?}");
    assert!(["4111", "alice", "EUR"].iter().all(|s| !shown.contains(s)));

    // Exactly the part that changed has another digest.
    for (changed, case) in [
        ("method", secret.clone().set(":method", "PUT")),
        ("path", secret.clone().path("/x")),
        ("query", secret.clone().set(":path", "/?z")),
        ("principal", secret.clone().principal("bob")),
        ("header:x-currency", secret.clone().set("x-currency", "USD")),
        ("body", secret.clone().body("{}")),
    ] {
        let after = parts(&case);
        let differing: Vec<_> = before
            .iter()
            .zip(&after)
            .filter(|(a, b)| a.digest != b.digest)
            .map(|(a, _)| a.name.as_str())
            .collect();
        assert_eq!(differing, [changed]);
    }
}

/// Records outlive releases: these may change only with [`VERSION`]. The SHA-256 one was also computed
/// from the layout in the module's documentation by other means.
#[test]
fn version_1_is_frozen() {
    let full = json(r#"{"b":1.0,"a":"x"}"#)
        .principal("alice")
        .rule(|r| r.headers = vec!["x-currency".into()])
        .set("x-currency", "EUR");
    let shown = |case: &Case| {
        let f = case.fingerprint().unwrap();
        (
            hex::encode(f.digest),
            hex::encode(f.settings),
            f.principal.map(hex::encode),
        )
    };
    let sha256 = full.clone().rule(|r| r.digest = DigestAlgorithm::Sha256);
    let short = ("42b5d128243c826e", "e9cc86a9182ae2ba");
    assert_eq!(
        shown(&full),
        (
            "336fc3c7ba33140baec119a0777d1d5ddd963f6a9af68cab19398bf6c42b44c3".into(),
            short.0.into(),
            Some(short.1.into())
        )
    );
    assert_eq!(
        shown(&sha256),
        (
            "f33513f3406c3d9ff00807f1f3a396efde3f94343ec68ac8ad4436449648c7a3".into(),
            short.0.into(),
            Some(short.1.into())
        )
    );
}

#[test]
fn form_names_read_back() {
    for form in Form::ALL {
        assert_eq!(Form::from_name(form.as_str()), Some(form));
    }
    assert_eq!(Form::from_name("other"), None);
}

#[test]
fn json_is_read_up_to_the_greatest_canonical_length() {
    let form = |length: u64| {
        let text = "1".repeat(usize::try_from(length).unwrap() - 2);
        json(&format!("\"{text}\"")).fingerprint().unwrap().form
    };
    assert_eq!(form(CANONICAL_MAX), Form::Json);
    assert_eq!(form(CANONICAL_MAX + 1), Form::Raw);
}

#[test]
fn a_whole_body_differs_from_a_beginning_that_is_no_shorter() {
    let begun = case("", "abcd").with(|r| head_of(&FingerprintRule::default(), r, None));
    let whole = |body: &str| case("", body).fingerprint().unwrap();
    for (body, begins_with_it, is_begun) in [
        ("abc", Comparison::Different, Comparison::Different),
        ("abcd", Comparison::Different, Comparison::Different),
        ("abcde", Comparison::Incomparable, Comparison::NeedsBody),
    ] {
        assert_eq!(begun.compare(&whole(body)), begins_with_it, "{body}");
        assert_eq!(whole(body).compare(&begun), is_begun, "{body}");
    }
}
