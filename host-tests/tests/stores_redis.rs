//! What is Redis's own: memory, damage, retention, shards, and answers that are not the store's.

use host_tests::store::Engine;
use host_tests::store::desk::{
    self, Desk, LONG, SHORT, accepted, blob, closed, done, renewed, unknown,
};
use host_tests::store::redis::{PASSWORD, Remote, Server, Way};
use host_tests::store::wire::{Resp, Said};
use idempo_core::ids::OperationId;
use idempo_core::record::{Status, Version, Windows};
use idempo_core::store::redis::{DOUBT_MS, SCRIPT, SCRIPT_SHA1, Script};
use idempo_core::store::remote::{HttpAnswer, SHARDS, Understood, shard_of};
use idempo_core::store::{Action, Full, Op, Reply, Target, contract};
use std::collections::HashSet;

fn key(kind: &str, id: &OperationId) -> String {
    format!("{{idempo:{:02}}}:1:{kind}:{id}", shard_of(id))
}

fn shard_key(name: &str, id: &OperationId) -> String {
    format!("{{idempo:{:02}}}:1:{name}", shard_of(id))
}

fn get(redis: &mut Resp, key: &str) -> String {
    redis.command(&["GET", key]).text()
}

/// Puts other content under a right checksum: the record's fields, and its other parts.
fn forge(
    redis: &mut Resp,
    id: &OperationId,
    edit: impl FnOnce(&mut Vec<String>, &mut Vec<String>),
) {
    let key = key("r", id);
    let text = get(redis, &key);
    let mut parts: Vec<String> = text.split(';').map(str::to_owned).collect();
    let head = parts.remove(0);
    let mut fields: Vec<String> = head.split(',').skip(2).map(str::to_owned).collect();
    edit(&mut fields, &mut parts);
    let fields = format!("{};{}", fields.join(","), parts.join(";"));
    let sum = redis.command(&[
        "EVAL",
        "return string.sub(redis.sha1hex(ARGV[1] .. ARGV[2]), 1, 16)",
        "0",
        &id.hex(),
        &fields,
    ]);
    let value = format!("1,{},{fields}", sum.text());
    let said = redis.command(&["SET", key.as_str(), &value, "KEEPTTL"]);
    assert_eq!(said, Said::Status("OK".into()));
}

#[test]
fn the_script_is_known_by_its_digest() {
    let server = Server::start(&[]);
    let said = server.admin().command(&["SCRIPT", "LOAD", SCRIPT]);
    assert_eq!(said.text(), SCRIPT_SHA1, "SCRIPT_SHA1 is out of date");
}

#[test]
fn a_server_that_lost_the_script_is_sent_it_again() {
    let server = Server::start(&[]);
    for way in [Way::Webdis, Way::Rest, Way::Resp] {
        server.admin().command(&["SCRIPT", "FLUSH"]);
        let mut remote = Remote::new(&server, way);
        Desk::new(&mut remote, &format!("{way:?}")).claims(1);
        assert_eq!(remote.unprepared(), 1);
        server.admin().command(&["SCRIPT", "FLUSH"]);
        Desk::new(&mut remote, &format!("{way:?}")).claims(1);
        assert_eq!(remote.unprepared(), 2);
    }
}

#[test]
fn of_many_that_claim_at_once_one_wins() {
    let server = Server::start(&[]);
    let won: Vec<u64> = std::thread::scope(|scope| {
        let claimant = |owner| {
            let server = &server;
            scope.spawn(move || {
                let mut remote = Remote::new(server, Way::Resp);
                let mut desk = Desk::new(&mut remote, "race");
                let claim = Action::Claim(desk.claim(owner));
                let wins = |n| matches!(desk.call(&[(n, claim.clone())])[..], [Reply::Claimed(_)]);
                (0..200).map(wins).filter(|won| *won).count() as u64
            })
        };
        let claimants: Vec<_> = (0..4).map(claimant).collect();
        claimants.into_iter().map(|c| c.join().unwrap()).collect()
    });
    assert_eq!(won.iter().sum::<u64>(), 200, "{won:?}");
}

