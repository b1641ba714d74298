//! A Redis in virtual time: the shipped script, run by a Lua 5.1 as Redis has one, over the few commands that
//! it calls. Whatever else it asked for would stop the test.
//!
//! It speaks the transport `rest`: a JSON array of words in, `{"result": …}` out.

use crate::script::{Answer, Seen};
use idempo_core::store::redis::{SCRIPT, SCRIPT_SHA1};
use mlua::{Function, IntoLua as _, Lua, Table, Value, Variadic};
use serde_json::json;
use sha1::{Digest as _, Sha1};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// One server.
#[derive(Clone)]
pub struct Redis(Rc<Inner>);

struct Inner {
    lua: Lua,
    script: Function,
    keys: Rc<RefCell<Keys>>,
    /// Whether the script was sent whole since the start.
    knows_script: Cell<bool>,
}

/// The data and the clock.
struct Keys {
    all: BTreeMap<Vec<u8>, Entry>,
    now_ms: u64,
    /// Which server it says that it is.
    history: u64,
}

struct Entry {
    value: Stored,
    /// Unix milliseconds.
    until: Option<u64>,
}

enum Stored {
    Text(Vec<u8>),
    Sorted(BTreeMap<Vec<u8>, f64>),
}

/// What a command gives, before it is Lua's.
enum Reply {
    Number(i64),
    Text(Vec<u8>),
    Many(Vec<Vec<u8>>),
    Done,
    Nothing,
    WrongType,
}

impl Default for Redis {
    fn default() -> Self {
        let keys = Rc::new(RefCell::new(Keys {
            all: BTreeMap::new(),
            now_ms: 0,
            history: 1,
        }));
        let lua = Lua::new();
        let script = prepare(&lua, &keys).expect("the shipped script is Lua");
        Self(Rc::new(Inner {
            lua,
            script,
            keys,
            knows_script: Cell::new(false),
        }))
    }
}

impl Redis {
    /// Carries a call out.
    ///
    /// # Panics
    /// Where it is no call of the engine's script.
    #[must_use]
    pub fn answer(&self, seen: &Seen) -> Answer {
        self.0.keys.borrow_mut().now_ms = seen.at_ms;
        let words: Vec<String> = serde_json::from_slice(&seen.body).expect("an array of words");
        let known = match words[0].as_str() {
            "EVAL" => {
                assert_eq!(words[1], SCRIPT);
                self.0.knows_script.set(true);
                true
            }
            "EVALSHA" => {
                assert_eq!(words[1], SCRIPT_SHA1);
                self.0.knows_script.get()
            }
            other => panic!("the engine sends no {other}"),
        };
        if !known {
            return Answer::new(
                400,
                &json!({"error": "NOSCRIPT No matching script."}).to_string(),
            );
        }
        let texts = self.run(&words[2..]).expect("the script fails nowhere");
        Answer::new(200, &json!({"result": texts}).to_string())
    }

    /// Everything is lost, the script too, and another server is there.
    pub fn forget(&self) {
        let mut keys = self.0.keys.borrow_mut();
        keys.all.clear();
        keys.history += 1;
        self.0.knows_script.set(false);
    }

    fn run(&self, words: &[String]) -> mlua::Result<Vec<String>> {
        let count: usize = words[0].parse().expect("the number of keys");
        let (keys, args) = words[1..].split_at(count);
        let globals = self.0.lua.globals();
        globals.set("KEYS", keys)?;
        globals.set("ARGV", args)?;
        self.0.script.call(())
    }
}

