//! Where a request's time goes, without a host: the core natively, against a host that counts.
//!
//! [`Worker`] does what `filter/wasm/src/stream.rs` does with each callback and each effect, call for
//! call, so the counts are those of the module in Envoy. The nanoseconds are native ones: wasm takes
//! about twice that, and every host call takes Envoy's time besides. What they are good for is the
//! proportion between the parts, and a profiler (`perf record target/release/bench core`).

use crate::{
    load::{BODY, Key, rng},
    variant,
};
use idempo_core::{
    config,
    exchange::{Edit, Effect, Exchange, Moment, Origin, Policy, Seed},
    http::Headers,
    pairs,
    plan::{SharedDataStore, Store},
    store::table::{
        SharedData, Table,
        fake::{Cost, Fake},
    },
    tenant::Facts,
};
use std::{
    cell::Cell,
    collections::VecDeque,
    fmt::Write as _,
    sync::Arc,
    time::{Duration, Instant},
};

/// Host calls by kind, summed over some requests.
#[derive(Clone, Copy, Debug, Default)]
struct Calls {
    clock: u64,
    header_maps: u64,
    header_edits: u64,
    bodies: u64,
    properties: u64,
    filter_state: u64,
    metrics: u64,
    logs: u64,
    replies: u64,
    shared: Cost,
}

/// One worker's VM with nothing around it.
struct Worker {
    policy: Arc<Policy>,
    table: Table,
    shared: Fake,
    calls: Calls,
    properties: Cell<u64>,
    /// Time spent in the table's steps.
    in_table: Duration,
    counter: u64,
    replayed: bool,
    forwarded: bool,
    now_ms: u64,
}

/// An Envoy route that says nothing about idempo.
struct NoFacts<'a>(&'a Cell<u64>);

impl Facts for NoFacts<'_> {
    fn property(&self, _path: &[&str]) -> Option<Vec<u8>> {
        self.0.set(self.0.get() + 1);
        None
    }
}

impl Worker {
    fn new() -> Result<Self, String> {
        let text = variant::idempo().to_string();
        let plan = config::parse(text.as_bytes()).map_err(|e| e.to_string())?;
        let Store::SharedData(store) = &plan.store else {
            panic!("the benchmark's plan keeps its records in shared data");
        };
        let mut table = Table::new(store);
        let mut shared = Fake::new();
        let now_ms = 1_800_000_000_000;
        table
            .open(&mut shared, now_ms, [7; 16])
            .map_err(|e| e.to_string())?;
        let policy = Policy {
            plan,
            signer: None,
            proxy: "bench".into(),
            remembers_since: Some(now_ms),
        };
        Ok(Self {
            policy: Arc::new(policy),
            table,
            shared,
            calls: Calls::default(),
            properties: Cell::new(0),
            in_table: Duration::ZERO,
            counter: 0,
            replayed: false,
            forwarded: false,
            now_ms,
        })
    }

    fn now(&mut self) -> Moment {
        self.calls.clock += 1;
        Moment {
            wall_us: self.now_ms * 1000,
            store_ms: self.now_ms,
        }
    }

    fn carry_out(&mut self, exchange: &mut Exchange, effects: Vec<Effect>, now: Moment) {
        let mut queue = VecDeque::from(effects);
        while let Some(effect) = queue.pop_front() {
            match effect {
                Effect::Store(op) => {
                    let start = Instant::now();
                    let reply = self.table.apply(&mut self.shared, &op, now.store_ms);
                    self.in_table += start.elapsed();
                    let mut more = Vec::new();
                    exchange.on_store(reply, now, &mut more);
                    queue.extend(more);
                }
                Effect::Request(edits) => {
                    self.calls.header_edits += edits.len() as u64;
                    self.forwarded = edits.iter().any(|e| matches!(e, Edit::Set(..)));
                }
                Effect::Response(edits) => self.calls.header_edits += edits.len() as u64,
                Effect::Reply(reply) => {
                    self.calls.replies += 1;
                    // The content type, in the reply's own pass through the filter.
                    self.calls.header_edits += 1;
                    let marker = (b"idempotent-replayed".as_slice(), b"true".as_slice());
                    self.replayed = reply
                        .headers
                        .iter()
                        .any(|(n, v)| (n.as_slice(), v.as_slice()) == marker);
                    std::hint::black_box(pairs::write(&reply.headers));
                }
                // The board on which nobody waits.
                Effect::Wake(_) => {
                    let _ = self.shared.get("idempo/1/w/0");
                }
                Effect::Count(_) | Effect::Time(..) => self.calls.metrics += 1,
                Effect::Show(..) => self.calls.filter_state += 1,
                Effect::Log(..) => self.calls.logs += 1,
                // Nothing here fails or waits, and no note of an unknown operation is there.
                Effect::Suspect(..)
                | Effect::NoteUnknown(..)
                | Effect::Defer(_)
                | Effect::Retry
                | Effect::Send(_)
                | Effect::Wait(_) => {}
            }
        }
    }