/// A server that takes another's place, or starts again, has another history. What it may lack is not
/// claimed for a while, whoever asks; what it has is as it was, and can be ended.
#[test]
fn another_server_is_doubted_for_a_while() {
    for way in [Way::Webdis, Way::Resp] {
        let server = Server::start(&[]);
        let mut redis = server.admin();
        let mut remote = Remote::new(&server, way);
        for shard in 0..SHARDS {
            remote.sweep(shard, 0);
        }
        let mut desk = Desk::new(&mut remote, &format!("doubt {way:?}"));
        let unknown = |desk: &mut Desk<'_>| {
            let end = desk.by_owner(1, 5, unknown());
            match desk
                .call(&[(3, Action::Claim(desk.claim(1))), (3, end)])
                .pop()
            {
                Some(Reply::Applied(record)) => record.version,
                other => panic!("{other:?}"),
            }
        };
        let expect = unknown(&mut desk);
        desk.claims(1);
        let claims: Vec<_> = [2, 4].map(|n| (n, Action::Claim(desk.claim(1)))).into();
        desk.call(&claims);
        let place = shard_key("server", &desk.id(1));
        let history = get(&mut redis, &place);
        assert!(history.ends_with(",0"), "{history}: no doubt at first");

        // Promoted: the same data, another history.
        redis.command(&["REPLICAOF", "127.0.0.1", "1"]);
        redis.command(&["REPLICAOF", "NO", "ONE"]);
        let take_over = Action::TakeOver {
            claim: desk.claim(7),
            expect,
        };
        let steps = [
            (1, Action::Claim(desk.claim(1))),
            (1, Action::Claim(desk.claim(2))),
            (1, desk.by_owner(1, 5, done(5))),
            (2, desk.cancel(1)),
            (2, Action::Claim(desk.claim(2))),
            (3, take_over.clone()),
            (4, desk.by_owner(1, 5, renewed(LONG))),
            (5, desk.by_owner(1, 5, done(5))),
            (6, Action::Claim(desk.claim(1))),
            (6, Action::Read),
        ];
        let replies = desk.call(&steps);
        let names: Vec<_> = replies.iter().map(Reply::name).collect();
        let right = [
            "claimed",
            "current",
            "applied",
            "cancelled",
            "recovering",
            "recovering",
            "applied",
            "applied",
            "recovering",
            "absent",
        ];
        assert_eq!(names, right);
        let Reply::Recovering(left) = replies[4] else {
            panic!("for how long");
        };
        assert_eq!(left, DOUBT_MS);
        let now = desk.now();
        let seen = get(&mut redis, &place);
        assert_ne!(seen.split(',').next(), history.split(',').next());
        assert_eq!(
            seen.split(',').nth(1),
            Some((now + DOUBT_MS).to_string().as_str())
        );
        desk.wait(3);
        desk.call(&[(6, Action::Claim(desk.claim(2)))]);
        assert_eq!(get(&mut redis, &place), seen, "it ends when it said");
        let state = |remote: &Remote, n: &OperationId| {
            let shards = &remote.last().shards;
            shards
                .iter()
                .find(|s| s.shard == shard_of(n))
                .unwrap()
                .doubt_until
        };
        let six = desk.id(6);
        // Then it is over.
        for shard in 0..SHARDS {
            let place = format!("{{idempo:{shard:02}}}:1:server");
            if let Said::Text(Some(text)) = redis.command(&["GET", &place]) {
                let text = String::from_utf8(text).unwrap();
                let (id, _) = text.split_once(',').unwrap();
                redis.command(&["SET", &place, &format!("{id},{}", now - 1)]);
            }
        }
        let steps = [(6, Action::Claim(desk.claim(3))), (3, take_over)];
        let names: Vec<_> = desk.call(&steps).iter().map(Reply::name).collect();
        assert_eq!(names, ["claimed", "claimed"]);
        assert_eq!(state(&remote, &six), Some(0));
    }
}

/// A user that may not ask, as with a hosted Redis: what tells two servers apart is missing, and is said so.
#[test]
fn a_server_that_may_not_be_asked_which_one_it_is_says_so() {
    let server = Server::start(&[]);
    server
        .admin()
        .command(&["ACL", "SETUSER", "default", "-info"]);
    let mut remote = Remote::new(&server, Way::Resp);
    let mut desk = Desk::new(&mut remote, "anonymous");
    desk.claims(1);
    let shards = &remote.last().shards;
    assert!(!shards.is_empty());
    assert!(shards.iter().all(|s| s.doubt_until.is_none()), "{shards:?}");
}

