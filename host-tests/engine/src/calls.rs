//! The host functions that the module imports, with Envoy's statuses.

use crate::faults::{Fault, status};
use crate::pairs::{self, Lines};
use crate::script::Seen;
use crate::stream::Way;
use crate::worker::{Deferred, Reply, State};
use wasmtime::{Caller, Linker};

type Host<'a> = Caller<'a, State>;

/// Every host function of the module's.
///
/// # Errors
/// Where a name is taken.
pub(crate) fn link(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    of_the_process(linker)?;
    of_streams(linker)?;
    of_shared_data(linker)?;
    of_metrics(linker)?;
    of_the_environment(linker)
}

fn of_the_process(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    linker.func_wrap(
        "env",
        "proxy_log",
        |c: Host<'_>, level: u32, at: u32, size: u32| {
            plain(c, "proxy_log", |c| {
                let text = String::from_utf8_lossy(&read(c, at, size)?).into_owned();
                let worker = c.data().worker;
                c.data().shared.borrow_mut().log.push((worker, level, text));
                Ok(())
            })
        },
    )?;
    linker.func_wrap(
        "env",
        "proxy_get_current_time_nanoseconds",
        |c: Host<'_>, at: u32| {
            number(c, "proxy_get_current_time_nanoseconds", at, 8, |c| {
                Ok(c.data().shared.borrow().now_ns)
            })
        },
    )?;
    linker.func_wrap(
        "env",
        "proxy_set_tick_period_milliseconds",
        |c: Host<'_>, period: u32| {
            plain(c, "proxy_set_tick_period_milliseconds", |c| {
                c.data_mut().tick_ms = period;
                Ok(())
            })
        },
    )?;
    linker.func_wrap(
        "env",
        "proxy_set_effective_context",
        |c: Host<'_>, context: u32| {
            plain(c, "proxy_set_effective_context", |c| {
                let state = c.data_mut();
                if !state.roots.contains(&context) && !state.streams.contains_key(&context) {
                    return Err(status::BAD_ARGUMENT);
                }
                state.effective = context;
                Ok(())
            })
        },
    )?;
    linker.func_wrap("env", "proxy_done", |c: Host<'_>| {
        plain(c, "proxy_done", |c| {
            let root = c.data().effective;
            c.data_mut().done.push(root);
            Ok(())
        })
    })?;
    linker.func_wrap(
        "env",
        "proxy_http_call",
        |c: Host<'_>,
         cluster: u32,
         cluster_size: u32,
         headers: u32,
         headers_size: u32,
         body: u32,
         body_size: u32,
         _trailers: u32,
         _trailers_size: u32,
         timeout: u32,
         token: u32| {
            number(c, "proxy_http_call", token, 4, |c| {
                let seen = Seen {
                    cluster: text(c, cluster, cluster_size)?,
                    headers: map(c, headers, headers_size)?,
                    body: read(c, body, body_size)?,
                    ..Seen::default()
                };
                let named = |name| pairs::first(&seen.headers, name).is_some();
                if !named(":path") || !named(":method") || !named(":authority") {
                    return Err(status::BAD_ARGUMENT);
                }
                c.data_mut().call(seen, timeout).map(u64::from)
            })
        },
    )?;
    Ok(())
}