    /// One request as the host brings it; the upstream's answer where it is forwarded.
    fn request(&mut self, path: &str, key: &Key) {
        self.counter += 1;
        (self.replayed, self.forwarded) = (false, false);
        let seed = Seed {
            vm: [1; 16],
            counter: self.counter,
        };
        let mut exchange = Exchange::new(Arc::clone(&self.policy), seed);
        let length = BODY.len().to_string();
        let lines: [(&[u8], &[u8]); 11] = [
            (b":authority", b"bench.test"),
            (b":path", path.as_bytes()),
            (b":method", b"POST"),
            (b":scheme", b"http"),
            (b"content-type", b"application/json"),
            (b"content-length", length.as_bytes()),
            (b"idempotency-key", key.as_bytes()),
            (b"x-forwarded-for", b"127.0.0.1"),
            (b"x-forwarded-proto", b"http"),
            (b"x-envoy-internal", b"true"),
            (b"x-request-id", b"7f0f6a5e-5c5b-4f9f-9a55-0a9a6dfd2c11"),
        ];
        self.calls.header_maps += 1;
        // Envoy's serialised map is parsed, not handed over.
        let headers: Headers = lines.into_iter().collect();
        let Some(headers) = pairs::read(&pairs::write(headers.lines())) else {
            return;
        };
        let now = self.now();
        let mut out = Vec::new();
        let facts = NoFacts(&self.properties);
        exchange.on_request_headers(headers, false, &facts, now, &mut out);
        self.carry_out(&mut exchange, out, now);
        if exchange.gathered().is_some() {
            self.calls.bodies += 1;
            let now = self.now();
            let mut out = Vec::new();
            exchange.on_request_chunk(BODY.as_bytes().to_vec(), true, now, &mut out);
            self.carry_out(&mut exchange, out, now);
        }
        if exchange.wants_response() {
            self.answer(&mut exchange);
        }
    }

    fn answer(&mut self, exchange: &mut Exchange) {
        let body = [b'x'; variant::ANSWER];
        let headers: Headers = [
            (":status", "201"),
            ("content-type", "application/json"),
            ("location", "/v1/charges/ch_00000001"),
            ("content-length", "1024"),
            ("date", "Mon, 30 Nov 2026 12:00:00 GMT"),
            ("server", "envoy"),
            ("x-envoy-upstream-service-time", "1"),
        ]
        .into_iter()
        .collect();
        self.calls.header_maps += 1;
        self.calls.properties += 2;
        let origin = Origin {
            details: "via_upstream",
            attempts: &|| Some(1),
            can_hold: true,
        };
        let now = self.now();
        let mut out = Vec::new();
        exchange.on_response_headers(&headers, false, &origin, now, &mut out);
        self.carry_out(exchange, out, now);
        self.calls.bodies += 1;
        let now = self.now();
        let mut out = Vec::new();
        exchange.on_response_body(&body, true, now, &mut out);
        self.carry_out(exchange, out, now);
    }

    /// Octets of records (not of answers) in shared data.
    fn record_octets(&self) -> u64 {
        self.shared
            .iter()
            .filter(|(key, _)| key.starts_with("idempo/1/r/"))
            .map(|(_, value)| value.len() as u64)
            .sum()
    }
}

/// What one kind of request took, over `count` of them.
struct Figures {
    title: String,
    count: u64,
    whole: Duration,
    in_table: Duration,
    calls: Calls,
}

fn measure(
    worker: &mut Worker,
    title: &str,
    path: &str,
    keys: &[Key],
    replays: bool,
) -> Result<Figures, String> {
    worker.calls = Calls::default();
    worker.shared.cost = Cost::default();
    worker.properties.set(0);
    worker.in_table = Duration::ZERO;
    let start = Instant::now();
    for key in keys {
        worker.request(path, key);
        // A refusal would be quick, and measure nothing.
        if worker.replayed != replays || worker.forwarded == replays {
            return Err(format!(
                "{title}: forwarded {}, replayed {}",
                worker.forwarded, worker.replayed
            ));
        }
    }
    let whole = start.elapsed();
    let mut calls = worker.calls;
    calls.properties += worker.properties.get();
    calls.shared = worker.shared.cost;
    Ok(Figures {
        title: title.into(),
        count: keys.len() as u64,
        whole,
        in_table: worker.in_table,
        calls,
    })
}

