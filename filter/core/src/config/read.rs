//! From a JSON value to the model, with every structural error in one go.
//!
//! serde stops at the first error. What it stopped at is told and cut out of the value, and the rest
//! is read again, until it fits: so one run tells an operator about five misspelt names, not one.

use super::duration::REMEDY;
use super::error::{Report, brief, index, join, nearest, quote};
use super::model::Config;
use serde_json::Value;
use serde_path_to_error::Segment;

/// Structural errors beyond this many are left for the next run.
const MAX_PASSES: usize = 64;

/// One step from the root to a place in the document.
enum Step {
    Member(String),
    Element(usize),
}

/// `None` where too much is wrong for the rest to mean anything.
pub(super) fn read(mut value: Value, report: &mut Report) -> Option<Config> {
    for _ in 0..MAX_PASSES {
        let error = match serde_path_to_error::deserialize::<_, Config>(&value) {
            Ok(config) => return Some(config),
            Err(error) => error,
        };
        let steps: Vec<Step> = error
            .path()
            .iter()
            .map_while(|segment| match segment {
                Segment::Map { key } => Some(Step::Member(key.clone())),
                Segment::Seq { index } => Some(Step::Element(*index)),
                // Below an enum variant, or a place that serde cannot name: the member is enough.
                Segment::Enum { .. } | Segment::Unknown => None,
            })
            .collect();
        let (path, problem, remedy) = explain(&steps, &value, &error.inner().to_string());
        report.unreadable(path, problem, remedy);
        if !cut(&mut value, &steps) {
            return None;
        }
    }
    None
}

/// Takes the wrong part out, so that the rest can be read. False where nothing is left to take.
fn cut(value: &mut Value, steps: &[Step]) -> bool {
    // A route that is no object at all becomes an empty one: without it, the others would be renumbered.
    if let [Step::Member(routes), Step::Element(at)] = steps {
        let route = value.get_mut(routes).and_then(|r| r.get_mut(*at));
        if let Some(route) = route.filter(|r| !r.is_object()) {
            *route = Value::Object(serde_json::Map::new());
            return true;
        }
    }
    let Some(last) = steps.iter().rposition(|s| matches!(s, Step::Member(_))) else {
        return false;
    };
    let (parents, rest) = steps.split_at(last);
    let parent = parents.iter().try_fold(value, |at, step| match step {
        Step::Member(name) => at.get_mut(name),
        Step::Element(i) => at.get_mut(*i),
    });
    match (parent, rest.first()) {
        (Some(Value::Object(members)), Some(Step::Member(name))) => members.remove(name).is_some(),
        _ => false,
    }
}

fn explain(steps: &[Step], root: &Value, said: &str) -> (String, String, String) {
    if let Some(Step::Member(first)) = steps.first()
        && first == "signing"
    {
        return secret(steps);
    }
    let path = show(steps);
    let here = steps.iter().try_fold(root, |at, step| match step {
        Step::Member(name) => at.get(name),
        Step::Element(i) => at.get(*i),
    });
    let shown = here.map_or_else(|| "this".to_owned(), brief);
    if let Some(rest) = said.strip_prefix("unknown field ") {
        return unknown_name(steps, path, "field", rest);
    }
    if let Some(rest) = said.strip_prefix("unknown variant ") {
        return unknown_word(steps, path, here, rest);
    }
    if let Some((problem, remedy)) = said.split_once(REMEDY) {
        return (path, problem.to_owned(), remedy.to_owned());
    }
    // The text is serde's own: "invalid type: …, expected …". What it echoes is not bounded, so
    // only the part after the last "expected" is used, which is ours or a type's name.
    let expected = said.rsplit_once(", expected ").map(|(_, e)| plain(e));
    match expected {
        Some(expected) if steps.is_empty() => (
            path,
            "the configuration is not an object".into(),
            format!("write {expected}"),
        ),
        Some(expected) => (
            path,
            format!("{shown} does not belong here"),
            format!("write {expected}"),
        ),
        None => (
            path,
            format!("{shown} cannot be read"),
            "see the configuration reference".into(),
        ),
    }
}