fn of_streams(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    linker.func_wrap(
        "env",
        "proxy_get_buffer_bytes",
        |c: Host<'_>, kind: u32, start: u32, max: u32, at: u32, size: u32| {
            octets(c, "proxy_get_buffer_bytes", at, size, |c| {
                let whole = c.data().buffer(kind).ok_or(status::NOT_FOUND)?;
                if start.checked_add(max).is_none() {
                    return Err(status::BAD_ARGUMENT);
                }
                let rest = whole.get(start as usize..).ok_or(status::BAD_ARGUMENT)?;
                Ok(rest[..rest.len().min(max as usize)].to_vec())
            })
        },
    )?;
    linker.func_wrap(
        "env",
        "proxy_get_header_map_pairs",
        |c: Host<'_>, kind: u32, at: u32, size: u32| {
            octets(c, "proxy_get_header_map_pairs", at, size, |c| {
                let lines = c.data_mut().map(kind).ok_or(status::BAD_ARGUMENT)?;
                Ok(pairs::serialize(lines))
            })
        },
    )?;
    linker.func_wrap(
        "env",
        "proxy_replace_header_map_value",
        |c: Host<'_>, kind: u32, name: u32, name_size: u32, value: u32, value_size: u32| {
            plain(c, "proxy_replace_header_map_value", |c| {
                let (name, value) = (read(c, name, name_size)?, read(c, value, value_size)?);
                let lines = c.data_mut().map(kind).ok_or(status::BAD_ARGUMENT)?;
                let place = lines.iter().position(|(n, _)| *n == name);
                lines.retain(|(n, _)| *n != name);
                let place = place.unwrap_or(lines.len()).min(lines.len());
                lines.insert(place, (name, value));
                Ok(())
            })
        },
    )?;
    linker.func_wrap(
        "env",
        "proxy_remove_header_map_value",
        |c: Host<'_>, kind: u32, name: u32, name_size: u32| {
            plain(c, "proxy_remove_header_map_value", |c| {
                let name = read(c, name, name_size)?;
                let lines = c.data_mut().map(kind).ok_or(status::BAD_ARGUMENT)?;
                lines.retain(|(n, _)| *n != name);
                Ok(())
            })
        },
    )?;
    linker.func_wrap(
        "env",
        "proxy_get_property",
        |c: Host<'_>, path: u32, path_size: u32, at: u32, size: u32| {
            octets(c, "proxy_get_property", at, size, |c| {
                let path = read(c, path, path_size)?;
                c.data().property(&path).ok_or(status::NOT_FOUND)
            })
        },
    )?;
    linker.func_wrap(
        "env",
        "proxy_set_property",
        |c: Host<'_>, path: u32, path_size: u32, value: u32, value_size: u32| {
            plain(c, "proxy_set_property", |c| {
                let (path, value) = (read(c, path, path_size)?, read(c, value, value_size)?);
                let state = c.data_mut();
                // Filter state belongs to a stream.
                let stream = state.streams.get_mut(&state.effective);
                let stream = stream.ok_or(status::NOT_FOUND)?;
                stream.properties.insert(path, value);
                Ok(())
            })
        },
    )?;
    linker.func_wrap("env", "proxy_continue_stream", |c: Host<'_>, kind: u32| {
        plain(c, "proxy_continue_stream", |c| {
            let way = match kind {
                0 => Way::Request,
                1 => Way::Response,
                _ => return Err(status::BAD_ARGUMENT),
            };
            let state = c.data_mut();
            let context = state.effective;
            state.deferred.push(Deferred::Continue(context, way));
            if let Some(stream) = state.streams.get_mut(&context) {
                // In Envoy the request's map is gone with either direction's.
                stream.request.map_is_live = false;
                stream.request.shown = None;
            }
            Ok(())
        })
    })?;
    linker.func_wrap(
        "env",
        "proxy_send_local_response",
        |c: Host<'_>,
         code: u32,
         details: u32,
         details_size: u32,
         body: u32,
         body_size: u32,
         headers: u32,
         headers_size: u32,
         _grpc: i32| {
            plain(c, "proxy_send_local_response", |c| {
                let reply = Reply {
                    status: code,
                    details: text(c, details, details_size)?,
                    body: read(c, body, body_size)?,
                    headers: map(c, headers, headers_size)?,
                };
                let state = c.data_mut();
                state.deferred.push(Deferred::Reply(state.effective, reply));
                Ok(())
            })
        },
    )?;
    Ok(())
}

fn of_shared_data(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    linker.func_wrap(
        "env",
        "proxy_get_shared_data",
        |c: Host<'_>, key: u32, key_size: u32, at: u32, size: u32, cas: u32| {
            octets(c, "proxy_get_shared_data", at, size, |c| {
                let key = text(c, key, key_size)?;
                let found = c.data().shared.borrow().data.get(&key).cloned();
                let (value, number) = found.ok_or(status::NOT_FOUND)?;
                write(c, cas, &number.to_le_bytes())?;
                Ok(value)
            })
        },
    )?;
    linker.func_wrap(
        "env",
        "proxy_set_shared_data",
        |c: Host<'_>, key: u32, key_size: u32, value: u32, value_size: u32, cas: u32| {
            plain(c, "proxy_set_shared_data", |c| {
                let (key, value) = (text(c, key, key_size)?, read(c, value, value_size)?);
                done(c.data().shared.borrow_mut().set(&key, &value, cas))
            })
        },
    )?;
    linker.func_wrap(
        "env",
        "proxy_register_shared_queue",
        |c: Host<'_>, name: u32, name_size: u32, token: u32| {
            number(c, "proxy_register_shared_queue", token, 4, |c| {
                let name = text(c, name, name_size)?;
                let owner = (c.data().worker, c.data().root);
                Ok(u64::from(
                    c.data().shared.borrow_mut().register(&name, owner),
                ))
            })
        },
    )?;
    linker.func_wrap(
        "env",
        "proxy_dequeue_shared_queue",
        |c: Host<'_>, token: u32, at: u32, size: u32| {
            octets(c, "proxy_dequeue_shared_queue", at, size, |c| {
                c.data().shared.borrow_mut().dequeue(token)
            })
        },
    )?;
    linker.func_wrap(
        "env",
        "proxy_enqueue_shared_queue",
        |c: Host<'_>, token: u32, value: u32, value_size: u32| {
            plain(c, "proxy_enqueue_shared_queue", |c| {
                let message = read(c, value, value_size)?;
                done(c.data().shared.borrow_mut().enqueue(token, message))
            })
        },
    )?;
    Ok(())
}

