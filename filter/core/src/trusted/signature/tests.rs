use super::super::derived::{Derived, key_hash, lines};
use super::*;
use crate::ids::OperationId;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

const NOW: u64 = 1_700_000_000;
const PATH: &[u8] = b"/v1/charges?x=1";

/// Secrets made from a label, so that none is written down.
fn secret(label: &str) -> Secret {
    Secret::new(hex::encode(key_hash(label.as_bytes()))).unwrap()
}

fn signer(active: &str, previous: Option<&str>) -> Signer {
    Signer {
        active: secret(active),
        previous: previous.map(secret),
        namespace: "default".into(),
    }
}

fn request(signer: &Signer) -> Vec<Line> {
    let mut request = vec![
        (b":method".to_vec(), b"POST".to_vec()),
        (b":path".to_vec(), PATH.to_vec()),
        (b"x-other".to_vec(), b"1".to_vec()),
    ];
    request.extend(lines(
        &Derived {
            operation: &OperationId([7; 32]),
            attempt: "attempt-1",
            generation: 2,
            tenant: b"acme",
            route: "charges",
            key_hash: &key_hash(b"key"),
            claimed_at_unix_ms: NOW * 1000,
            proxy: "edge-1",
        },
        Some(signer),
        b"POST",
        PATH,
        NOW,
    ));
    request
}

fn verify(signer: &Signer, request: Vec<Line>) -> Verification {
    signer.verify(&Headers::new(request), b"POST", PATH, NOW)
}

#[test]
fn hmac_is_the_one_of_rfc_4231() {
    // Test cases 1, 2 and 6 (a key longer than the block).
    for (key, data, expected) in [
        (
            vec![0x0b; 20],
            &b"Hi There"[..],
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7",
        ),
        (
            b"Jefe".to_vec(),
            b"what do ya want for nothing?",
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
        ),
        (
            vec![0xaa; 131],
            b"Test Using Larger Than Block-Size Key - Hash Key First",
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
        ),
    ] {
        let mac = Secret(key).mac(data).unwrap();
        assert_eq!(hex::encode(mac.finalize().into_bytes()), expected);
    }
}

#[test]
fn the_signed_string_is_the_documented_one() {
    let text = signer("a", None).text(
        &[(b"x-idempo-operation", b"ab")],
        b"POST",
        b"/v1/charges",
        NOW,
    );
    assert_eq!(
        String::from_utf8(text).unwrap(),
        "19:idempo-signature-v1\n10:1700000000\n7:default\n4:POST\n11:/v1/charges\n\
         18:x-idempo-operation\n2:ab\n"
    );
}

/// For receivers in other languages: any change here breaks them.
#[test]
fn a_pinned_vector() {
    let value = signer("vector", None).sign(
        &[(b"x-idempo-operation".to_vec(), b"ab".to_vec())],
        b"POST",
        b"/v1/charges",
        NOW,
    );
    assert_eq!(
        value,
        "t=1700000000,v1=1bee1637c475580c1d8ed5c057dee0c1316422dae168aebdab7809e6ed51528b"
    );
}

#[test]
fn what_was_signed_verifies_in_any_order_of_lines() {
    let signer = signer("a", None);
    assert_eq!(verify(&signer, request(&signer)), Verification::Valid);
    let mut reversed = request(&signer);
    reversed.reverse();
    assert_eq!(verify(&signer, reversed), Verification::Valid);
    assert_eq!(
        verify(
            &signer,
            vec![(b"x-idempo-operation".to_vec(), b"1".to_vec())]
        ),
        Verification::Absent
    );
}