#[test]
fn at_maxmemory_new_claims_are_refused_and_what_runs_is_recorded() {
    let server = Server::start(&["--maxmemory", "64mb", "--maxmemory-policy", "noeviction"]);
    let mut redis = server.admin();
    let mut remote = Remote::new(&server, Way::Webdis);
    let mut desk = Desk::new(&mut remote, "memory");
    let claims: Vec<_> = (1..9).map(|n| (n, Action::Claim(desk.claim(1)))).collect();
    let seen: Vec<Version> = desk
        .call(&claims)
        .iter()
        .map(|reply| match reply {
            Reply::Claimed(record) => record.version,
            other => panic!("{other:?}"),
        })
        .collect();
    // Far below what is used: a limit just reached would be left again by the next freed buffer.
    redis.command(&["CONFIG", "SET", "maxmemory", "500000"]);
    assert!(matches!(redis.command(&["SET", "k", "v"]), Said::Error(_)));
    let full = Reply::Full(Full::Store);
    let new = Action::Claim(desk.claim(1));
    // Alone, and before or behind others: memory is asked for once in a call.
    assert_eq!(desk.call(&[(20, new.clone())]), [full]);
    let mut lease = desk.claim(2);
    lease.not_after = 0;
    let steps = [
        (20, new.clone()),
        (1, desk.by_owner(1, 5, done(5))),
        (21, new.clone()),
        (2, desk.by_owner(1, 5, unknown())),
        (3, desk.by_owner(1, 5, accepted(5, LONG))),
        (4, desk.by_owner(1, 5, renewed(LONG))),
        (
            5,
            desk.by_operator(seen[4], &[Status::Pending], 5, closed()),
        ),
        (6, desk.cancel(1)),
        (7, Action::Claim(desk.claim(1))),
        (8, Action::Claim(desk.claim(2))),
        (22, desk.by_owner(1, 5, done(5))),
        (23, Action::Claim(lease)),
        (24, Action::Read),
        (25, new),
    ];
    let names: Vec<_> = desk.call(&steps).iter().map(Reply::name).collect();
    let right = [
        "full",
        "applied",
        "full",
        "applied",
        "applied",
        "applied",
        "applied",
        "cancelled",
        "claimed",
        "current",
        "applied",
        "too_late",
        "absent",
        "full",
    ];
    assert_eq!(names, right);
    let body = Action::Body {
        incarnation: desk.token(1).incarnation(),
    };
    assert_eq!(desk.call(&[(1, body)]), [Reply::Body(Some(blob(5)))]);
    // With room again, claims are taken again.
    redis.command(&["CONFIG", "SET", "maxmemory", "64mb"]);
    let new = Action::Claim(desk.claim(1));
    assert!(matches!(desk.call(&[(20, new)])[..], [Reply::Claimed(_)]));
}

#[test]
fn a_poisoned_operation_fails_alone() {
    let server = Server::start(&[]);
    let mut redis = server.admin();
    let mut remote = Remote::new(&server, Way::Webdis);
    let mut desk = Desk::new(&mut remote, "poison");
    redis.command(&["LPUSH", &key("r", &desk.id(2)), "a list"]);
    // The shard's own keys too: whoever wrote there has broken that shard, and no other.
    let broken = (3..).find(|n| shard_of(&desk.id(*n)) != shard_of(&desk.id(1)));
    let broken = broken.unwrap();
    redis.command(&["LPUSH", &shard_key("open", &desk.id(broken)), "a list"]);
    let steps = [
        (1, Action::Claim(desk.claim(1))),
        (2, Action::Claim(desk.claim(1))),
        (2, Action::Read),
        (2, desk.cancel(1)),
        (2, desk.by_owner(1, 5, done(5))),
        (broken, Action::Claim(desk.claim(1))),
        (1, desk.by_owner(1, 5, done(5))),
    ];
    let names: Vec<_> = desk.call(&steps).iter().map(Reply::name).collect();
    let right = [
        "claimed", "corrupt", "corrupt", "corrupt", "corrupt", "failed", "applied",
    ];
    assert_eq!(names, right);
    assert_eq!(
        redis.command(&["LLEN", &key("r", &desk.id(2))]).number(),
        1,
        "what is not ours is left alone"
    );
    // A step that failed halfway can be repeated.
    redis.command(&["DEL", &shard_key("open", &desk.id(broken))]);
    let again = Action::Claim(desk.claim(1));
    assert!(matches!(
        desk.call(&[(broken, again)])[..],
        [Reply::Claimed(_)]
    ));
}