/// The script, in a Lua with `redis` and what LuaJIT's `bit` has for it.
fn prepare(lua: &Lua, keys: &Rc<RefCell<Keys>>) -> mlua::Result<Function> {
    let redis = lua.create_table()?;
    for (name, raises) in [("call", true), ("pcall", false)] {
        let keys = Rc::clone(keys);
        let command = lua.create_function(move |lua, words: Variadic<Value>| {
            let words: mlua::Result<Vec<_>> = words.iter().map(word).collect();
            let reply = keys.borrow_mut().command(&words?);
            reply.into_lua(lua, raises)
        })?;
        redis.set(name, command)?;
    }
    let sum =
        lua.create_function(|_, text: mlua::String| Ok(hex(&Sha1::digest(text.as_bytes()))))?;
    redis.set("sha1hex", sum)?;
    lua.globals().set("redis", redis)?;
    let bit = lua.create_table()?;
    // 32 bits, as two's complement.
    let low = |n: f64| (n as i64) as u32;
    let xor = move |_: &Lua, (a, b): (f64, f64)| Ok(f64::from((low(a) ^ low(b)).cast_signed()));
    bit.set("bxor", lua.create_function(xor)?)?;
    bit.set(
        "tohex",
        lua.create_function(move |_, n: f64| Ok(format!("{:08x}", low(n))))?,
    )?;
    lua.globals().set("bit", bit)?;
    lua.load(SCRIPT).set_name("engine.lua").into_function()
}

fn word(value: &Value) -> mlua::Result<Vec<u8>> {
    match value {
        Value::String(text) => Ok(text.as_bytes().to_vec()),
        Value::Integer(n) => Ok(n.to_string().into_bytes()),
        Value::Number(n) => Ok(n.to_string().into_bytes()),
        other => Err(mlua::Error::runtime(format!("{other:?} is no argument"))),
    }
}

fn hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

impl Reply {
    fn into_lua(self, lua: &Lua, raises: bool) -> mlua::Result<Value> {
        const WRONG: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
        let table = |name: &str, text: &str| -> mlua::Result<Table> {
            let table = lua.create_table()?;
            table.set(name, text)?;
            Ok(table)
        };
        match self {
            Self::Number(n) => n.into_lua(lua),
            Self::Text(text) => lua.create_string(text)?.into_lua(lua),
            Self::Many(all) => {
                let all: mlua::Result<Vec<_>> = all.iter().map(|t| lua.create_string(t)).collect();
                all?.into_lua(lua)
            }
            Self::Done => table("ok", "OK")?.into_lua(lua),
            Self::Nothing => Ok(Value::Boolean(false)),
            Self::WrongType if raises => Err(mlua::Error::runtime(WRONG)),
            Self::WrongType => table("err", WRONG)?.into_lua(lua),
        }
    }
}

fn number<T: std::str::FromStr>(word: &[u8]) -> T {
    let text = String::from_utf8_lossy(word);
    text.parse()
        .unwrap_or_else(|_| panic!("{text} is no number"))
}

