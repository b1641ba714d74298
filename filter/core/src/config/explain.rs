//! What is said of a part of the document that does not fit the model.

use super::error::{brief, index, join, nearest, quote, redacted, secret_part};
use super::read::{Fault, Step};
use serde_json::Value;

/// Place, problem, remedy.
pub(super) fn explain(steps: &[Step<'_>], root: &Value, fault: Fault) -> (String, String, String) {
    let path = show(steps);
    if let Some(part) = secret_part(&path) {
        return secret(part, path);
    }
    let here = steps.iter().try_fold(root, |at, step| match step {
        Step::Member(name) => at.get(name),
        Step::Element(i) => at.get(*i),
    });
    match fault {
        Fault::Name(known) => {
            let name = match steps.last() {
                Some(Step::Member(name)) => name,
                _ => "",
            };
            unknown(steps, path, "field", name, &known)
        }
        Fault::Word(known) => {
            let word = here.and_then(Value::as_str).unwrap_or_default();
            unknown(steps, path, "value", word, known)
        }
        Fault::Shape(expected) if steps.is_empty() => (
            path,
            "the configuration is not an object".into(),
            format!("write {expected}"),
        ),
        Fault::Shape(expected) => (
            path,
            format!(
                "{} does not belong here",
                match here {
                    // It may be an address with a password in it.
                    Some(Value::String(_)) if matches!(steps, [Step::Member("store"), ..]) =>
                        "a text".to_owned(),
                    Some(here) => brief(here),
                    None => "this".to_owned(),
                }
            ),
            format!("write {expected}"),
        ),
        Fault::Wrong(problem, remedy) => (path, problem, remedy),
    }
}

/// Nothing of a part that may hold a secret is shown, not even a member's name: it might be the secret.
fn secret(part: &str, path: String) -> (String, String, String) {
    let remedy = match part {
        "signing" => {
            "write signing: {active: {env: NAME}}, with previous: {env: NAME} during a rotation"
        }
        "store.redis.login" => "write login: {user: NAME, password: {env: NAME}}",
        _ => "write {env: NAME}",
    };
    (
        redacted(path),
        "is not a reference to an environment variable; a secret itself is never written here"
            .into(),
        remedy.into(),
    )
}

fn show(steps: &[Step<'_>]) -> String {
    steps.iter().fold(String::new(), |path, step| match step {
        Step::Member(name) => join(&path, name),
        Step::Element(at) => index(&path, *at),
    })
}

fn choose(name: &str, known: &[&str]) -> String {
    match (nearest(name, known.iter().copied()), known) {
        (Some(near), _) => format!("did you mean {}?", quote(near)),
        (None, [only]) => format!("write {}", quote(only)),
        (None, []) => "leave it out".to_owned(),
        (None, _) => format!("known here: {}", known.join(", ")),
    }
}

fn unknown(
    steps: &[Step<'_>],
    path: String,
    what: &str,
    name: &str,
    known: &[&str],
) -> (String, String, String) {
    if let Some((problem, remedy)) = reserved(steps, name) {
        return (path, problem.into(), remedy.into());
    }
    let problem = format!("unknown {what} {}", quote(name));
    (path, problem, choose(name, known))
}

/// Names that an operator may know from the design or from another product, and that this version
/// does not have: refused with the reason, since an option that does nothing is worse than none.
fn reserved(steps: &[Step<'_>], name: &str) -> Option<(&'static str, &'static str)> {
    let has = |n: &str| {
        let is = |s: &Step<'_>| matches!(s, Step::Member(m) if *m == n);
        steps.iter().any(is)
    };
    let told = match name {
        "etcd" | "postgres" if has("store") => (
            "this store engine is not available in this version",
            "write store: {redis: {cluster: NAME, transport: webdis}}, or store: {shared_data: {}}, which serves one Envoy process",
        ),
        "url" | "host" | "address" | "port" if has("redis") => (
            "the store is reached through a cluster of Envoy, which knows its addresses",
            "write cluster: NAME, and the addresses into that cluster",
        ),
        "user" | "password" if has("redis") => (
            "this alone is no login",
            "write login: {user: NAME, password: {env: NAME}} for transport resp, authorization: {env: NAME} for webdis or token: {env: NAME} for rest",
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
        "role" | "object_store" => (
            "this option is not available in this version",
            "leave it out",
        ),
        _ => return None,
    };
    Some(told)
}