#[test]
fn a_damaged_record_is_corrupt_to_every_step_and_left_alone() {
    let server = Server::start(&[]);
    let mut redis = server.admin();
    let mut remote = Remote::new(&server, Way::Rest);
    let mut desk = Desk::new(&mut remote, "damage");
    let version = desk.claims(1).version;
    let key = key("r", &desk.id(1));
    let good = get(&mut redis, &key);
    let other = good.replace("1,", "2,");
    let mut cut = good.clone();
    cut.truncate(good.len() - 9);
    let mut flipped = good.clone().into_bytes();
    flipped[40] ^= 1;
    let flipped = String::from_utf8(flipped).unwrap();
    for bad in ["", "1,", "nonsense", &other, &cut, &flipped] {
        redis.command(&["SET", key.as_str(), bad]);
        let steps = [
            (1, Action::Read),
            (1, Action::Claim(desk.claim(1))),
            (1, Action::Claim(desk.claim(2))),
            (1, desk.by_owner(1, 5, done(5))),
            (
                1,
                desk.by_operator(version, &[Status::Pending], 6, closed()),
            ),
            (1, desk.cancel(1)),
            (
                1,
                Action::Body {
                    incarnation: version.incarnation,
                },
            ),
        ];
        assert_eq!(
            desk.call(&steps),
            vec![Reply::Corrupt; steps.len()],
            "{bad:?}"
        );
        assert_eq!(get(&mut redis, &key), bad);
    }
    // The record of one operation under another's key.
    redis.command(&["SET", key.as_str(), &good]);
    let elsewhere = self::key("r", &desk.id(2));
    redis.command(&["SET", elsewhere.as_str(), &good]);
    assert_eq!(desk.call(&[(2, Action::Read)]), [Reply::Corrupt]);
    // A part that the script does not look into.
    forge(&mut redis, &desk.id(1), |_, parts| parts[0] = "AAAA".into());
    assert_eq!(desk.step(Action::Read), Reply::Corrupt);
}

#[test]
fn records_of_a_neighbouring_version_pass_through_untouched() {
    let server = Server::start(&[]);
    let mut redis = server.admin();
    let mut remote = Remote::new(&server, Way::Resp);
    let mut desk = Desk::new(&mut remote, "formats");
    // A newer filter has written a field that this one does not know, sealed as records are.
    let claim = desk.claims(1);
    let mut newer = String::new();
    forge(&mut redis, &desk.id(1), |_, parts| {
        newer = with_unknown_field(&parts[0]);
        parts[0].clone_from(&newer);
    });
    assert_eq!(desk.reads(), claim, "the rest of it is read");
    let settle = desk.by_owner(1, 5, done(5));
    assert!(matches!(desk.step(settle), Reply::Applied(_)));
    let text = get(&mut redis, &key("r", &desk.id(1)));
    assert_eq!(
        text.split(';').nth(1),
        Some(newer.as_str()),
        "carried along"
    );
    // And beside it one without.
    let own = Action::Claim(desk.claim(2));
    assert!(matches!(desk.call(&[(2, own)])[..], [Reply::Claimed(_)]));
    assert_eq!(desk.reads().state.status(), Status::Completed);
}

/// Adds field 200 to sealed octets, and seals them again.
fn with_unknown_field(text: &str) -> String {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    let mut octets = URL_SAFE_NO_PAD.decode(text).unwrap();
    octets.extend_from_slice(&[0xc0, 0x0c, 0x2a]);
    let sum = xxhash_rust::xxh3::xxh3_64_with_seed(&octets[6..], u64::from(octets[1]));
    octets[2..6].copy_from_slice(&sum.to_be_bytes()[..4]);
    URL_SAFE_NO_PAD.encode(octets)
}