impl Keys {
    fn command(&mut self, words: &[Vec<u8>]) -> Reply {
        let now = self.now_ms;
        self.all
            .retain(|_, entry| entry.until.is_none_or(|until| now < until));
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        match words.as_slice() {
            [b"TIME"] => Reply::Many(vec![
                (now / 1000).to_string().into_bytes(),
                (now % 1000 * 1000).to_string().into_bytes(),
            ]),
            [b"INFO", b"replication"] => Reply::Text(
                format!("role:master\r\nmaster_replid:{:040x}\r\n", self.history).into_bytes(),
            ),
            [b"GET", key] => match self.all.get(*key).map(|e| &e.value) {
                None => Reply::Nothing,
                Some(Stored::Text(text)) => Reply::Text(text.clone()),
                Some(Stored::Sorted(_)) => Reply::WrongType,
            },
            [b"SET", key, value] => self.set(key, value, None),
            [b"SET", key, value, b"PXAT", until] => self.set(key, value, Some(number(until))),
            [b"DEL", key] => Reply::Number(self.all.remove(*key).is_some().into()),
            [b"EXISTS", key] => Reply::Number(self.all.contains_key(*key).into()),
            [b"INCR", key] => {
                let before = match self.all.get(*key).map(|e| &e.value) {
                    Some(Stored::Text(text)) => number(text),
                    Some(Stored::Sorted(_)) => return Reply::WrongType,
                    None => 0_i64,
                };
                self.set(key, (before + 1).to_string().as_bytes(), None);
                Reply::Number(before + 1)
            }
            [b"PERSIST", key] => Reply::Number(self.bound(key, None)),
            [b"PEXPIREAT", key, until] => Reply::Number(self.bound(key, Some(number(until)))),
            [b"PTTL", key] => Reply::Number(match self.all.get(*key).map(|e| e.until) {
                None => -2,
                Some(None) => -1,
                Some(Some(until)) => until.saturating_sub(now).cast_signed(),
            }),
            [b"ZADD", key, b"XX", score, member] => self.rank(key, score, member, true),
            [b"ZADD", key, score, member] => self.rank(key, score, member, false),
            [b"ZREM", key, member] => {
                let removed = self
                    .sorted(key)
                    .is_some_and(|all| all.remove(*member).is_some());
                self.drop_empty(key);
                Reply::Number(removed.into())
            }
            [b"ZCARD", key] => Reply::Number(self.sorted(key).map_or(0, |all| all.len() as i64)),
            [b"ZRANGEBYSCORE", key, b"-inf", most, b"LIMIT", b"0", limit] => {
                let limit = number(limit);
                Reply::Many(
                    self.up_to(key, number(most))
                        .into_iter()
                        .take(limit)
                        .collect(),
                )
            }
            [b"ZREMRANGEBYSCORE", key, b"-inf", most] => {
                let over = self.up_to(key, number(most));
                if let Some(all) = self.sorted(key) {
                    all.retain(|member, _| !over.contains(member));
                }
                self.drop_empty(key);
                Reply::Number(over.len() as i64)
            }
            other => {
                let said: Vec<_> = other.iter().map(|w| String::from_utf8_lossy(w)).collect();
                panic!("the script has not called {} before", said.join(" "))
            }
        }
    }

    fn set(&mut self, key: &[u8], value: &[u8], until: Option<u64>) -> Reply {
        let value = Stored::Text(value.to_vec());
        self.all.insert(key.to_vec(), Entry { value, until });
        Reply::Done
    }

    fn bound(&mut self, key: &[u8], until: Option<u64>) -> i64 {
        let Some(entry) = self.all.get_mut(key) else {
            return 0;
        };
        let changed = entry.until != until;
        entry.until = until;
        changed.into()
    }

    fn sorted(&mut self, key: &[u8]) -> Option<&mut BTreeMap<Vec<u8>, f64>> {
        match self.all.get_mut(key).map(|e| &mut e.value) {
            None => None,
            Some(Stored::Sorted(all)) => Some(all),
            Some(Stored::Text(_)) => panic!("a text among the sorted sets"),
        }
    }

    fn rank(&mut self, key: &[u8], score: &[u8], member: &[u8], only_known: bool) -> Reply {
        if !only_known {
            let empty = || Entry {
                value: Stored::Sorted(BTreeMap::new()),
                until: None,
            };
            self.all.entry(key.to_vec()).or_insert_with(empty);
        }
        let score = number(score);
        let Some(all) = self.sorted(key) else {
            return Reply::Number(0);
        };
        if only_known && !all.contains_key(member) {
            return Reply::Number(0);
        }
        Reply::Number(all.insert(member.to_vec(), score).is_none().into())
    }

    /// Members up to that score, by score and then by name.
    fn up_to(&mut self, key: &[u8], most: f64) -> Vec<Vec<u8>> {
        let mut found: Vec<_> = self
            .sorted(key)
            .into_iter()
            .flat_map(|all| all.iter())
            .filter(|(_, score)| **score <= most)
            .map(|(member, score)| (*score, member.clone()))
            .collect();
        found.sort_by(|a, b| a.0.total_cmp(&b.0).then_with(|| a.1.cmp(&b.1)));
        found.into_iter().map(|(_, member)| member).collect()
    }

    /// Redis has no empty sets.
    fn drop_empty(&mut self, key: &[u8]) {
        if self.sorted(key).is_some_and(|all| all.is_empty()) {
            self.all.remove(key);
        }
    }
}
