//! How old an operation says it is: the creation time inside a UUIDv7 (RFC 9562 §5.7) or a ULID, or
//! the deadline that a header states. With it an attempt can be refused as too old even when every
//! record of it is gone.
//!
//! A route that asks for a time refuses keys without one: else a client could leave the check by
//! sending a key of another kind, and the check may be all that is left (`tombstone_ttl: 0`).

use super::{Key, KeyError, judge, reason};
use crate::http::Headers;
use crate::key::syntax::trim_ows;
use crate::plan::KeyTime;
use std::time::UNIX_EPOCH;

/// How far a client's clock may be ahead, ms.
pub const FUTURE_TOLERANCE_MS: u64 = 5 * 60 * 1000;

/// The last second of the year 9999. Milliseconds given by mistake are beyond it for every date
/// after 1978.
const MAX_UNIX_SECONDS: u64 = 253_402_300_799;

/// A time that came with the request, Unix ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyAge {
    /// When the key was made.
    Created(u64),
    /// Until when the operation may run.
    Deadline(u64),
}

/// Whether an operation may still run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timeliness {
    /// It may.
    Timely,
    /// It is too old: `key_expired`.
    TooLate,
}

impl KeyAge {
    /// Judges the time at `now_ms`. `remembered_ms` is how long the store remembers an operation
    /// after it ended: the replay window and the tombstone window together. An operation ends after
    /// its key was made, so a key refused here is always older than what was forgotten.
    ///
    /// # Errors
    /// [`KeyError::Invalid`] for a key made more than [`FUTURE_TOLERANCE_MS`] from now, or a deadline
    /// so far away that the record would be forgotten before it.
    pub fn judge(self, now_ms: u64, remembered_ms: u64) -> Result<Timeliness, KeyError> {
        let late = match self {
            Self::Created(at) if at > now_ms.saturating_add(FUTURE_TOLERANCE_MS) => {
                return Err(KeyError::Invalid(reason::FUTURE));
            }
            Self::Created(at) => now_ms.saturating_sub(at) > remembered_ms,
            Self::Deadline(at)
                if at.saturating_sub(now_ms)
                    > remembered_ms.saturating_add(FUTURE_TOLERANCE_MS) =>
            {
                return Err(KeyError::Invalid(reason::DEADLINE_FAR));
            }
            Self::Deadline(at) => now_ms > at,
        };
        Ok(if late {
            Timeliness::TooLate
        } else {
            Timeliness::Timely
        })
    }
}

/// Reads the time that the route's rule asks for.
///
/// # Errors
/// [`KeyError::Invalid`] where the key is of another kind, or the deadline header is missing,
/// repeated with different values, or neither an HTTP date (RFC 9110 §5.6.7) nor Unix seconds.
pub fn embedded_time_ms(key: &Key, kind: &KeyTime, headers: &Headers) -> Result<KeyAge, KeyError> {
    let text = std::str::from_utf8(key.as_bytes()).unwrap_or_default();
    match kind {
        KeyTime::UuidV7 => judge::uuid(text)
            // The variant too: a version digit means nothing in another variant.
            .filter(|id| id.get_version_num() == 7 && id.get_variant() == uuid::Variant::RFC4122)
            .and_then(|id| id.as_bytes().first_chunk::<6>().copied())
            .map(|[a, b, c, d, e, f]| u64::from_be_bytes([0, 0, a, b, c, d, e, f]))
            .map(KeyAge::Created)
            .ok_or(KeyError::Invalid(reason::NO_TIME)),
        KeyTime::Ulid => judge::ulid(text)
            .map(|id| KeyAge::Created(id.timestamp_ms()))
            .ok_or(KeyError::Invalid(reason::NO_TIME)),
        KeyTime::DeadlineHeader(name) => deadline(name, headers),
    }
}

fn deadline(name: &str, headers: &Headers) -> Result<KeyAge, KeyError> {
    let mut lines = headers.all(name).map(trim_ows);
    let first = lines
        .next()
        .ok_or(KeyError::Invalid(reason::DEADLINE_MISSING))?;
    if lines.any(|other| other != first) {
        return Err(KeyError::Invalid(reason::DEADLINE_FORM));
    }
    std::str::from_utf8(first)
        .ok()
        .and_then(|text| unix_seconds(text).or_else(|| http_date(text)))
        .map(|seconds| KeyAge::Deadline(seconds.saturating_mul(1000)))
        .ok_or(KeyError::Invalid(reason::DEADLINE_FORM))
}

fn unix_seconds(text: &str) -> Option<u64> {
    // `parse` alone would take a plus sign.
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    text.parse().ok().filter(|s| *s <= MAX_UNIX_SECONDS)
}