#[test]
fn each_key_is_kept_for_as_long_as_it_is_worth_something() {
    let server = Server::start(&[]);
    let mut redis = server.admin();
    let mut remote = Remote::new(&server, Way::Resp);
    let mut desk = Desk::new(&mut remote, "retention");
    desk.windows = Windows {
        replay_ms: 100_000,
        tombstone_ms: 700_000,
    };
    desk.lease = 5_000;
    let mut expiry = |key: &str| redis.command(&["PEXPIRETIME", key]).number() as u64;
    desk.claims(1);
    let (record, body) = (key("r", &desk.id(1)), key("b", &desk.id(1)));
    // Unsettled: both windows after the lease, and the tombstone's.
    assert_eq!(expiry(&record), desk.now() + 5_000 + 800_000 + 700_000);
    let accept = desk.by_owner(1, 5, accepted(5, 9_000));
    let Reply::Applied(seen) = desk.step(accept) else {
        panic!("accepted")
    };
    assert_eq!(expiry(&record), desk.now() + 9_000 + 800_000 + 700_000);
    assert_eq!(expiry(&body), desk.now() + 9_000, "to its deadline");
    let settle = desk.by_operator(seen.version, &[Status::Accepted], 6, done(6));
    desk.step(settle);
    let at = desk.now();
    assert_eq!(expiry(&record), at + 800_000);
    assert_eq!(expiry(&body), at + 100_000, "exactly the replay window");
    // Evidence that comes later moves neither.
    desk.wait(3);
    let late = desk.by_owner(2, 7, done(7));
    assert!(matches!(desk.step(late), Reply::Stale(_)));
    assert_eq!(
        (expiry(&record), expiry(&body)),
        (at + 800_000, at + 100_000)
    );
    // What a person closes keeps no answer.
    let steps = [
        (2, Action::Claim(desk.claim(1))),
        (2, desk.by_owner(1, 5, accepted(5, LONG))),
    ];
    let [_, Reply::Applied(seen)] = &desk.call(&steps)[..] else {
        panic!("accepted")
    };
    let close = desk.by_operator(seen.version, &[Status::Accepted], 6, closed());
    desk.call(&[(2, close)]);
    assert_eq!(expiry(&key("b", &desk.id(2))) as i64, -2);
    desk.call(&[(3, desk.cancel(8))]);
    let mark = format!(
        "{}:{}",
        key("x", &desk.id(3)),
        idempo_core::ids::hex_of(&desk.token(8).0)
    );
    assert_eq!(expiry(&mark), desk.now() + 600_000);
}

#[test]
fn a_missing_answer_inside_its_window_is_told_from_none() {
    let server = Server::start(&[]);
    let mut redis = server.admin();
    let mut remote = Remote::new(&server, Way::Webdis);
    let mut desk = Desk::new(&mut remote, "missing");
    let incarnation = desk.claims(1).version.incarnation;
    let settle = desk.by_owner(1, 5, done(5));
    desk.step(settle);
    let (body, key) = (Action::Body { incarnation }, key("b", &desk.id(1)));
    let good = get(&mut redis, &key);
    assert_eq!(desk.step(body.clone()), Reply::Body(Some(blob(5))));
    // Another claim's, another write's, half of one, damaged, of another type, none.
    let (_, rest) = good.split_once(',').unwrap();
    let other_claim = format!("0000000000000001,{rest}");
    let other_write = good.replace("0000000000000005", "0000000000000006");
    let damaged = format!("{good}!");
    for bad in [&other_claim, &other_write, &good[..20], &damaged] {
        redis.command(&["SET", key.as_str(), bad]);
        assert_eq!(desk.step(body.clone()), Reply::Body(None), "{bad}");
    }
    redis.command(&["DEL", &key]);
    assert_eq!(desk.step(body.clone()), Reply::Body(None));
    redis.command(&["LPUSH", &key, "a list"]);
    assert_eq!(desk.step(body), Reply::Body(None));
    assert_eq!(desk.reads().state.status(), Status::Completed);
}

#[test]
fn open_and_unknown_operations_are_listed_by_when_they_are_due() {
    let server = Server::start(&[]);
    let mut redis = server.admin();
    let mut remote = Remote::new(&server, Way::Resp);
    let mut desk = Desk::new(&mut remote, "open");
    let (id, hex) = (desk.id(1), desk.id(1).hex());
    let mut due = || {
        ["open", "unknown"].map(|list| {
            match redis.command(&["ZSCORE", &shard_key(list, &id), &hex]) {
                Said::Text(None) => None,
                said => Some(said.text().parse::<f64>().unwrap() as u64),
            }
        })
    };
    desk.claims(1);
    assert_eq!(due(), [Some(desk.now() + LONG), None]);
    let renew = desk.by_owner(1, 4, renewed(2 * LONG));
    desk.step(renew);
    assert_eq!(due(), [Some(desk.now() + 2 * LONG), None]);
    let give_up = desk.by_owner(1, 5, unknown());
    let Reply::Applied(record) = desk.step(give_up) else {
        panic!("unknown")
    };
    assert_eq!(due(), [None, Some(record.expires_at())]);
    let settle = desk.by_owner(1, 6, done(6));
    desk.step(settle);
    assert_eq!(due(), [None, None]);
    desk.call(&[(2, Action::Claim(desk.claim(1)))]);
    desk.call(&[(2, desk.cancel(1))]);
    let open = shard_key("open", &desk.id(2));
    assert_eq!(redis.command(&["ZCARD", &open]).number(), 0);
}