/// Nothing from under `signing` is shown, not even a member's name: it might be the secret.
fn secret(steps: &[Step]) -> (String, String, String) {
    let known: Vec<&str> = steps
        .iter()
        .map_while(|s| match s {
            Step::Member(name) => ["signing", "active", "previous", "env"]
                .into_iter()
                .find(|k| k == name),
            Step::Element(_) => None,
        })
        .collect();
    (
        known.join("."),
        "is not a reference to an environment variable; a secret itself is never written here"
            .into(),
        "write signing: {active: {env: NAME}}, with previous: {env: NAME} during a rotation".into(),
    )
}

fn show(steps: &[Step]) -> String {
    steps.iter().fold(String::new(), |path, step| match step {
        Step::Member(name) => join(&path, name),
        Step::Element(at) => index(&path, *at),
    })
}

/// The names that serde lists after "expected".
fn listed(rest: &str) -> Vec<&str> {
    let after = rest.rsplit_once(", expected ").map_or("", |(_, e)| e);
    after.split('`').skip(1).step_by(2).collect()
}

fn choose(name: &str, known: &[&str]) -> String {
    match (nearest(name, known.iter().copied()), known) {
        (Some(near), _) => format!("did you mean {}?", quote(near)),
        (None, [only]) => format!("write {}", quote(only)),
        (None, []) => "leave it out".to_owned(),
        (None, _) => format!("known here: {}", known.join(", ")),
    }
}

fn unknown_name(steps: &[Step], path: String, what: &str, rest: &str) -> (String, String, String) {
    let name = match steps.last() {
        Some(Step::Member(name)) => name.as_str(),
        _ => "",
    };
    if let Some((problem, remedy)) = reserved(steps, name) {
        return (path, problem.into(), remedy.into());
    }
    let problem = format!("unknown {what} {}", quote(name));
    (path, problem, choose(name, &listed(rest)))
}

fn unknown_word(
    steps: &[Step],
    path: String,
    here: Option<&Value>,
    rest: &str,
) -> (String, String, String) {
    let word = here.and_then(Value::as_str).unwrap_or_default();
    if let Some((problem, remedy)) = reserved(steps, word) {
        return (path, problem.into(), remedy.into());
    }
    let problem = format!("unknown value {}", quote(word));
    (path, problem, choose(word, &listed(rest)))
}

/// Names that an operator may know from the design or from another product, and that this version
/// does not have: refused with the reason, since an option that does nothing is worse than none.
fn reserved(steps: &[Step], name: &str) -> Option<(&'static str, &'static str)> {
    let member = |s: &Step| match s {
        Step::Member(m) => Some(m.clone()),
        Step::Element(_) => None,
    };
    let names: Vec<String> = steps.iter().filter_map(member).collect();
    let has = |n: &str| names.iter().any(|m| m == n);
    let told = match name {
        "redis" | "etcd" | "postgres" if has("store") => (
            "this store engine is not available in this version",
            "write store: {shared_data: {}}, which serves one Envoy process",
        ),
        "replay_cache" => (
            "a replay cache would do nothing: the only store of this version already lives in the host's memory",
            "leave replay_cache out",
        ),
        "loopback_cluster" => (
            "detached execution, which the loopback cluster is for, is not available in this version",
            "leave loopback_cluster out; attempts run inline",
        ),
        "detached" if has("execution") => (
            "detached execution is not available in this version",
            "write execution: inline, or leave it out",
        ),
        "probe" if has("unknown") => (
            "the probe policy is not available in this version",
            "write unknown: refuse, or {forward: …} or {retry: …}",
        ),
        "forward" if has("unknown") => (
            "forward needs a statement that the upstream dedupes",
            "write unknown: {forward: {upstream_dedupes: true}}",
        ),
        "retry" if has("unknown") => (
            "retry needs a reason",
            "write unknown: {retry: {i_accept_duplicates: \"why duplicates are acceptable\"}}",
        ),
        "allow" if has("router_retries") => (
            "allow needs a reason",
            "write router_retries: {allow: {reason: \"why the upstream may see a request twice\"}}",
        ),
        "deadline_header" if has("key_time") => (
            "deadline_header needs a name",
            "write key_time: {deadline_header: x-deadline}",
        ),
        "commit" | "claim_after" | "role" | "object_store" => (
            "this option is not available in this version",
            "leave it out",
        ),
        _ => return None,
    };
    Some(told)
}

