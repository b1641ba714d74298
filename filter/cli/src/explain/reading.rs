//! Who asks, under which key: each place and source by itself, as the core reads it.

use super::findings::{AtOnce, KeyNote, PlaceNote, Problem, Told, ValueNote, lossy};
use super::request::Request;
use idempo_core::config;
use idempo_core::exchange::Moment;
use idempo_core::fingerprint::Fingerprint;
use idempo_core::http::media_type;
use idempo_core::key::{self, Key, KeyAge, KeyError, Reading, Timeliness, Written};
use idempo_core::plan::{KeyFormat, KeyTime, Route, Source, Tenant};
use idempo_core::tenant;
use serde_json::Value;

pub(super) fn read_key(rule: &Route, request: &Request) -> (KeyNote, Option<Key>) {
    let headers = &request.headers;
    let lines = headers.all(&rule.key.header);
    let mut places: Vec<PlaceNote> = lines
        .map(|value| {
            place(
                format!("header {}", rule.key.header),
                key::read_header_value(&rule.key, value),
            )
        })
        .collect();
    let media = media_type(headers.first("content-type"));
    let is_json = media == "application/json" || media.ends_with("+json");
    let body: Option<Value> = is_json
        .then(|| config::json_value(&request.body).ok())
        .flatten();
    if let (Some(pointer), Some(body)) = (&rule.key.body_field, &body)
        && let Some(member) = body.pointer(pointer).filter(|m| !m.is_null())
    {
        let name = format!("body {pointer}");
        places.push(match member.as_str() {
            Some(text) => place(name, key::read_body_text(&rule.key, text)),
            None => PlaceNote {
                place: name,
                written: None,
                format: None,
                length: None,
                problem: Some(problem(KeyError::Invalid(key::reason::NOT_A_STRING))),
            },
        });
    }
    let outcome = key::from_headers(&rule.key, headers).and_then(|in_header| {
        let in_body = match &body {
            Some(body) => key::from_body(&rule.key, body)?,
            None => None,
        };
        key::settle(&rule.key, in_header, in_body)
    });
    let (key, problem) = match outcome {
        Ok(key) => (key, None),
        Err(error) => (None, Some(problem(error))),
    };
    let note = KeyNote {
        required: rule.key.required,
        places,
        problem,
        hash: key.as_ref().map(Key::hash),
        value: None,
    };
    (note, key)
}

/// A body that could be read in two ways is refused whatever the header says; whether the filter had to
/// look into it, only the run knows.
pub(super) fn blame_body(note: &mut KeyNote, at_once: Option<&AtOnce>) {
    let reason = at_once.and_then(|a| a.row.reason.as_deref());
    if reason == Some(key::reason::BODY_UNREADABLE) {
        note.problem = Some(problem(KeyError::Invalid(key::reason::BODY_UNREADABLE)));
        note.hash = None;
    }
}

fn place(place: String, reading: Reading) -> PlaceNote {
    PlaceNote {
        place,
        written: reading.written.map(|w| match w {
            Written::Bare => "bare",
            Written::Quoted => "quoted",
        }),
        format: reading.format.map(|f| match f {
            KeyFormat::Uuid => "uuid",
            KeyFormat::Ulid => "ulid",
            KeyFormat::Base64url => "base64url",
            KeyFormat::Opaque => "opaque",
        }),
        length: Some(reading.length),
        problem: reading.outcome.err().map(problem),
    }
}

fn problem(error: KeyError) -> Problem {
    Problem {
        code: error.code().as_str().to_owned(),
        reason: error.reason(),
        text: error.to_string(),
    }
}

pub(super) fn key_time(rule: &Route, key: &Key, request: &Request, now: Moment) -> Option<Told> {
    let kind = rule.key_time.as_ref()?;
    let name = match kind {
        KeyTime::UuidV7 => "UUIDv7".to_owned(),
        KeyTime::Ulid => "ULID".to_owned(),
        KeyTime::DeadlineHeader(name) => format!("header {name}"),
    };
    let remembered = rule
        .replay
        .ttl_ms
        .saturating_add(rule.replay.tombstone_ttl_ms);
    let age = key::embedded_time_ms(key, kind, &request.headers);
    let judged = age.and_then(|age| Ok((age, age.judge(now.wall_ms(), remembered)?)));
    Some(match judged {
        Err(error) => Told {
            ok: false,
            text: format!("{name}: {error}"),
        },
        Ok((age, timeliness)) => {
            let (what, at) = match age {
                KeyAge::Created(at) => ("made at", at),
                KeyAge::Deadline(at) => ("may run until", at),
            };
            let late = timeliness == Timeliness::TooLate;
            let verdict = if late { "too late" } else { "in time" };
            Told {
                ok: !late,
                text: format!("{name}: {what} {at} (Unix ms), {verdict}"),
            }
        }
    })
}

pub(super) fn tenant_note(rule: &Tenant, request: &Request, show: bool) -> ValueNote {
    let sources = rule.sources.iter();
    let from: Vec<String> = sources
        .filter(|source| {
            let alone = Tenant {
                required: true,
                sources: vec![(*source).clone()],
                default: String::new(),
            };
            let value = tenant::resolve(&alone, &request.headers, &request.properties);
            !matches!(value, Err(tenant::TenantError::Missing))
        })
        .map(source_name)
        .collect();
    match tenant::resolve(rule, &request.headers, &request.properties) {
        Ok(value) => ValueNote {
            from: if from.is_empty() {
                vec!["the default".to_owned()]
            } else {
                from
            },
            digest: Some(value.digest().hex()),
            problem: None,
            value: show.then(|| lossy(value.as_bytes())),
        },
        Err(error) => ValueNote {
            from,
            digest: None,
            problem: Some(error.to_string()),
            value: None,
        },
    }
}

pub(super) fn principal_note(
    source: &Source,
    request: &Request,
    fingerprint: Option<&Fingerprint>,
    show: bool,
) -> ValueNote {
    let value = tenant::principal(source, &request.headers, &request.properties);
    let (value, problem) = match value {
        Ok(value) => (value, None),
        Err(error) => (None, Some(error.to_string())),
    };
    ValueNote {
        from: value.iter().map(|_| source_name(source)).collect(),
        digest: fingerprint.and_then(|f| f.principal).map(hex::encode),
        problem,
        value: value.filter(|_| show).map(|v| lossy(&v)),
    }
}

fn source_name(source: &Source) -> String {
    match source {
        Source::Header(name) => format!("header {name}"),
        Source::Metadata { filter, path } => format!("metadata {filter} {}", path.join(".")),
        Source::Property(path) => format!("property {}", path.join(".")),
    }
}