#[test]
fn the_sweep_writes_what_is_due_and_counts() {
    let server = Server::start(&[]);
    let mut redis = server.admin();
    let mut remote = Remote::new(&server, Way::Webdis);
    let mut desk = Desk::new(&mut remote, "sweep");
    let shard = shard_of(&desk.id(0));
    let all: Vec<u32> = (0..)
        .filter(|n| shard_of(&desk.id(*n)) == shard)
        .take(6)
        .collect();
    // Two leases that end, a deadline that does, one that stands, one damaged, one lost.
    let mut short = desk.claim(1);
    short.lease_ms = SHORT;
    let steps = [
        (all[0], Action::Claim(short.clone())),
        (all[1], Action::Claim(short.clone())),
        (all[2], Action::Claim(short.clone())),
        (all[2], desk.by_owner(1, 5, accepted(5, SHORT))),
        (all[3], Action::Claim(desk.claim(1))),
        (all[4], Action::Claim(short.clone())),
        (all[5], Action::Claim(short)),
    ];
    let before = desk.call(&steps);
    redis.command(&["SET", &key("r", &desk.id(all[4])), "damaged"]);
    redis.command(&["DEL", &key("r", &desk.id(all[5]))]);
    desk.wait(SHORT);
    let ids = all.iter().map(|n| desk.id(*n)).collect::<Vec<_>>();
    let counted = remote.sweep(shard, 0);
    assert_eq!((counted.open, counted.unknown, counted.expired), (6, 0, 0));
    assert_eq!(counted.noted, []);
    // In steps of the size it is told, and once.
    let (mut noted, mut expired) = (Vec::new(), 0);
    for left in [4, 2, 1, 1] {
        let swept = remote.sweep(shard, 2);
        assert_eq!(swept.open, left, "{swept:?}");
        assert_eq!(
            swept.state.seq > counted.state.seq,
            !swept.noted.is_empty() || left < 4
        );
        for (id, record) in &swept.noted {
            if let Some(record) = record {
                // As the contract's own sweep has it.
                let n = ids.iter().position(|i| i == id).unwrap();
                let (Reply::Claimed(old) | Reply::Applied(old)) = &before[[0, 1, 3][n]] else {
                    panic!("{before:?}")
                };
                assert_eq!(contract::sweep(old, swept.now).as_ref(), Some(record));
            }
        }
        noted.extend(swept.noted);
        expired += swept.expired;
    }
    let mut settled: Vec<_> = noted
        .iter()
        .filter(|(_, r)| r.is_some())
        .map(|(id, _)| *id)
        .collect();
    settled.sort_unstable();
    let mut right = ids[..3].to_vec();
    right.sort_unstable();
    assert_eq!(settled, right);
    assert!(noted.contains(&(ids[4], None)), "corrupt");
    assert_eq!((noted.len(), expired), (4, 1), "and one lost");
    assert_eq!(remote.sweep(shard, 9).unknown, 3);
}

#[test]
fn a_store_that_forgets_can_be_noticed() {
    let server = Server::start(&[]);
    let mut redis = server.admin();
    let mut remote = Remote::new(&server, Way::Webdis);
    let op = |action| Op {
        operation: OperationId::new("forgets", b"t", "r", b"k"),
        action,
    };
    let claim = desk::claim(
        "forgets",
        1,
        LONG,
        Windows {
            replay_ms: LONG,
            tombstone_ms: LONG,
        },
    );
    let state = |remote: &mut Remote, action| {
        remote.call(&[op(action)]);
        let [state] = remote.last().shards[..] else {
            panic!("one shard")
        };
        assert_eq!(state.shard, shard_of(&op(Action::Read).operation));
        (state.epoch.expect("an epoch"), state.seq)
    };
    let (epoch, seq) = state(&mut remote, Action::Claim(claim.clone()));
    // Reads and repeats write nothing.
    assert_eq!(state(&mut remote, Action::Read), (epoch, seq));
    assert_eq!(
        state(&mut remote, Action::Claim(claim.clone())),
        (epoch, seq)
    );
    let cancel = Action::Cancel { owner: claim.owner };
    assert_eq!(state(&mut remote, cancel), (epoch, seq + 1));
    let names = ["epoch", "seq"].map(|name| shard_key(name, &op(Action::Read).operation));
    for name in &names {
        assert_eq!(redis.command(&["PTTL", name]).number(), -1, "no expiry");
    }
    // A replica that was behind.
    redis.command(&["SET", &names[1], &(seq - 1).to_string()]);
    assert_eq!(state(&mut remote, Action::Read), (epoch, seq - 1));
    // An empty one.
    redis.command(&["FLUSHALL"]);
    let (fresh, _) = state(&mut remote, Action::Read);
    assert_ne!(fresh, epoch);
    assert_eq!(state(&mut remote, Action::Read).0, fresh);
}