fn of_metrics(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    linker.func_wrap(
        "env",
        "proxy_define_metric",
        |c: Host<'_>, kind: u32, name: u32, name_size: u32, id: u32| {
            number(c, "proxy_define_metric", id, 4, |c| {
                let name = text(c, name, name_size)?;
                Ok(u64::from(c.data().shared.borrow_mut().metric(kind, &name)))
            })
        },
    )?;
    linker.func_wrap(
        "env",
        "proxy_record_metric",
        |c: Host<'_>, id: u32, value: u64| {
            plain(c, "proxy_record_metric", |c| {
                done(c.data().shared.borrow_mut().change(id, |metric| {
                    let value = i64::try_from(value).unwrap_or(i64::MAX);
                    metric.value = if metric.kind == 2 {
                        metric.value + 1
                    } else {
                        value
                    };
                    status::OK
                }))
            })
        },
    )?;
    linker.func_wrap(
        "env",
        "proxy_increment_metric",
        |c: Host<'_>, id: u32, by: i64| {
            plain(c, "proxy_increment_metric", |c| {
                done(c.data().shared.borrow_mut().change(id, |metric| {
                    if metric.kind == 2 || (metric.kind == 0 && by <= 0) {
                        return status::BAD_ARGUMENT;
                    }
                    metric.value += by;
                    status::OK
                }))
            })
        },
    )?;
    Ok(())
}

/// The two WASI functions: they answer with an errno of their own.
fn of_the_environment(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    fn entries(c: &Host<'_>) -> Vec<Vec<u8>> {
        let shared = c.data().shared.borrow();
        let entry = |(name, value): &(String, String)| format!("{name}={value}\0").into_bytes();
        shared.environment.iter().map(entry).collect()
    }
    let wasi = "wasi_snapshot_preview1";
    linker.func_wrap(
        wasi,
        "environ_sizes_get",
        |c: Host<'_>, count: u32, size: u32| {
            plain(c, "environ_sizes_get", |c| {
                let all = entries(c);
                let sum: usize = all.iter().map(Vec::len).sum();
                write(c, count, &word(all.len()))?;
                write(c, size, &word(sum))
            })
        },
    )?;
    linker.func_wrap(
        wasi,
        "environ_get",
        |c: Host<'_>, pointers: u32, buffer: u32| {
            plain(c, "environ_get", |c| {
                let mut at = buffer;
                for (place, entry) in (0_u32..).zip(entries(c)) {
                    write(c, pointers + 4 * place, &at.to_le_bytes())?;
                    write(c, at, &entry)?;
                    at += u32::from_le_bytes(word(entry.len()));
                }
                Ok(())
            })
        },
    )?;
    Ok(())
}

fn word(n: usize) -> [u8; 4] {
    u32::try_from(n).expect("less than 4 GiB").to_le_bytes()
}

const fn done(status: u32) -> Result<(), u32> {
    if status == status::OK {
        Ok(())
    } else {
        Err(status)
    }
}

fn fault(c: &Host<'_>, name: &'static str) -> Option<Fault> {
    c.data().shared.borrow_mut().faults.next(name)
}

