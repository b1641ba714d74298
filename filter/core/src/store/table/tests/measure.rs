//! What a step costs. `cargo test --release -p idempo-core measure -- --ignored --nocapture`

use super::super::fake::Fake;
use super::support::*;
use crate::plan::SharedDataStore;
use crate::store::*;
use std::time::Instant;

#[test]
#[ignore = "a measurement, not a test"]
fn claim_complete_and_replay() {
    for fill in [0_u32, 70_000] {
        let sd = &mut Fake::new();
        let mut table = opened(sd, &SharedDataStore::default());
        for n in 0..fill {
            table.apply(sd, &op(n, Action::Claim(claim(n.into()))), 0);
            table.apply(sd, &op(n, complete(n.into(), 0, n.into(), 900)), 0);
        }
        let report = table.sweep(sd, 0, 0, u32::MAX);
        let geometry = super::super::Geometry::of(&SharedDataStore::default());
        println!(
            "{} live, {:.1} MiB charged, {:.1} MiB answers, used {:.2}",
            report.live,
            report.charged_bytes as f64 / 1048576.0,
            report.bodies_bytes as f64 / 1048576.0,
            report.used_ratio(&geometry),
        );
        const N: u32 = 1_000;
        let base = 10_000_000;
        let mut measure = |what: &str, f: &mut dyn FnMut(&mut Fake, u32)| {
            sd.cost = Default::default();
            let start = Instant::now();
            for n in 0..N {
                f(sd, base + n);
            }
            let ns = start.elapsed().as_nanos() / u128::from(N);
            let each = u64::from(N);
            println!(
                "  {what}: {ns} ns, {} gets, {} sets, {} B in, {} B out",
                sd.cost.gets / each,
                sd.cost.sets / each,
                sd.cost.bytes_in / each,
                sd.cost.bytes_out / each
            );
        };
        measure("claim", &mut |sd, n| {
            let reply = table.apply(sd, &op(n, Action::Claim(claim(n.into()))), 1);
            assert!(matches!(reply, Reply::Claimed(_)));
        });
        measure("complete", &mut |sd, n| {
            let reply = table.apply(sd, &op(n, complete(n.into(), 1, n.into(), 900)), 2);
            assert!(matches!(reply, Reply::Applied(_)));
        });
        measure("replay", &mut |sd, n| {
            let Reply::Current(r) = table.apply(sd, &op(n, Action::Claim(claim(1))), 3) else {
                panic!()
            };
            let body = Action::Body {
                incarnation: r.version.incarnation,
            };
            let reply = table.apply(sd, &op(n, body), 3);
            assert!(matches!(reply, Reply::Body(Some(_))));
        });
    }
}