#[test]
fn a_tenants_share_of_a_shard_is_bounded() {
    let server = Server::start(&[]);
    let mut remote = Remote::new(&server, Way::Resp);
    let mut desk = Desk::new(&mut remote, "quota");
    desk.windows.replay_ms = SHORT;
    // Operations of one shard; 64 of all are four of each and a margin of six.
    let shard = shard_of(&desk.id(0));
    let all: Vec<u32> = (0..)
        .filter(|n| shard_of(&desk.id(*n)) == shard)
        .take(40)
        .collect();
    let mut claim = desk.claim(1);
    claim.tenant_quota = Some(64);
    let claims: Vec<_> = all
        .iter()
        .map(|n| (*n, Action::Claim(claim.clone())))
        .collect();
    let count = |replies: &[Reply]| {
        let claimed = replies.iter().filter(|r| matches!(r, Reply::Claimed(_)));
        (
            claimed.count(),
            replies
                .iter()
                .filter(|r| **r == Reply::Full(Full::Tenant))
                .count(),
        )
    };
    assert_eq!(count(&desk.call(&claims)), (10, 30));
    // Another tenant is not concerned.
    let mut other = claim.clone();
    other.tenant = idempo_core::ids::TenantDigest::new(b"other");
    let reply = desk.call(&[(all[20], Action::Claim(other))]);
    assert!(matches!(reply[..], [Reply::Claimed(_)]));
    // What is released makes room, and what has expired.
    desk.call(&[
        (all[0], desk.cancel(1)),
        (all[1], desk.by_owner(1, 5, done(5))),
    ]);
    let mut next = desk.claim(2);
    next.tenant_quota = Some(64);
    let more = |desk: &mut Desk<'_>| {
        let claims: Vec<_> = all[30..]
            .iter()
            .map(|n| (*n, Action::Claim(next.clone())))
            .collect();
        count(&desk.call(&claims))
    };
    assert_eq!(more(&mut desk), (1, 9));
    desk.wait(SHORT);
    assert_eq!(more(&mut desk).0, 2, "the one from before, and one more");
}

#[test]
fn a_large_answer_travels_whole() {
    let server = Server::start(&[]);
    for way in [Way::Webdis, Way::Rest, Way::Resp] {
        let mut remote = Remote::new(&server, way);
        let mut desk = Desk::new(&mut remote, &format!("large {way:?}"));
        let large: Vec<u8> = (0..1_u32 << 20).map(|n| ((n * 7) >> 3) as u8).collect();
        let to = Target::Completed {
            outcome: desk::outcome(5),
            blob: Some(large.clone()),
        };
        desk.claims(1);
        let settle = desk.by_owner(1, 5, to);
        assert!(matches!(desk.step(settle), Reply::Applied(_)));
        let body = Action::Body {
            incarnation: desk.token(1).incarnation(),
        };
        assert!(desk.step(body) == Reply::Body(Some(large)), "{way:?}");
    }
}

#[test]
fn an_attempt_seen_is_written_once_a_minute() {
    let server = Server::start(&[]);
    let mut redis = server.admin();
    let mut remote = Remote::new(&server, Way::Resp);
    let mut desk = Desk::new(&mut remote, "seen");
    desk.claims(1);
    let give_up = desk.by_owner(1, 5, unknown());
    desk.step(give_up);
    let before = desk.reads();
    let other = Action::Claim(desk.claim(2));
    assert_eq!(desk.step(other.clone()), Reply::Current(before.clone()));
    forge(&mut redis, &desk.id(1), |fields, _| {
        let seen: u64 = fields[8].parse().unwrap();
        fields[8] = (seen - 60_000).to_string();
    });
    let Reply::Current(after) = desk.step(other) else {
        panic!("unknown still")
    };
    assert_eq!(after.last_seen, desk.now());
    assert_eq!(after.version.counter, before.version.counter + 1);
    assert_eq!((after.state, after.history), (before.state, before.history));
}