/// A call that gives nothing back but its status.
fn plain(
    mut c: Host<'_>,
    name: &'static str,
    call: impl FnOnce(&mut Host<'_>) -> Result<(), u32>,
) -> u32 {
    let fault = fault(&c, name);
    if let Some(Fault::Refused(status)) = fault {
        return status;
    }
    let status = call(&mut c).err().unwrap_or(status::OK);
    match fault {
        Some(Fault::DoneBut(status)) => status,
        _ => status,
    }
}

/// A call that gives a number of so many octets back.
fn number(
    mut c: Host<'_>,
    name: &'static str,
    at: u32,
    size: usize,
    call: impl FnOnce(&mut Host<'_>) -> Result<u64, u32>,
) -> u32 {
    let fault = fault(&c, name);
    if let Some(Fault::Refused(status)) = fault {
        return status;
    }
    let result = match fault {
        // Said to be done, and not done.
        Some(Fault::Nothing | Fault::Silent) => Ok(0),
        _ => call(&mut c),
    };
    match (result, fault) {
        (_, Some(Fault::DoneBut(status))) | (Err(status), _) => status,
        (Ok(_), Some(Fault::Silent)) => status::OK,
        (Ok(number), _) => {
            let all = match fault {
                Some(Fault::Garbage) => [0xff; 8],
                _ => number.to_le_bytes(),
            };
            write(&mut c, at, &all[..size]).err().unwrap_or(status::OK)
        }
    }
}

/// A call that gives octets back, in memory of the module's own allocator.
fn octets(
    mut c: Host<'_>,
    name: &'static str,
    at: u32,
    size: u32,
    call: impl FnOnce(&mut Host<'_>) -> Result<Vec<u8>, u32>,
) -> u32 {
    const FAR_TOO_MANY: u32 = 0x4000_0000;
    let fault = fault(&c, name);
    if let Some(Fault::Refused(status)) = fault {
        return status;
    }
    let mut result = call(&mut c);
    match fault {
        Some(Fault::DoneBut(status)) => return status,
        Some(Fault::Silent) => return status::OK,
        Some(Fault::Garbage) => result = result.map(|octets| vec![0xff; octets.len()]),
        Some(Fault::Half) => {
            result = result.map(|octets| octets[..octets.len() / 2].to_vec());
        }
        Some(_) => result = Ok(result.unwrap_or_default()),
        None => {}
    }
    let octets = match result {
        Ok(octets) => octets,
        Err(status) => return status,
    };
    let length = u32::from_le_bytes(word(octets.len()));
    let given = match fault {
        Some(Fault::Nothing) => Ok((0, 0)),
        Some(Fault::NullWithLength) => Ok((0, length.max(16))),
        Some(Fault::Foreign) => Ok((1024, length.max(16))),
        Some(Fault::TooLong) => allocate(&mut c, &octets).map(|at| (at, FAR_TOO_MANY)),
        _ if octets.is_empty() => Ok((0, 0)),
        _ => allocate(&mut c, &octets).map(|at| (at, length)),
    };
    let given = given.and_then(|(data, length)| {
        write(&mut c, at, &data.to_le_bytes())?;
        write(&mut c, size, &length.to_le_bytes())
    });
    given.err().unwrap_or(status::OK)
}

fn allocate(c: &mut Host<'_>, octets: &[u8]) -> Result<u32, u32> {
    let malloc = c.data().malloc.clone().ok_or(status::INTERNAL_FAILURE)?;
    let length = u32::from_le_bytes(word(octets.len().max(1)));
    let at = malloc
        .call(&mut *c, length)
        .map_err(|_| status::INVALID_MEMORY_ACCESS)?;
    write(c, at, octets)?;
    Ok(at)
}

fn read(c: &mut Host<'_>, at: u32, size: u32) -> Result<Vec<u8>, u32> {
    let memory = c.data().memory.ok_or(status::INTERNAL_FAILURE)?;
    let all = memory.data(&*c);
    let end = (at as usize).checked_add(size as usize);
    end.and_then(|end| all.get(at as usize..end))
        .map(<[u8]>::to_vec)
        .ok_or(status::INVALID_MEMORY_ACCESS)
}

fn text(c: &mut Host<'_>, at: u32, size: u32) -> Result<String, u32> {
    String::from_utf8(read(c, at, size)?).map_err(|_| status::BAD_ARGUMENT)
}

fn map(c: &mut Host<'_>, at: u32, size: u32) -> Result<Lines, u32> {
    pairs::parse(&read(c, at, size)?).ok_or(status::BAD_ARGUMENT)
}

fn write(c: &mut Host<'_>, at: u32, octets: &[u8]) -> Result<(), u32> {
    let memory = c.data().memory.ok_or(status::INTERNAL_FAILURE)?;
    memory
        .write(&mut *c, at as usize, octets)
        .map_err(|_| status::INVALID_MEMORY_ACCESS)
}