/// serde's type names in words.
fn plain(expected: &str) -> String {
    match expected {
        "a boolean" => "true or false".into(),
        "a string" | "string or map" => "a string".into(),
        "a sequence" => "a list".into(),
        "a map" => "an object".into(),
        "u16" => "a whole number from 0 to 65535".into(),
        "u32" => "a whole number from 0 to 4294967295".into(),
        "u64" => "a whole number, 0 or more".into(),
        "f64" | "f32" => "a number".into(),
        other => other.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn errors(value: Value) -> Vec<String> {
        let mut report = Report::default();
        read(value, &mut report);
        if report.is_clean() {
            return Vec::new();
        }
        let errors = report.into_errors();
        errors.errors().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn every_structural_error_is_told_in_one_go() {
        let said = errors(json!({
            "namespac": "x",
            "mode": "enforced",
            "limits": {"worker_waiters": -1},
            "routes": [
                1,
                {"id": 7, "lease": "5m", "match": {"methods": "POST", "path": {"prefx": "/a"}}},
                {"record": {"classes": {"overrides": {"5xx": "keep"}}}, "unknown": {"retyr": {}}},
            ],
        }));
        for expected in [
            r#"namespac: unknown field "namespac"; did you mean "namespace"?"#,
            r#"mode: unknown value "enforced"; did you mean "enforce"?"#,
            "limits.worker_waiters: -1 does not belong here; write a whole number from 0 to 4294967295",
            "routes[0]: 1 does not belong here; write a route such as {id: charges",
            "routes[1].id: 7 does not belong here; write a string",
            r#"routes[1].lease: "5m" is not a duration; write "300s""#,
            r#"routes[1].match.methods: "POST" does not belong here; write a list"#,
            r#"routes[1].match.path.prefx: unknown field "prefx"; did you mean "prefix"?"#,
            r#"routes[2].record.classes.overrides.5xx: unknown value "keep"; known here: record, release, unknown, accepted"#,
            r#"routes[2].unknown.retyr: unknown field "retyr"; did you mean "retry"?"#,
        ] {
            assert!(
                said.iter().any(|s| s.starts_with(expected)),
                "{expected}\n{said:#?}"
            );
        }
        assert_eq!(said.len(), 10, "{said:#?}");
    }

    #[test]
    fn nothing_under_signing_is_shown() {
        for signing in [
            json!("s3cret"),
            json!({"active": "s3cret"}),
            json!({"active": {"env": ["s3cret"]}}),
            json!({"active": {"value": "s3cret"}}),
            json!({"s3cret": {}}),
            json!(["s3cret"]),
        ] {
            let said = errors(json!({ "signing": signing }));
            assert_eq!(said.len(), 1, "{said:?}");
            assert!(said[0].starts_with("signing"), "{said:?}");
            assert!(said[0].contains("env: NAME"), "{said:?}");
            assert!(!said[0].contains("s3cret"), "{said:?}");
        }
    }

    #[test]
    fn a_document_that_is_wrong_all_over_ends() {
        let many: serde_json::Map<_, _> = (0..500).map(|i| (format!("x{i}"), json!(1))).collect();
        assert_eq!(errors(Value::Object(many)).len(), MAX_PASSES);
        assert_eq!(errors(json!([1])).len(), 1);
    }
}