fn keys(count: usize) -> Vec<Key> {
    let mut rng = rng();
    (0..count).map(|_| Key::random(&mut rng)).collect()
}

/// How many settled operations take 40 % of the default budget for records.
pub(crate) fn two_fifths_of_the_table() -> Result<usize, String> {
    const SAMPLE: usize = 2_000;
    let mut worker = Worker::new()?;
    let before = worker.record_octets();
    for key in keys(SAMPLE) {
        worker.request(variant::KEPT, &key);
    }
    let each = (worker.record_octets() - before) / SAMPLE as u64;
    let filling = SharedDataStore::default().records_bytes / 5 * 2 / each.max(1);
    usize::try_from(filling).map_err(|e| e.to_string())
}

/// Measures and gives the report as Markdown.
pub(crate) fn run(count: usize) -> Result<String, String> {
    let filling = two_fifths_of_the_table()?;
    let mut all = Vec::new();
    for (fill, filling) in [("table nearly empty", 0), ("table 40 % full", filling)] {
        let mut worker = Worker::new()?;
        for key in keys(filling) {
            worker.request(variant::KEPT, &key);
        }
        // In slices that stay small beside the table, so that its fill is what it says.
        let keys = keys(count.min(5_000));
        let first = format!("first attempt, {fill}");
        all.push(measure(&mut worker, &first, variant::KEPT, &keys, false)?);
        let replay = format!("replay of 1 KiB, {fill}");
        all.push(measure(&mut worker, &replay, variant::KEPT, &keys, true)?);
    }
    Ok(render(&all, filling))
}

#[allow(clippy::cast_precision_loss)] // Averages for people.
fn render(all: &[Figures], filling: usize) -> String {
    let mut text = format!(
        "Natively, 1 thread; 40 % full: {filling} operations in the default budget for records.\n\n\
         | | ns per request | of it in the table | host calls | octets in | octets out |\n\
         |---|---:|---:|---:|---:|---:|\n"
    );
    for f in all {
        let each = |n: u64| n as f64 / f.count as f64;
        let ns = |d: Duration| d.as_nanos() / u128::from(f.count);
        let c = &f.calls;
        let sum = c.clock
            + c.header_maps
            + c.header_edits
            + c.bodies
            + c.properties
            + c.filter_state
            + c.metrics
            + c.logs
            + c.replies
            + c.shared.gets
            + c.shared.sets;
        let _ = writeln!(
            text,
            "| {} | {} | {} | {:.1} | {:.0} | {:.0} |",
            f.title,
            ns(f.whole),
            ns(f.in_table),
            each(sum),
            each(c.shared.bytes_in),
            each(c.shared.bytes_out),
        );
    }
    text.push_str(
        "\nHost calls per request, by kind (octets above are those of shared data):\n\n\
         | | clock | header maps | header edits | bodies | properties | filter state | metrics | log | reply | shared get | shared set |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    for f in all {
        let c = &f.calls;
        let _ = write!(text, "| {} |", f.title);
        for n in [
            c.clock,
            c.header_maps,
            c.header_edits,
            c.bodies,
            c.properties,
            c.filter_state,
            c.metrics,
            c.logs,
            c.replies,
            c.shared.gets,
            c.shared.sets,
        ] {
            let _ = write!(text, " {:.1} |", n as f64 / f.count as f64);
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_attempts_run_and_replays_do_not() {
        let mut worker = Worker::new().unwrap();
        let keys = keys(50);
        let first = measure(&mut worker, "first", variant::KEPT, &keys, false).unwrap();
        let replay = measure(&mut worker, "replay", variant::KEPT, &keys, true).unwrap();
        assert!(first.calls.shared.sets >= 2 * 50, "{:?}", first.calls);
        assert_eq!(replay.calls.shared.sets, 0);
        assert_eq!(replay.calls.replies, 50);
        // What was forwarded once must be an error where it is taken for a replay.
        assert!(measure(&mut worker, "x", variant::KEPT, &keys, false).is_err());
    }
}
