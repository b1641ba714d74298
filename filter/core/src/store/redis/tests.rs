//! The codec alone: what it writes, and what it makes of answers. The script runs on real servers
//! in `host-tests`.

use super::*;
use crate::store::remote::{Added, Answered, Credential, Limits, ShardState, shard_of};
use crate::store::table::testing::{claim, complete, id, op};
use crate::store::{Action, Op, Reply};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

const EPOCH: &str = "0102030405060708090a0b0c0d0e0f10";

fn batch(ops: &[Op]) -> Batch {
    let mut batch = Batch::new(Nonce([7; 16]), Limits::default());
    for op in ops {
        assert_eq!(batch.push(op.clone()), Added::Yes);
    }
    batch
}

fn engines() -> [Redis; 3] {
    [
        Transport::Webdis {
            authorization: None,
        },
        Transport::Rest { token: None },
        Transport::Resp { login: None },
    ]
    .map(|transport| Redis::new(transport, Layout::default()))
}

/// Texts as each transport's server would send them.
fn answers(texts: &[&str]) -> [Vec<u8>; 3] {
    let json = serde_json::to_string(texts).unwrap();
    let mut resp = format!("*{}\r\n", texts.len());
    for text in texts {
        resp += &format!("${}\r\n{text}\r\n", text.len());
    }
    [
        format!("{{\"EVALSHA\":{json}}}").into_bytes(),
        format!("{{\"result\":{json}}}").into_bytes(),
        resp.into_bytes(),
    ]
}

fn understand(engine: &Redis, batch: &Batch, status: u16, body: &[u8]) -> Understood {
    engine.understand(batch, HttpAnswer { status, body })
}

fn head() -> String {
    format!("idempo1,{},1700000000123", Nonce([7; 16]).hex())
}

fn is_ambiguous(understood: &Understood) -> bool {
    matches!(understood, Understood::Ambiguous(_))
}

#[test]
fn an_answer_gives_time_shards_and_one_reply_each() {
    let batch = batch(&[op(1, Action::Read), op(1, Action::Claim(claim(1)))]);
    let (head, state) = (head(), format!("{EPOCH},42,0"));
    for (engine, body) in engines()
        .iter()
        .zip(answers(&[&head, &state, "absent", "late"]))
    {
        let right = Answered {
            now: 1_700_000_000_123,
            shards: vec![ShardState {
                shard: shard_of(&id(1)),
                epoch: Some([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]),
                seq: 42,
                doubt_until: Some(0),
            }],
            replies: vec![Reply::Absent, Reply::TooLate],
        };
        let understood = understand(engine, &batch, 200, &body);
        assert_eq!(understood, Understood::Answered(right));
    }
}

#[test]
fn whatever_is_not_evidently_the_stores_answer_is_ambiguous() {
    let batch = batch(&[op(1, Action::Read)]);
    let (head, state) = (head(), format!("{EPOCH},42,0"));
    let other = head.replace("0707", "0708");
    let good = [head.as_str(), &state, "absent"];
    let bad: [&[&str]; 9] = [
        &[],
        &[&head],
        &[&head, &state],
        &[&head, &state, "absent", "absent"],
        &[&other, &state, "absent"],
        &["idempo2", &state, "absent"],
        &["idempo1,,", &state, "absent"],
        &[&head, "x", "absent"],
        &[&head, &format!("{EPOCH},x"), "absent"],
    ];
    for (n, engine) in engines().iter().enumerate() {
        for texts in bad {
            let body = &answers(texts)[n];
            assert!(
                is_ambiguous(&understand(engine, &batch, 200, body)),
                "{texts:?}"
            );
        }
        let body = &answers(&good)[n];
        assert!(!is_ambiguous(&understand(engine, &batch, 200, body)));
        // Envoy's own answers, whatever their body, and any cut of a good one.
        for status in [204, 301, 404, 500, 502, 503, 504] {
            assert!(is_ambiguous(&understand(engine, &batch, status, body)));
        }
        for end in 0..body.len() {
            assert!(is_ambiguous(&understand(engine, &batch, 200, &body[..end])));
        }
        let longer = [body.as_slice(), b"!"].concat();
        assert!(is_ambiguous(&understand(engine, &batch, 200, &longer)));
        for page in [
            &b"upstream connect error or disconnect/reset before headers"[..],
            b"<html><body>503</body></html>",
            b"{}",
            b"[]",
            b"null",
            b"\"absent\"",
            b"{\"EVALSHA\":null}",
            b"{\"EVALSHA\":\"\"}",
            b"{\"result\":null}",
            b"{\"result\":[1]}",
            b"{\"EVALSHA\":[false]}",
            b"*-1\r\n",
            b"*99999999999999999999\r\n",
            b"*4294967295\r\n",
            b"$-1\r\n",
            b"+OK\r\n",
            b"*1\r\n$18446744073709551615\r\n",
            b"*1\r\n*1\r\n$1\r\na\r\n",
            b"\r\n",
            b"\n",
            b"\xff\xfe",
        ] {
            assert!(
                is_ambiguous(&understand(engine, &batch, 200, page)),
                "{page:?}"
            );
        }
    }
}

