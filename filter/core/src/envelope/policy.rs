//! `Idempotency-Policy`: an upstream's own word on its answer.
//!
//! `not-started` gives the operation free to run again, so it counts only where nothing
//! contradicts it. `no-store` only keeps less, so it wins over anything beside it.

use crate::http::Headers;

/// The response header, in lower case. It is for the filter and is removed from the answer.
pub const POLICY_HEADER: &str = "idempotency-policy";

/// What the upstream asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpstreamPolicy {
    /// Remember that it completed, but keep no copy (design rule 7).
    NoStore,
    /// Record this answer whatever its status class says.
    Store,
    /// Nothing was done: the operation may run again.
    NotStarted,
}

/// What was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PolicyReading {
    /// What to follow, where it is clear.
    pub policy: Option<UpstreamPolicy>,
    /// Something was not understood or contradictory, and was ignored: worth a log line.
    pub odd: bool,
}

/// Reads every `Idempotency-Policy` line of a response. Values are compared without case; lists
/// and repeated lines are one list (RFC 9110 §5.6.1).
#[must_use]
pub fn upstream_policy(headers: &Headers) -> PolicyReading {
    let (mut no_store, mut store, mut not_started, mut unknown) = (false, false, false, false);
    for item in headers
        .all(POLICY_HEADER)
        .flat_map(|line| line.split(|b| *b == b','))
        .map(<[u8]>::trim_ascii)
        .filter(|item| !item.is_empty())
    {
        if item.eq_ignore_ascii_case(b"no-store") {
            no_store = true;
        } else if item.eq_ignore_ascii_case(b"store") {
            store = true;
        } else if item.eq_ignore_ascii_case(b"not-started") {
            not_started = true;
        } else {
            unknown = true;
        }
    }
    let policy = match (no_store, store, not_started, unknown) {
        (true, ..) => Some(UpstreamPolicy::NoStore),
        (false, true, false, _) => Some(UpstreamPolicy::Store),
        (false, false, true, false) => Some(UpstreamPolicy::NotStarted),
        _ => None,
    };
    let stated = usize::from(no_store) + usize::from(store) + usize::from(not_started);
    PolicyReading {
        policy,
        odd: unknown || stated > 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn read(lines: &[&str]) -> PolicyReading {
        let headers: Headers = lines.iter().map(|v| (POLICY_HEADER, *v)).collect();
        upstream_policy(&headers)
    }

    fn clear(policy: UpstreamPolicy) -> PolicyReading {
        PolicyReading {
            policy: Some(policy),
            odd: false,
        }
    }

    #[test]
    fn the_three_words_in_any_case() {
        assert_eq!(read(&["no-store"]), clear(UpstreamPolicy::NoStore));
        assert_eq!(read(&[" Store "]), clear(UpstreamPolicy::Store));
        assert_eq!(read(&["NOT-STARTED"]), clear(UpstreamPolicy::NotStarted));
        assert_eq!(read(&["store", "STORE,"]), clear(UpstreamPolicy::Store));
        assert_eq!(read(&[]), PolicyReading::default());
        assert_eq!(read(&["", " , "]), PolicyReading::default());
    }

    #[test]
    fn unknown_words_are_ignored_and_reported() {
        let reading = read(&["forget-me"]);
        assert_eq!((reading.policy, reading.odd), (None, true));
        let reading = read(&["store, max-age=3"]);
        assert_eq!(
            (reading.policy, reading.odd),
            (Some(UpstreamPolicy::Store), true)
        );
    }

    #[test]
    fn nothing_contradictory_ever_releases() {
        for lines in [
            &["not-started, store"][..],
            &["not-started", "no-store"],
            &["not-started, what"],
            &["not-started;q=1"],
        ] {
            let reading = read(lines);
            assert_ne!(
                reading.policy,
                Some(UpstreamPolicy::NotStarted),
                "{lines:?}"
            );
            assert!(reading.odd, "{lines:?}");
        }
        assert_eq!(
            read(&["store", "no-store"]).policy,
            Some(UpstreamPolicy::NoStore)
        );
    }
}
