//! What holds for every configuration, right, wrong or hostile.

use super::*;
use proptest::prelude::*;

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,12}".prop_map(Value::from),
        prop_oneof![
            Just("30s"),
            Just("64MiB"),
            Just("POST"),
            Just("/v1/{id}"),
            Just("strict")
        ]
        .prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 48, 6, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            proptest::collection::btree_map(known_name(), inner, 0..6)
                .prop_map(|m| Value::Object(m.into_iter().collect())),
        ]
    })
}

/// Names that lead deep into the model, and some that do not.
fn known_name() -> impl Strategy<Value = String> {
    prop_oneof![
        proptest::sample::select(vec![
            "store",
            "shared_data",
            "redis",
            "cluster",
            "transport",
            "login",
            "token",
            "replay_cache",
            "records",
            "limits",
            "signing",
            "active",
            "env",
            "tenant",
            "sources",
            "header",
            "metadata",
            "property",
            "path",
            "defaults",
            "routes",
            "id",
            "match",
            "methods",
            "prefix",
            "template",
            "exact",
            "body",
            "key",
            "formats",
            "record",
            "classes",
            "overrides",
            "5xx",
            "replay",
            "ttl",
            "unknown",
            "retry",
            "statuses",
            "key_time",
            "lease",
            "upstream",
        ])
        .prop_map(ToOwned::to_owned),
        "\\PC{0,8}",
    ]
}

/// The minimal configuration with one random value at a place that exists.
fn nearly_right() -> impl Strategy<Value = Value> {
    let places = vec![
        "/store/shared_data",
        "/store",
        "/store/redis",
        "/replay_cache",
        "/tenant",
        "/limits",
        "/defaults",
        "/routes/0",
        "/routes/0/match",
        "/routes/0/key",
        "/routes/0/record",
        "/routes/0/replay",
        "/routes/0/unknown",
        "/routes/0/statuses",
        "/enforce_fraction",
        "/routes/0/lease",
        "/routes/0/schema_version",
    ];
    (proptest::sample::select(places), any_json()).prop_map(|(place, value)| with(place, value))
}

/// Members that a valid configuration may have, so that plans are compared, too.
fn right() -> impl Strategy<Value = Value> {
    (
        1_u32..100,
        100_000_u32..400_000,
        64_u64..4096,
        1_u32..=255,
        0.0..=1.0_f64,
        any::<bool>(),
    )
        .prop_map(|(lease, ttl, kib, version, fraction, flag)| {
            let mut config = minimal();
            set(&mut config, "/routes/0/lease", json!(format!("{lease}.5s")));
            set(
                &mut config,
                "/routes/0/replay/ttl",
                json!(format!("{ttl}s")),
            );
            set(&mut config, "/store/shared_data/records", json!(kib * 1024));
            set(&mut config, "/routes/0/schema_version", json!(version));
            set(
                &mut config,
                "/routes/0/upstream/identity_encoding",
                json!(flag),
            );
            set(&mut config, "/enforce_fraction", json!(fraction));
            config
        })
}

fn agree(config: &Value) -> Result<bool, TestCaseError> {
    let [from_json, from_struct] = both(config);
    prop_assert_eq!(&from_json, &from_struct);
    Ok(from_json.is_ok())
}

proptest! {
    #[test]
    fn any_value_is_survived(value in any_json()) {
        let _ = parse_value(value.clone());
        let _ = parse(value.to_string().as_bytes());
    }

    #[test]
    fn any_octets_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse(&bytes);
        let mut tagged = vec![0x0a];
        tagged.extend(&bytes);
        tagged.push(0x12);
        let _ = parse(&tagged);
    }

    #[test]
    fn damaged_struct_bytes_are_survived(at in 0_usize..120, octet in any::<u8>()) {
        let mut bytes = struct_pb::encode(&minimal());
        let at = at % bytes.len();
        bytes[at] = octet;
        let _ = parse(&bytes);
    }

    #[test]
    fn both_forms_agree_on_what_is_nearly_right(config in nearly_right()) {
        agree(&config)?;
    }

    #[test]
    fn both_forms_give_the_same_plan(config in right()) {
        prop_assert!(agree(&config)?);
    }
}
