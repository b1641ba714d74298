use super::*;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

fn jcs(text: &str) -> Option<String> {
    Some(text_of(&parse(text.as_bytes())?))
}

fn text_of(node: &Node<'_>) -> String {
    let mut out = Vec::new();
    write(node, &mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn equal_documents_have_one_text() {
    for (text, expected) in [
        (
            " {\"b\" : 1.0, \"a\":[1e0,10e-1,-0]}\r\n",
            r#"{"a":[1,1,0],"b":1}"#,
        ),
        (
            r#"{"\u0061":"\/\u00e9\t\u0001"}"#,
            "{\"a\":\"/\u{e9}\\t\\u0001\"}",
        ),
        ("\"\\ud83d\\ude02\"", "\"\u{1f602}\""),
        (
            "[1E30,1e21,1e20,1e-6,1e-7]",
            "[1e+30,1e+21,100000000000000000000,0.000001,1e-7]",
        ),
        ("[]", "[]"),
        ("{}", "{}"),
        ("\ttrue ", "true"),
    ] {
        assert_eq!(jcs(text).as_deref(), Some(expected), "{text}");
    }
}

#[test]
fn names_are_sorted_by_utf16_units() {
    // U+1F602 is D83D DE02 in UTF-16 and so stands before U+FB33, after which its octets would be.
    assert_eq!(
        jcs("{\"\u{fb33}\":1,\"\u{1f602}\":2,\"\\r\":3,\"1\":4}").unwrap(),
        "{\"\\r\":3,\"1\":4,\"\u{1f602}\":2,\"\u{fb33}\":1}"
    );
}

#[test]
fn what_would_lose_something_has_no_canonical_form() {
    for text in [
        "",
        " ",
        "{",
        "[1,]",
        "[01]",
        "[+1]",
        "[.5]",
        "[NaN]",
        "1 2",
        "{}x",
        "{'a':1}",
        "\u{feff}{}",
        r#"{"a":1,"a":1}"#,
        r#"{"a":1,"\u0061":2}"#,
        r#"[{"x":{"a":1,"b":2,"a":3}}]"#,
        r#""\ud83d""#,
        r#""\ude02\ud83d""#,
        "\"\u{1}\"",
        "[9007199254740993]",
        "[0.10000000000000000001]",
        "[1e400]",
        "[1e-400]",
        "[18446744073709551617]",
        "[-9007199254740993]",
    ] {
        assert_eq!(jcs(text), None, "{text}");
    }
    assert_eq!(parse(b"\"\xff\""), None);
    assert!(parse(b"[9007199254740992,-9007199254740992]").is_some());
}

#[test]
fn depth_is_bounded() {
    let nest = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
    assert!(jcs(&nest(127)).is_some());
    assert_eq!(jcs(&nest(128)), None);
    assert_eq!(jcs(&"[".repeat(1 << 20)), None);
    let objects = "{\"a\":".repeat(1 << 18);
    assert_eq!(jcs(&objects), None);
}

#[test]
fn many_duplicates_cost_no_square() {
    let mut text = String::from("{");
    for i in 0..50_000 {
        text.push_str(&format!("\"{i}\":0,"));
    }
    text.push_str("\"49999\":0}");
    assert_eq!(jcs(&text), None);
}

/// RFC 8785, Appendix B: the bits of a double, and how JCS writes it.
#[test]
fn numbers_of_appendix_b() {
    for (bits, expected) in [
        (0x0000_0000_0000_0000, "0"),
        (0x8000_0000_0000_0000, "0"),
        (0x0000_0000_0000_0001, "5e-324"),
        (0x8000_0000_0000_0001, "-5e-324"),
        (0x7fef_ffff_ffff_ffff, "1.7976931348623157e+308"),
        (0xffef_ffff_ffff_ffff, "-1.7976931348623157e+308"),
        (0x4340_0000_0000_0000, "9007199254740992"),
        (0xc340_0000_0000_0000, "-9007199254740992"),
        (0x4430_0000_0000_0000, "295147905179352830000"),
        (0x44b5_2d02_c7e1_4af5, "9.999999999999997e+22"),
        (0x44b5_2d02_c7e1_4af6, "1e+23"),
        (0x44b5_2d02_c7e1_4af7, "1.0000000000000001e+23"),
        (0x444b_1ae4_d6e2_ef4e, "999999999999999700000"),
        (0x444b_1ae4_d6e2_ef4f, "999999999999999900000"),
        (0x444b_1ae4_d6e2_ef50, "1e+21"),
        (0x3eb0_c6f7_a0b5_ed8c, "9.999999999999997e-7"),
        (0x3eb0_c6f7_a0b5_ed8d, "0.000001"),
        (0x41b3_de43_5555_5553, "333333333.3333332"),
        (0x41b3_de43_5555_5554, "333333333.33333325"),
        (0x41b3_de43_5555_5555, "333333333.3333333"),
        (0x41b3_de43_5555_5556, "333333333.3333334"),
        (0x41b3_de43_5555_5557, "333333333.33333343"),
        (0xbecb_f647_612f_3696, "-0.0000033333333333333333"),
        (0x4314_3ff3_c1cb_0959, "1424953923781206.2"),
    ] {
        let value = f64::from_bits(bits);
        assert_eq!(text_of(&Node::Number(value)), expected, "{bits:016x}");
        // What JCS wrote is read back as the same double, and survives.
        assert_eq!(jcs(expected).as_deref(), Some(expected), "{bits:016x}");
    }
}

#[cfg(not(target_arch = "wasm32"))]
mod properties {
    use super::*;
    use proptest::prelude::*;

    /// JSON texts, with their members in any order.
    pub(super) fn value() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            (-1_000_000_000i64..1_000_000_000).prop_map(Into::into),
            (-1e9..1e9f64).prop_map(Into::into),
            ".{0,8}".prop_map(Into::into),
        ];
        leaf.prop_recursive(4, 40, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Into::into),
                prop::collection::btree_map(".{0,5}", inner, 0..6)
                    .prop_map(|m| serde_json::Value::Object(m.into_iter().collect())),
            ]
        })
    }

    /// Writes a value with the members of each object rotated and odd white space.
    fn write(value: &serde_json::Value, turn: usize, out: &mut String) {
        match value {
            serde_json::Value::Array(items) => {
                out.push('[');
                for (i, item) in items.iter().enumerate() {
                    out.push_str(if i > 0 { " ,\n" } else { " " });
                    write(item, turn, out);
                }
                out.push(']');
            }
            serde_json::Value::Object(members) => {
                out.push('{');
                let count = members.len().max(1);
                let turned = members
                    .iter()
                    .cycle()
                    .skip(turn % count)
                    .take(members.len());
                for (i, (name, member)) in turned.enumerate() {
                    out.push_str(if i > 0 { ",\t" } else { "" });
                    out.push_str(&serde_json::to_string(name).unwrap());
                    out.push_str(" : ");
                    write(member, turn, out);
                }
                out.push('}');
            }
            scalar => out.push_str(&scalar.to_string()),
        }
    }

    /// Changes the `index`-th scalar in document order; returns how many there were before it.
    fn change(value: &mut serde_json::Value, index: usize, seen: &mut usize) -> bool {
        match value {
            serde_json::Value::Array(items) => items.iter_mut().any(|i| change(i, index, seen)),
            serde_json::Value::Object(members) => {
                members.iter_mut().any(|(_, m)| change(m, index, seen))
            }
            scalar => {
                let here = *seen == index;
                *seen += 1;
                if here {
                    *scalar = match &*scalar {
                        serde_json::Value::Null => false.into(),
                        serde_json::Value::Bool(b) => (!b).into(),
                        serde_json::Value::Number(n) => n.to_string().into(),
                        serde_json::Value::String(s) => format!("{s}.").into(),
                        other => other.clone(),
                    };
                }
                here
            }
        }
    }

    proptest! {
        #[test]
        fn member_order_and_white_space_never_count(v in value(), turn in 0usize..6) {
            let mut text = String::new();
            write(&v, turn, &mut text);
            let plain = jcs(&v.to_string());
            prop_assert!(plain.is_some());
            prop_assert_eq!(jcs(&text), plain);
        }

        #[test]
        fn a_changed_scalar_always_counts(v in value(), pick in 0usize..40) {
            let before = jcs(&v.to_string());
            let mut other = v.clone();
            let mut seen = 0;
            if change(&mut other, pick, &mut seen) {
                prop_assert_ne!(before, jcs(&other.to_string()));
            }
        }

        #[test]
        fn canonical_text_is_its_own_canonical_text(v in value()) {
            let once = jcs(&v.to_string()).unwrap();
            prop_assert_eq!(jcs(&once), Some(once));
        }

        #[test]
        fn the_text_is_that_of_another_implementation(v in value()) {
            prop_assert_eq!(jcs(&v.to_string()), serde_json_canonicalizer::to_string(&v).ok());
        }

        #[test]
        fn names_and_strings_of_any_kind(names in prop::collection::btree_set(any::<String>(), 0..8)) {
            let v: serde_json::Map<_, _> = names.into_iter().map(|n| (n.clone(), n.into())).collect();
            let v = serde_json::Value::Object(v);
            prop_assert_eq!(jcs(&v.to_string()), serde_json_canonicalizer::to_string(&v).ok());
        }

        #[test]
        fn canonical_text_means_the_same(v in value()) {
            let text = jcs(&v.to_string()).unwrap();
            let original = v.to_string();
            prop_assert_eq!(parse(text.as_bytes()), parse(original.as_bytes()));
        }

        #[test]
        fn a_changed_digit_never_vanishes(head in "-?[1-9][0-9]{0,20}(\\.[0-9]{0,20})?", one in 0u8..10, step in 1u8..10) {
            let other = (one + step) % 10;
            let (a, b) = (jcs(&format!("{head}{one}")), jcs(&format!("{head}{other}")));
            prop_assert!(a.is_none() || a != b);
        }

        #[test]
        fn noise_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes).map(|n| text_of(&n));
        }

        #[test]
        fn json_like_noise_never_panics(text in "[\\[\\]{}\",:0-9eE.+\\\\u-]{0,60}") {
            let _ = jcs(&text);
        }
    }
}