#[test]
fn a_reply_that_the_step_cannot_have_is_a_failure_of_that_step() {
    let steps = [op(1, Action::Claim(claim(1))), op(1, Action::Read)];
    let batch = batch(&steps);
    let (head, state) = (head(), format!("{EPOCH},42,0"));
    for text in [
        "absent",
        "cancelled",
        "applied,x",
        "body,-",
        "",
        "nonsense",
        "failed,ERR x",
    ] {
        let body = &answers(&[&head, &state, text, "absent"])[0];
        let replies = understand(&engines()[0], &batch, 200, body).replies(2);
        assert!(
            matches!(replies[..], [Reply::Failed(_), Reply::Absent]),
            "{text}: {replies:?}"
        );
    }
    for text in ["claimed", "current,", "claimed,1,2,3", "corrupt"] {
        let body = &answers(&[&head, &state, text, "absent"])[0];
        let replies = understand(&engines()[0], &batch, 200, body).replies(2);
        assert_eq!(replies, [Reply::Corrupt, Reply::Absent], "{text}");
    }
}

#[test]
fn a_server_without_the_script_asks_for_it_and_other_errors_do_not() {
    let batch = batch(&[op(1, Action::Read)]);
    let [webdis, rest, resp] = engines();
    for (text, unprepared) in [
        ("NOSCRIPT No matching script. Please use EVAL.", true),
        ("LOADING Redis is loading the dataset in memory", false),
        ("MOVED 1 10.0.0.1:6379", false),
        (
            "READONLY You can't write against a read only replica.",
            false,
        ),
    ] {
        let right = |u: &Understood| (*u == Understood::Unprepared) == unprepared;
        let json = format!("{{\"EVALSHA\":[false,\"{text}\"]}}");
        assert!(right(&understand(&webdis, &batch, 200, json.as_bytes())));
        let json = format!("{{\"error\":\"{text}\"}}");
        assert!(right(&understand(&rest, &batch, 400, json.as_bytes())));
        let line = format!("-{text}\r\n");
        let understood = understand(&resp, &batch, 200, line.as_bytes());
        assert!(right(&understood));
        let [Reply::Failed(why)] = &understood.replies(1)[..] else {
            panic!("no reply is an absence")
        };
        assert!(!why.is_empty());
    }
}

#[test]
fn what_is_sent_needs_no_escape_and_names_the_script() {
    let steps = [
        op(1, Action::Claim(claim(1))),
        op(2, complete(1, 5, 6, 300)),
        op(
            3,
            Action::Cancel {
                owner: claim(1).owner,
            },
        ),
    ];
    let [webdis, rest, resp] = engines();
    let body = webdis.request(&batch(&steps), Script::Known).body;
    let text = String::from_utf8(body).unwrap();
    let command = format!("EVALSHA/{SCRIPT_SHA1}/");
    assert!(text.starts_with(&command));
    assert!(!text.contains(['%', '?', '.', '+', ' ', '\0']), "{text}");
    let request = rest.request(&batch(&steps), Script::Known);
    let words: Vec<String> = serde_json::from_slice(&request.body).unwrap();
    assert_eq!(words.join("/"), text);
    let body = resp.request(&batch(&steps), Script::Known).body;
    let count = format!("*{}\r\n$7\r\nEVALSHA\r\n$40\r\n", words.len());
    assert!(body.starts_with(count.as_bytes()));
    let whole = webdis.request(&batch(&steps), Script::Whole).body;
    let whole = String::from_utf8(whole).unwrap();
    let script = whole.split('/').nth(1).unwrap();
    let decoded = percent_encoding::percent_decode_str(script).decode_utf8();
    assert_eq!(decoded.unwrap(), SCRIPT);
}