fn http_date(text: &str) -> Option<u64> {
    let date = httpdate::parse_http_date(text).ok()?;
    date.duration_since(UNIX_EPOCH).ok().map(|d| d.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::from_headers;
    use crate::plan::{KeyFormat, KeyRule};
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    const DAY: u64 = 86_400_000;

    fn key(text: &str) -> Key {
        let rule = KeyRule {
            formats: vec![KeyFormat::Uuid, KeyFormat::Ulid],
            ..KeyRule::default()
        };
        let headers = [("idempotency-key", text)].into_iter().collect();
        from_headers(&rule, &headers).unwrap().unwrap()
    }

    fn invalid(reason: &'static str) -> Result<KeyAge, KeyError> {
        Err(KeyError::Invalid(reason))
    }

    #[test]
    fn uuidv7_and_ulid_carry_their_creation_time() {
        let none = Headers::default();
        // The example of RFC 9562, appendix A.6.
        let v7 = key("017F22E2-79B0-7CC3-98C4-DC0C0C07398F");
        let at = embedded_time_ms(&v7, &KeyTime::UuidV7, &none);
        assert_eq!(at, Ok(KeyAge::Created(1_645_557_742_000)));
        // The example of the ULID specification.
        let ulid = key("01ARZ3NDEKTSV4RRFFQ69G5FAV");
        let at = embedded_time_ms(&ulid, &KeyTime::Ulid, &none);
        assert_eq!(at, Ok(KeyAge::Created(1_469_922_850_259)));
        assert_eq!(
            embedded_time_ms(&ulid, &KeyTime::UuidV7, &none),
            invalid(reason::NO_TIME)
        );
        assert_eq!(
            embedded_time_ms(&v7, &KeyTime::Ulid, &none),
            invalid(reason::NO_TIME)
        );
    }

    #[test]
    fn another_version_or_variant_is_no_uuidv7() {
        for text in [
            "550e8400-e29b-41d4-a716-446655440000",
            "017f22e2-79b0-7cc3-d8c4-dc0c0c07398f",
            "017f22e2-79b0-7cc3-08c4-dc0c0c07398f",
        ] {
            let at = embedded_time_ms(&key(text), &KeyTime::UuidV7, &Headers::default());
            assert_eq!(at, invalid(reason::NO_TIME), "{text}");
        }
    }

    #[test]
    fn deadline_header_forms() {
        let key = key("550e8400-e29b-41d4-a716-446655440000");
        let kind = KeyTime::DeadlineHeader("x-deadline".into());
        let read = |lines: &[&str]| {
            let headers = lines.iter().map(|v| ("x-deadline", *v)).collect();
            embedded_time_ms(&key, &kind, &headers)
        };
        let at = Ok(KeyAge::Deadline(784_111_777_000));
        assert_eq!(read(&["Sun, 06 Nov 1994 08:49:37 GMT"]), at);
        assert_eq!(read(&["Sunday, 06-Nov-94 08:49:37 GMT"]), at);
        assert_eq!(read(&[" 784111777\t"]), at);
        assert_eq!(read(&["784111777", "784111777 "]), at);
        assert_eq!(read(&[]), invalid(reason::DEADLINE_MISSING));
        for bad in [
            &["784111777", "784111778"][..],
            &[""],
            &["+784111777"],
            &["-1"],
            &["1700000000000"],
            &["99999999999999999999999999"],
            &["784111777.5"],
            &["tomorrow"],
            &["Sun, 31 Feb 1994 08:49:37 GMT"],
            &["Sun, 06 Nov 1994 08:49:37 CET"],
            &["é"],
        ] {
            assert_eq!(read(bad), invalid(reason::DEADLINE_FORM), "{bad:?}");
        }
    }

    #[test]
    fn age_is_judged_at_its_edges() {
        let now = 1_700_000_000_000;
        let created = |at| KeyAge::Created(at).judge(now, DAY);
        assert_eq!(created(now), Ok(Timeliness::Timely));
        assert_eq!(created(now - DAY), Ok(Timeliness::Timely));
        assert_eq!(created(now - DAY - 1), Ok(Timeliness::TooLate));
        assert_eq!(created(now + FUTURE_TOLERANCE_MS), Ok(Timeliness::Timely));
        let future = Err(KeyError::Invalid(reason::FUTURE));
        assert_eq!(created(now + FUTURE_TOLERANCE_MS + 1), future);
        assert_eq!(
            KeyAge::Created(u64::MAX).judge(u64::MAX, 0),
            Ok(Timeliness::Timely)
        );

        let deadline = |at| KeyAge::Deadline(at).judge(now, DAY);
        assert_eq!(deadline(now), Ok(Timeliness::Timely));
        assert_eq!(deadline(now - 1), Ok(Timeliness::TooLate));
        assert_eq!(deadline(now + DAY), Ok(Timeliness::Timely));
        let far = Err(KeyError::Invalid(reason::DEADLINE_FAR));
        assert_eq!(deadline(now + DAY + FUTURE_TOLERANCE_MS + 1), far);
    }
}