#[test]
fn every_bit_of_every_line_counts() {
    let signer = signer("a", None);
    let whole = request(&signer);
    for (index, (name, value)) in whole.iter().enumerate() {
        if !is_derived(name) {
            continue;
        }
        for bit in 0..value.len() * 8 {
            let mut bad = whole.clone();
            bad[index].1[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(verify(&signer, bad), Verification::Invalid);
        }
        for bit in (0..name.len() * 8).filter(|bit| bit % 8 != 5) {
            // Bit 5 of a letter is its case, which names do not have.
            let mut bad = whole.clone();
            bad[index].0[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(verify(&signer, bad), Verification::Valid, "{name:?} {bit}");
        }
        let mut less = whole.clone();
        less.remove(index);
        assert_ne!(verify(&signer, less), Verification::Valid);
        let mut twice = whole.clone();
        twice.push(whole[index].clone());
        assert_eq!(verify(&signer, twice), Verification::Invalid);
    }
}

#[test]
fn added_lines_fail_in_either_spelling() {
    let signer = signer("a", None);
    for name in [
        "x-idempo-zzz",
        "x_idempo_tenant",
        "x-idempo_tenant",
        "x_idempo_signature",
    ] {
        let mut more = request(&signer);
        more.push((name.into(), b"evil".to_vec()));
        assert_eq!(verify(&signer, more), Verification::Invalid, "{name}");
    }
    let mut many = request(&signer);
    many.extend((0..10_000).map(|n| (format!("x-idempo-{n}").into_bytes(), Vec::new())));
    assert_eq!(verify(&signer, many), Verification::Invalid);
}

#[test]
fn a_repeated_line_fails_even_where_somebody_signed_it() {
    let signer = signer("a", None);
    let line = || (b"x-idempo-tenant".to_vec(), b"acme".to_vec());
    for (lines, expected) in [
        (vec![line()], Verification::Valid),
        (vec![line(), line()], Verification::Invalid),
    ] {
        let value = signer.sign(&lines, b"POST", PATH, NOW);
        let mut request = lines;
        request.push((SIGNATURE_HEADER.into(), value.into_bytes()));
        assert_eq!(verify(&signer, request), expected);
    }
}

#[test]
fn more_lines_than_a_filter_writes_are_not_even_hashed() {
    let signer = signer("a", None);
    for (count, expected) in [
        (MAX_LINES, Verification::Valid),
        (MAX_LINES + 1, Verification::Invalid),
    ] {
        let mut request: Vec<Line> = (0..count)
            .map(|n| (format!("x-idempo-{n}").into_bytes(), Vec::new()))
            .collect();
        let value = signer.sign(&request, b"POST", PATH, NOW);
        request.push((SIGNATURE_HEADER.into(), value.into_bytes()));
        assert_eq!(verify(&signer, request), expected, "{count}");
    }
}

#[test]
fn method_path_namespace_and_secret_are_bound() {
    let signer = signer("a", None);
    let headers = Headers::new(request(&signer));
    assert_eq!(
        signer.verify(&headers, b"PUT", PATH, NOW),
        Verification::Invalid
    );
    assert_eq!(
        signer.verify(&headers, b"POST", b"/v1/charges", NOW),
        Verification::Invalid
    );
    let mut other = signer.clone();
    other.namespace = "staging".into();
    assert_eq!(
        other.verify(&headers, b"POST", PATH, NOW),
        Verification::Invalid
    );
    let other = super::tests::signer("b", None);
    assert_eq!(
        other.verify(&headers, b"POST", PATH, NOW),
        Verification::Invalid
    );
}

#[test]
fn rotation_verifies_both_and_signs_with_the_active() {
    let (old, both, new) = (signer("a", None), signer("b", Some("a")), signer("b", None));
    assert_eq!(verify(&both, request(&old)), Verification::Valid);
    assert_eq!(verify(&both, request(&new)), Verification::Valid);
    assert_eq!(verify(&new, request(&both)), Verification::Valid);
    assert_eq!(verify(&old, request(&both)), Verification::Invalid);
}

#[test]
fn clocks_may_differ_by_the_tolerance() {
    let signer = signer("a", None);
    let headers = Headers::new(request(&signer));
    let at = |now| signer.verify(&headers, b"POST", PATH, now);
    assert_eq!(at(NOW + TOLERANCE_S), Verification::Valid);
    assert_eq!(at(NOW - TOLERANCE_S), Verification::Valid);
    assert_eq!(at(NOW + TOLERANCE_S + 1), Verification::Invalid);
    assert_eq!(at(NOW - TOLERANCE_S - 1), Verification::Invalid);
    assert_eq!(at(0), Verification::Invalid);
    assert_eq!(at(u64::MAX), Verification::Invalid);
}

#[test]
fn several_digests_one_of_which_fits() {
    let signer = signer("a", None);
    let mut request = request(&signer);
    let value = String::from_utf8(request.pop().unwrap().1).unwrap();
    let (time, digest) = value.split_once(",v1=").unwrap();
    let junk = "0".repeat(64);
    let with = |value: String| {
        let mut request = request.clone();
        request.push((SIGNATURE_HEADER.into(), value.into_bytes()));
        verify(&signer, request)
    };
    assert_eq!(
        with(format!("{time},v1={junk},v1={digest},v2=later")),
        Verification::Valid
    );
    assert_eq!(with(format!("v1={digest},{time}")), Verification::Valid);
    for bad in [
        String::new(),
        time.to_owned(),
        format!("v1={digest}"),
        format!("{time},{time},v1={digest}"),
        format!("{time},v1={digest},"),
        format!("{time}, v1={digest}"),
        format!("t=0{NOW},v1={digest}"),
        format!("t=+{NOW},v1={digest}"),
        format!("t=99999999999999999999,v1={digest}"),
        format!("{time},v1={}", digest.to_uppercase()),
        format!("{time},v1={}", &digest[..62]),
        format!("{time},v1="),
        format!("{time},v1={junk}"),
        format!(
            "{time}{},v1={digest}",
            format!(",v1={junk}").repeat(MAX_DIGESTS)
        ),
        format!("{time},v1={digest},v2={}", "x".repeat(MAX_HEADER)),
    ] {
        assert_eq!(with(bad.clone()), Verification::Invalid, "{bad}");
    }
}

#[test]
fn secrets_are_judged_and_hidden() {
    assert_eq!(
        Secret::new("fifteen octets.").unwrap_err(),
        SecretError::TooShort
    );
    assert_eq!(
        Secret::new("a secret of 16+ octets\n").unwrap_err(),
        SecretError::WhiteSpace
    );
    let mut shown = signer("a", Some("b"));
    shown.active = Secret::new("correct horse battery").unwrap();
    let shown = format!("{shown:?}");
    assert!(shown.contains("hidden") && !shown.contains("horse"));
    // Nor the octets as numbers.
    assert!(!shown.contains("99, 111"));
}

#[cfg(not(target_arch = "wasm32"))]
mod properties {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn whatever_is_signed_verifies_and_any_flipped_bit_does_not(
            attempt in "\\PC{0,200}",
            tenant: Vec<u8>,
            route in "\\PC{1,30}",
            method in "[A-Z]{1,8}",
            path: Vec<u8>,
            generation: u64,
            now in 0_u64..u64::MAX,
            pick: prop::sample::Index,
            bit: prop::sample::Index,
        ) {
            let signer = signer("a", None);
            let signed = lines(
                &Derived {
                    operation: &OperationId([3; 32]),
                    attempt: &attempt,
                    generation,
                    tenant: &tenant,
                    route: &route,
                    key_hash: &key_hash(b"k"),
                    claimed_at_unix_ms: now,
                    proxy: "p",
                },
                Some(&signer),
                method.as_bytes(),
                &path,
                now,
            );
            let verify = |lines: Vec<Line>| {
                signer.verify(&Headers::new(lines), method.as_bytes(), &path, now)
            };
            prop_assert_eq!(verify(signed.clone()), Verification::Valid);
            let mut bad = signed;
            let line = pick.index(bad.len());
            let bit = bit.index(bad[line].1.len() * 8);
            bad[line].1[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(verify(bad), Verification::Invalid);
        }

        #[test]
        fn arbitrary_signatures_never_verify_or_panic(value: Vec<u8>, time in 0_u64..2_000_000_000) {
            let signer = signer("a", None);
            let headers = Headers::new(vec![(SIGNATURE_HEADER.into(), value)]);
            prop_assert_eq!(signer.verify(&headers, b"POST", b"/", time), Verification::Invalid);
        }
    }
}