#[test]
fn keys_of_an_operation_lie_in_one_slot() {
    let [webdis, ..] = engines();
    for n in 0..40 {
        let steps = [op(n, Action::Claim(claim(1))), op(n, complete(1, 5, 6, 30))];
        let body = webdis.request(&batch(&steps), Script::Known).body;
        let text = String::from_utf8(body).unwrap();
        let tag = format!("{{idempo:{:02}}}:1:", shard_of(&id(n)));
        let keys: usize = text.split('/').nth(2).unwrap().parse().unwrap();
        assert_eq!(text.matches(&tag).count(), keys);
        assert_eq!(keys, 9);
    }
    // A brace in the name would move the tag.
    let layout = Layout::new("a{b}c:d e");
    assert_eq!(layout.shard(3)[1], "{abcde:03}:1:seq");
}

#[test]
fn credentials_go_into_headers_and_commands_and_nowhere_else() {
    let secret = || Credential::new("s3cret".into());
    let login = Login {
        user: None,
        password: secret(),
    };
    for (transport, header) in [
        (
            Transport::Webdis {
                authorization: Some(secret()),
            },
            Some("s3cret"),
        ),
        (
            Transport::Rest {
                token: Some(secret()),
            },
            Some("Bearer s3cret"),
        ),
        (Transport::Resp { login: Some(login) }, None),
    ] {
        let engine = Redis::new(transport, Layout::default());
        let request = engine.request(&batch(&[op(1, Action::Read)]), Script::Known);
        let found = request
            .headers
            .iter()
            .find(|(name, _)| *name == "authorization");
        assert_eq!(found.map(|(_, value)| value.as_str()), header);
        let in_body = memchr::memmem::find(&request.body, b"s3cret").is_some();
        assert_eq!(in_body, header.is_none());
        assert!(!format!("{engine:?} {request:?}").contains("s3cret"));
    }
}

#[test]
fn a_login_that_is_refused_is_no_answer() {
    let login = Login {
        user: Some("u".into()),
        password: Credential::new("p".into()),
    };
    let engine = Redis::new(Transport::Resp { login: Some(login) }, Layout::default());
    let batch = batch(&[op(1, Action::Read)]);
    let (head, state) = (head(), format!("{EPOCH},42,0"));
    let [.., good] = answers(&[&head, &state, "absent"]);
    let with = |first: &[u8]| [first, good.as_slice()].concat();
    let right = understand(&engine, &batch, 200, &with(b"+OK\r\n"));
    assert_eq!(right.replies(1), [Reply::Absent]);
    for first in [&b"-WRONGPASS no\r\n"[..], b"", b":1\r\n", b"+OK"] {
        assert!(is_ambiguous(&understand(
            &engine,
            &batch,
            200,
            &with(first)
        )));
    }
}

#[test]
fn a_sweeps_answer_is_read_or_is_none() {
    let nonce = Nonce([7; 16]);
    let (head, state, id) = (head(), format!("{EPOCH},42,0"), id(1));
    let engine = &engines()[0];
    let read = |texts: &[&str]| {
        let body = &answers(texts)[0];
        engine.understand_sweep(&nonce, 3, HttpAnswer { status: 200, body })
    };
    let one = format!("swept,5,6,7|{id}=corrupt");
    let swept = read(&[&head, &state, &one]).unwrap();
    assert_eq!((swept.open, swept.unknown, swept.expired), (5, 6, 7));
    assert_eq!((swept.state.shard, swept.noted), (3, vec![(id, None)]));
    for text in [
        "",
        "swept",
        "swept,1,2",
        "swept,1,2,x",
        "failed,x",
        "swept,1,2,3|zz=1",
        "swept,1,2,3|",
    ] {
        assert!(read(&[&head, &state, text]).is_err(), "{text}");
    }
    assert!(read(&[&head, &state]).is_err());
    assert!(read(&[&head, &state, &one, &one]).is_err());
}

#[cfg(not(target_arch = "wasm32"))]
mod properties {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_answer_panics(octets in prop::collection::vec(any::<u8>(), 0..200), text in "[,:;|=a-zA-Z0-9-]{0,80}") {
            let batch = batch(&[op(1, Action::Read)]);
            let (head, state) = (head(), format!("{EPOCH},42,0"));
            let current = format!("current,{text}");
            for (engine, good) in engines().iter().zip(answers(&[&head, &state, &current])) {
                let _ = understand(engine, &batch, 200, &octets);
                let replies = understand(engine, &batch, 200, &good).replies(1);
                prop_assert_eq!(replies, [Reply::Corrupt]);
            }
        }
    }
}