#[test]
fn a_cluster_takes_a_call_for_each_shard() {
    let server = Server::start(&["--cluster-enabled", "yes"]);
    let mut redis = server.admin();
    let said = redis.command(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
    assert_eq!(said, Said::Status("OK".into()));
    while !redis
        .command(&["CLUSTER", "INFO"])
        .text()
        .contains("cluster_state:ok")
    {
        std::thread::yield_now();
    }
    let mut remote = Remote::new(&server, Way::Resp);
    let windows = Windows {
        replay_ms: LONG,
        tombstone_ms: LONG,
    };
    let mut claim = desk::claim("cluster", 1, LONG, windows);
    claim.tenant_quota = Some(1_000);
    let (mut shards, mut one_call) = (HashSet::new(), Vec::new());
    for n in 0..200_u32 {
        let operation = OperationId::new("cluster", b"t", "r", &n.to_be_bytes());
        let op = |action| Op { operation, action };
        let ops = [
            op(Action::Claim(claim.clone())),
            op(Action::Cancel { owner: claim.owner }),
        ];
        shards.insert(shard_of(&operation));
        let (_, replies) = remote.call(&ops);
        assert!(
            matches!(replies[..], [Reply::Claimed(_), Reply::Cancelled]),
            "{replies:?}"
        );
        one_call.push(op(Action::Read));
    }
    assert_eq!(shards.len(), 16);
    // The sweep finds records by itself: all in its shard's slot.
    let short = desk::claim("cluster", 2, 1, windows);
    let op = |action| Op {
        operation: OperationId::new("cluster", b"t", "r", b"sweep"),
        action,
    };
    remote.call(&[op(Action::Claim(short))]);
    remote.advance(1);
    assert_eq!(
        remote
            .sweep(shard_of(&op(Action::Read).operation), 9)
            .noted
            .len(),
        1
    );
    // Across shards it is refused whole, and that is no answer.
    let (_, replies) = remote.call(&one_call[..20]);
    assert!(
        replies.iter().all(|r| matches!(r, Reply::Failed(_))),
        "{replies:?}"
    );
}

#[test]
fn a_password_goes_before_every_call() {
    let server = Server::start(&["--requirepass", PASSWORD]);
    let mut remote = Remote::new(&server, Way::RespWithLogin);
    Desk::new(&mut remote, "login").claims(1);
    let mut without = Remote::new(&server, Way::Resp);
    let read = Op {
        operation: OperationId::new("login", b"t", "r", b"k"),
        action: Action::Read,
    };
    let (_, replies) = without.call(std::slice::from_ref(&read));
    let [Reply::Failed(why)] = &replies[..] else {
        panic!("{replies:?}")
    };
    // Redis's word for it depends on how long the command is.
    let refused = |why: &str| why.contains("NOAUTH") || why.contains("unauthenticated");
    assert!(refused(why), "{why}");
    // The bridge has no password either, and says so as Redis does.
    let (_, replies) = Remote::new(&server, Way::Rest).call(&[read]);
    assert!(matches!(&replies[..], [Reply::Failed(why)] if refused(why)));
}

#[test]
fn a_store_that_is_gone_is_never_an_absence() {
    let mut server = Server::start(&[]);
    let mut remote = Remote::new(&server, Way::Webdis);
    let op = |n: u8| Op {
        operation: OperationId::new("gone", b"t", "r", &[n]),
        action: Action::Read,
    };
    assert_eq!(remote.call(&[op(1)]).1, [Reply::Absent]);
    // The answer to another call, as a confused proxy might give it.
    let first = remote.batch(&[op(1)]);
    let second = remote.batch(&[op(1)]);
    let (status, body) = remote.exchange(&first, Script::Known);
    let understand = |batch, body: &[u8]| {
        remote
            .engine()
            .understand(batch, HttpAnswer { status, body })
    };
    assert!(matches!(understand(&first, &body), Understood::Answered(_)));
    assert!(matches!(
        understand(&second, &body),
        Understood::Ambiguous(_)
    ));
    // Half of it.
    for end in 0..body.len() {
        let half = understand(&first, &body[..end]);
        assert!(matches!(half, Understood::Ambiguous(_)), "{half:?}");
    }
    server.kill();
    let (_, replies) = remote.call(&[op(1), op(2)]);
    assert!(
        matches!(&replies[..], [Reply::Failed(_), Reply::Failed(_)]),
        "{replies:?}"
    );
}
