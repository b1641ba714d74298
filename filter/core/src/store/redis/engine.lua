-- One call of idempo's Redis engine; store/redis/mod.rs says what it keeps and why.
--
-- KEYS  per shard: epoch, seq, open, unknown; then for each step: record, [body or mark, [mark]]
-- ARGV  nonce, 'number of shards,doubt', then for each step: shard,key,verb,fields...[;claim[;answer]]
-- Gives 'idempo1,nonce,now', for each shard 'epoch,seq,doubt', for each step one text. A doubt of '-': the
-- server does not say which one it is.
--
-- An absent field is '-'. No field holds ',', ':', ';' or '|'.
--
-- Redis does one thing at a time, and most of a step's time goes into taking text apart: so it is
-- taken apart by what is cheap there, and not before it is needed.

local MAX_EVENTS = 8
local MAX_COUNTER = 4294967295

local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

local function num(n)
  return string.format('%d', n)
end

-- Parts of any length.
local function split(text, mark)
  local out, n, from = {}, 0, 1
  while true do
    local at = string.find(text, mark, from, true)
    n = n + 1
    if not at then
      out[n] = string.sub(text, from)
      return out
    end
    out[n] = string.sub(text, from, at - 1)
    from = at + 1
  end
end

-- A pattern of that many fields.
local function fields(n)
  return '^' .. string.rep('([^,]+),', n - 1) .. '([^,]+)$'
end

local RECORD, CLAIM = fields(16), fields(11)
local EVENT = '^(%d+):(.):(.):(.):(%x+):(.):([^:]+):([^:]+)$'

-- Shards ---------------------------------------------------------------------------------------

local shards = {}
local SHARDS, DOUBT_MS = string.match(ARGV[2], '^(%d+),(%d+)$')
for i = 1, tonumber(SHARDS) do
  local k = i * 4
  shards[i] = { epoch = KEYS[k - 3], seq = KEYS[k - 2], open = KEYS[k - 1], unknown = KEYS[k] }
end

-- Whether the store has reached `maxmemory`: known from the first write of a call on.
local full = nil

local function raise(shard)
  local seq = redis.pcall('INCR', shard.seq)
  if type(seq) ~= 'table' then
    full = full or false
    shard.raised = seq
  elseif string.find(seq.err, 'OOM', 1, true) then
    full = true
  else
    error(seq.err, 0)
  end
end

local function has_room(shard)
  if full == nil then
    raise(shard)
  end
  return not full
end

-- Before every write. What runs must be recorded whatever the memory: Redis asks for memory only
-- before the first write of a script, and PERSIST is a write that needs none.
local function writes(shard)
  if not shard.raised then
    raise(shard)
  end
  if not shard.raised then
    redis.call('PERSIST', shard.epoch)
    raise(shard)
  end
end

local function key_of(shard, name)
  return string.sub(shard.epoch, 1, -6) .. name
end

local function tenant_key(shard, tenant)
  return key_of(shard, 't:' .. tenant)
end

-- What a server calls its history: another one after each start, and each time that a replica takes over.
local history = nil

local function history_of_server()
  if history == nil then
    local said = redis.pcall('INFO', 'replication')
    history = type(said) == 'string' and string.match(said, 'master_replid:(%x+)') or false
  end
  return history
end

-- Until when this shard may lack writes that were acknowledged: for a while after its server has become
-- another one. 0: there is no doubt.
local function doubt(shard)
  if shard.doubt then
    return shard.doubt
  end
  local id, key, till = history_of_server(), key_of(shard, 'server'), 0
  if id then
    local found = redis.call('GET', key)
    local before, until_then = string.match(found or '', '^(%x+),(%d+)$')
    if before == id then
      till = tonumber(until_then)
    else
      if found or redis.call('EXISTS', shard.epoch) == 1 then
        till = now + tonumber(DOUBT_MS)
      end
      writes(shard)
      redis.call('SET', key, id .. ',' .. num(till))
    end
  end
  shard.doubt = till > now and till or 0
  return shard.doubt
end

-- Whoever knows of a record that was lost has to write it again first.
local function say_recovering(shard)
  return 'recovering,' .. num(doubt(shard) - now)
end

-- Records --------------------------------------------------------------------------------------

local function sum(key, text)
  return string.sub(redis.sha1hex(string.sub(key, -64) .. text), 1, 16)
end

-- The record, or nil and whether there is something else.
local function load(key)
  local raw = redis.pcall('GET', key)
  if type(raw) == 'table' then
    if string.find(raw.err, 'WRONGTYPE', 1, true) then
      return nil, true
    end
    error(raw.err, 0)
  end
  if not raw then
    return nil, false
  end
  local mark, text = string.match(raw, '^1,(%x+),(.+)$')
  if not mark or mark ~= sum(key, text) then
    return nil, true
  end
  local parts = split(text, ';')
  local r = {
    text = text, facts = parts[2], amended = parts[3], detail = parts[4], over = parts[5], events = {},
  }
  local counter, generation, till, at, claimed, seen, replay, tomb, dropped
  r.inc, counter, generation, r.state, r.owner, till, at, claimed, seen, replay, tomb, r.tenant,
    r.counted, r.body, r.flags, dropped = string.match(parts[1], RECORD)
  r.counter, r.generation, r.till, r.at = tonumber(counter), tonumber(generation), tonumber(till), tonumber(at)
  r.claimed, r.seen, r.replay, r.tomb = tonumber(claimed), tonumber(seen), tonumber(replay), tonumber(tomb)
  r.dropped, r.replayable, r.partial = tonumber(dropped), string.sub(r.flags, 1, 1), string.sub(r.flags, 2, 2)
  for i = 6, #parts do
    r.events[i - 5] = parts[i]
  end
  return r, false
end

local function text_of(r)
  local head = table.concat({
    r.inc, num(r.counter), num(r.generation), r.state, r.owner, num(r.till), num(r.at),
    num(r.claimed), num(r.seen), num(r.replay), num(r.tomb), r.tenant, r.counted, r.body,
    r.replayable .. r.partial, num(r.dropped),
  }, ',')
  return table.concat({ head, r.facts, r.amended, r.detail, r.over, table.concat(r.events, ';') }, ';')
end

-- Whoever changes a record saves it, and that renews its text.
local function say(word, r)
  return word .. ',' .. r.text
end

local function expires(r)
  if r.state == 'C' or r.state == 'X' then
    return r.at + r.replay
  end
  local from = r.till
  if r.state == 'U' then
    from = r.at
  end
  return math.max(from, r.seen) + r.replay + r.tomb
end

local function gone(r)
  return expires(r) + r.tomb
end

local function say_expired(r)
  return 'expired,' .. ((r.state == 'C' or r.state == 'X') and '0' or '1')
end

-- What every reader computes: the state at this moment.
local function view(r)
  if now >= gone(r) then
    return '0'
  elseif now >= expires(r) then
    return 'E'
  elseif (r.state == 'P' or r.state == 'A') and now >= r.till then
    return 'U'
  end
  return r.state
end

-- Takes an operation off the lists where it does not belong in that state.
local function unlist(shard, id, state)
  if state ~= 'P' and state ~= 'A' then
    redis.call('ZREM', shard.open, id)
  end
  if state ~= 'U' then
    redis.call('ZREM', shard.unknown, id)
  end
end

local function save(op, r)
  writes(op.shard)
  r.text = text_of(r)
  redis.call('SET', op.key, '1,' .. sum(op.key, r.text) .. ',' .. r.text, 'PXAT', num(gone(r)))
  local id = string.sub(op.key, -64)
  unlist(op.shard, id, r.state)
  if r.state == 'U' then
    redis.call('ZADD', op.shard.unknown, num(expires(r)), id)
  elseif r.state == 'P' or r.state == 'A' then
    redis.call('ZADD', op.shard.open, num(r.till), id)
  end
  if r.counted == '1' then
    redis.call('ZADD', tenant_key(op.shard, r.tenant), 'XX', num(expires(r)), id)
  end
end

local function bump(r)
  r.counter = math.min(r.counter + 1, MAX_COUNTER)
end

-- Events are kept as text, and read one at a time.
local function event_at(r, i)
  local e = {}
  e.at, e.from, e.to, e.source, e.write, e.answer, e.operator, e.evidence = string.match(r.events[i], EVENT)
  return e
end

local function push(r, e)
  if #r.events >= MAX_EVENTS then
    table.remove(r.events, 2)
    r.dropped = math.min(r.dropped + 1, MAX_COUNTER)
  end
  r.events[#r.events + 1] = table.concat(
    { num(now), e.from, e.to, e.source, e.write, e.answer, e.operator or '-', e.evidence }, ':')
end

-- The event of that write.
local function event_of(r, write)
  for i, text in ipairs(r.events) do
    if string.find(text, write, 1, true) then
      local e = event_at(r, i)
      if e.write == write then
        return e
      end
    end
  end
end

-- An answer that lost: it left the state as it was.
local function is_late(e)
  return e.from == e.to and e.answer == '1'
end

-- Claims ---------------------------------------------------------------------------------------

local function claim_of(text)
  local parts = split(text, ':')
  local c = { facts = parts[2], over = parts[3], restart = parts[4] }
  local lease, not_after, replay, tomb, share, every
  c.owner, c.inc, lease, not_after, replay, tomb, c.write, c.tenant, share, every, c.partial =
    string.match(parts[1], CLAIM)
  c.lease, c.not_after, c.replay, c.tomb = tonumber(lease), tonumber(not_after), tonumber(replay), tonumber(tomb)
  c.share, c.seen_every = tonumber(share), tonumber(every)
  return c
end

local function begins(c, from)
  return { from = from, to = 'P', source = '1', write = c.write, answer = '0', evidence = '-' }
end

local function claimed(c, generation_before)
  return {
    inc = c.inc, counter = 1, generation = math.max(now, generation_before + 1), state = 'P',
    owner = c.owner, till = now + c.lease, at = 0, claimed = now, seen = now, replay = c.replay,
    tomb = c.tomb, tenant = c.tenant, counted = '0', body = '-', replayable = '0', facts = c.facts,
    amended = '-', partial = c.partial, detail = '-', over = c.over, dropped = 0, events = {},
  }
end

local function is_refused(op, c)
  return now > c.not_after or redis.call('EXISTS', op.mark) == 1
end

local function is_counted_out(op, c)
  local key = tenant_key(op.shard, c.tenant)
  redis.call('ZREMRANGEBYSCORE', key, '-inf', num(now))
  return redis.call('ZCARD', key) >= c.share
end

local function count(op, r)
  local key = tenant_key(op.shard, r.tenant)
  redis.call('ZADD', key, num(expires(r)), string.sub(op.key, -64))
  if redis.call('PTTL', key) < gone(r) - now then
    redis.call('PEXPIREAT', key, num(gone(r)))
  end
end

local function create(op, c)
  if is_refused(op, c) then
    return 'late'
  end
  if doubt(op.shard) > 0 then
    return say_recovering(op.shard)
  end
  if c.share == 0 then
    return 'full,tenant'
  end
  if not has_room(op.shard) then
    return 'full,store'
  end
  if c.share and is_counted_out(op, c) then
    return 'full,tenant'
  end
  local r = claimed(c, 0)
  local word = 'claimed'
  if c.restart == '-' then
    push(r, begins(c, '0'))
  else
    r.state, r.owner, r.till, r.at, r.detail, r.over = 'U', '-', 0, now, c.restart, '-'
    push(r, { from = '0', to = 'U', source = '7', write = c.write, answer = '0', evidence = c.restart })
    word = 'current'
  end
  if c.share then
    r.counted = '1'
    count(op, r)
  end
  save(op, r)
  return say(word, r)
end

-- Writes the unknown that `view` has computed.
local function materialise(r, source, write)
  local from = r.state
  r.state, r.at, r.till, r.detail, r.body, r.replayable = 'U', now, 0, r.over, '-', '0'
  push(r, { from = from, to = 'U', source = source, write = write, answer = '0', evidence = r.over })
  r.over = '-'
end

local function meet(op, r, c)
  local seen = view(r)
  if seen == 'P' and r.owner == c.owner then
    return say('claimed', r)
  end
  if seen == 'U' and (r.state ~= 'U' or now - r.seen >= c.seen_every) then
    if r.state ~= 'U' then
      materialise(r, '2', c.write)
    end
    r.seen = now
    bump(r)
    save(op, r)
  end
  return say('current', r)
end

local function take_over(op, r, c, inc, counter)
  if view(r) == 'P' and r.owner == c.owner and r.inc ~= inc then
    return say('claimed', r)
  end
  if view(r) ~= 'U' or c.inc == r.inc or r.inc ~= inc or r.counter ~= counter then
    return say('current', r)
  end
  if is_refused(op, c) then
    return 'late'
  end
  -- What is known of it may be older than its end.
  if doubt(op.shard) > 0 then
    return say_recovering(op.shard)
  end
  local n = claimed(c, r.generation)
  n.events, n.dropped, n.counted, n.tenant = r.events, r.dropped, r.counted, r.tenant
  push(n, begins(c, 'U'))
  save(op, n)
  return say('claimed', n)
end

-- Cancellations --------------------------------------------------------------------------------

local function owner_said_unknown(r)
  for i = #r.events, 1, -1 do
    local e = event_at(r, i)
    if e.to == 'U' and not is_late(e) then
      return e.source ~= '2' and e.source ~= '3'
    end
  end
  return true
end

local function took_over(r, write)
  for i = 1, #r.events do
    local e = event_at(r, i)
    if e.write == write and e.to == 'P' then
      return e.from == 'U'
    end
  end
  return r.dropped > 0
end

local function give_back(op, r, c)
  if not took_over(r, c.write) then
    writes(op.shard)
    redis.call('DEL', op.key)
    unlist(op.shard, string.sub(op.key, -64), '0')
    if r.counted == '1' then
      redis.call('ZREM', tenant_key(op.shard, r.tenant), string.sub(op.key, -64))
    end
    return 'cancelled'
  end
  local evidence, answer = c.released, '0'
  for i = #r.events, 1, -1 do
    local e = event_at(r, i)
    if e.to == 'U' and not is_late(e) and e.evidence ~= '-' then
      evidence, answer = e.evidence, e.answer
      break
    end
  end
  local from = r.state
  r.state, r.owner, r.till, r.at, r.detail, r.over = 'U', '-', 0, now, evidence, '-'
  push(r, { from = from, to = 'U', source = '1', write = c.unwrite, answer = answer, evidence = evidence })
  r.seen = math.max(r.seen, now)
  bump(r)
  save(op, r)
  return say('applied', r)
end

local function cancel(op, r, c)
  -- Left whatever is there: the claim may still be under way, or a second copy of it.
  writes(op.shard)
  redis.call('SET', op.mark, '1', 'PXAT', num(now + c.mark_ms))
  if not r then
    return 'cancelled'
  end
  if view(r) == 'E' then
    return say_expired(r)
  end
  if r.owner == c.owner and (r.state == 'P' or (r.state == 'U' and not owner_said_unknown(r))) then
    return give_back(op, r, c)
  end
  return say('stale', r)
end

-- Transitions ----------------------------------------------------------------------------------

local function event(t, from, to)
  return {
    from = from, to = to, source = t.source, write = t.write, answer = t.answer,
    operator = t.operator, evidence = t.evidence,
  }
end

local function stale(op, r, t)
  if t.settles then
    push(r, event(t, r.state, r.state))
    bump(r)
    save(op, r)
  end
  return say('stale', r)
end

local function holds(r, fence)
  local seen = view(r)
  if fence.owner then
    return r.owner == fence.owner and (seen == 'P' or seen == 'U')
  end
  return r.inc == fence.inc and r.counter == fence.counter
    and string.find(fence.from, seen, 1, true) ~= nil
    and r.state ~= 'C' and r.state ~= 'X'
end

local function put_answer(op, r, t)
  writes(op.shard)
  if t.blob ~= '-' then
    local till = r.at + r.replay
    if r.state == 'A' then
      till = math.min(r.till, expires(r))
    end
    redis.call('SET', op.body, r.inc .. ',' .. t.write .. ',' .. t.blob, 'PXAT', num(till))
    r.body = t.write
  else
    if r.body ~= '-' then
      redis.call('DEL', op.body)
    end
    r.body = '-'
  end
  r.replayable = t.replayable
end

-- The owner has seen the whole body since it claimed by its beginning.
local function amend(r, fence)
  if fence.owner and r.partial == '1' then
    local claim = claim_of(fence.claim)
    r.amended, r.partial = claim.facts, claim.partial
  end
end

local function change(op, r, t)
  local before = event_of(r, t.write)
  if before then
    return say(is_late(before) and t.settles and 'stale' or 'already', r)
  end
  if not holds(r, t.fence) then
    return stale(op, r, t)
  end
  if t.to == 'P' then
    if r.state ~= 'P' then
      return stale(op, r, t)
    end
    r.till = math.max(now + t.span, r.till)
  else
    local from, owned = view(r), r.state == 'P' or r.state == 'U'
    local keeps = t.to == 'U' and owned and (t.source == '1' or t.source == '2' or t.source == '3')
    if not keeps then
      r.owner = '-'
    end
    r.state, r.at, r.till, r.detail, r.over = t.to, now, 0, t.detail, t.over
    if t.to == 'A' then
      r.till = now + t.span
    end
    push(r, event(t, from, t.to))
    r.seen = math.max(r.seen, now)
    put_answer(op, r, t)
    amend(r, t.fence)
  end
  bump(r)
  save(op, r)
  return say('applied', r)
end

-- The store has lost the record, and its owner knows what happened.
local function restore(op, t)
  local fence = t.fence
  if not fence.owner then
    return 'absent'
  end
  -- A renewal that a cancellation overtook renews nothing.
  if t.to == 'P' and redis.call('EXISTS', op.mark) == 1 then
    return 'absent'
  end
  local claim = claim_of(fence.claim)
  local r = claimed(claim, 0)
  r.generation, r.claimed = fence.generation, fence.claimed
  push(r, begins(claim, '0'))
  if t.to ~= 'P' then
    return change(op, r, t)
  end
  r.till = now + t.span
  save(op, r)
  return say('applied', r)
end

local function transition_of(a, claim, blob)
  local t = {
    write = a[4], source = a[5], to = a[6], span = tonumber(a[7]), answer = a[8], replayable = a[9],
    detail = a[10], evidence = a[11], over = a[12], operator = a[13], blob = blob,
  }
  t.settles = t.to == 'A' or t.to == 'C'
  if a[14] == 'W' then
    t.fence = { owner = a[15], claimed = tonumber(a[16]), generation = tonumber(a[17]), claim = claim }
  else
    t.fence = { inc = a[15], counter = tonumber(a[16]), from = a[17] }
  end
  return t
end

-- The recorded answer -------------------------------------------------------------------------

local function answer(op, r, inc)
  local seen = view(r)
  if r.inc ~= inc or r.replayable ~= '1' or (seen ~= 'C' and seen ~= 'A') then
    return say('current', r)
  end
  local value = redis.pcall('GET', op.body)
  local name = r.inc .. ',' .. r.body .. ','
  if type(value) ~= 'string' or string.sub(value, 1, #name) ~= name then
    return 'body,-'
  end
  return 'body,' .. string.sub(value, #name + 1)
end

-- The sweep -----------------------------------------------------------------------------------

-- One write id for each version, whoever notes it.
local function note_write(r)
  local low = bit.bxor(tonumber(string.sub(r.inc, 9), 16), r.counter)
  return string.sub(r.inc, 1, 8) .. bit.tohex(low)
end

-- Writes what is due, and says how many are open and unknown, and how many expired unresolved.
local function sweep(shard, limit)
  local out, expired = {}, 0
  local due = redis.call('ZRANGEBYSCORE', shard.open, '-inf', num(now), 'LIMIT', '0', limit)
  for _, id in ipairs(due) do
    local op = { shard = shard, key = key_of(shard, 'r:' .. id) }
    local r, damaged = load(op.key)
    local seen = r and view(r) or '0'
    if seen == 'U' and r.state ~= 'U' then
      materialise(r, '3', note_write(r))
      bump(r)
      save(op, r)
      out[#out + 1] = id .. '=' .. r.text
    elseif damaged then
      redis.call('ZREM', shard.open, id)
      out[#out + 1] = id .. '=corrupt'
    else
      -- Expired before any sweep came by, or lost; else the list was behind, and is put right.
      unlist(shard, id, '0')
      if seen == 'E' or seen == '0' then
        expired = expired + 1
      else
        save(op, r)
      end
    end
  end
  expired = expired + redis.call('ZREMRANGEBYSCORE', shard.unknown, '-inf', num(now))
  local counts = { redis.call('ZCARD', shard.open), redis.call('ZCARD', shard.unknown), expired }
  table.insert(out, 1, 'swept,' .. table.concat(counts, ','))
  return table.concat(out, '|')
end

-- One step -------------------------------------------------------------------------------------

local function step(text)
  local parts = split(text, ';')
  local a = split(parts[1], ',')
  local key, verb = tonumber(a[2]), a[3]
  if verb == 'S' then
    return sweep(shards[tonumber(a[1])], a[4])
  end
  local op = { shard = shards[tonumber(a[1])], key = KEYS[key] }
  local r, damaged = load(op.key)
  if damaged then
    return 'corrupt'
  end
  if r and view(r) == '0' then
    r = nil
  end
  if verb == 'X' then
    op.mark = KEYS[key + 1]
    return cancel(op, r, { owner = a[4], write = a[5], unwrite = a[6], released = a[7], mark_ms = tonumber(a[8]) })
  end
  if r and view(r) == 'E' then
    return say_expired(r)
  end
  if verb == 'C' or verb == 'O' then
    op.mark = KEYS[key + 1]
    local c = claim_of(parts[2])
    if not r then
      return create(op, c)
    elseif verb == 'C' then
      return meet(op, r, c)
    end
    return take_over(op, r, c, a[4], tonumber(a[5]))
  end
  if verb == 'T' then
    op.body, op.mark = KEYS[key + 1], KEYS[key + 2]
    local t = transition_of(a, parts[2], parts[3])
    if r then
      return change(op, r, t)
    end
    return restore(op, t)
  end
  if not r then
    return 'absent'
  end
  if verb == 'B' then
    op.body = KEYS[key + 1]
    return answer(op, r, a[4])
  end
  return say('current', r)
end

local steps = {}
for i = 3, #ARGV do
  local ok, reply = pcall(step, ARGV[i])
  if not ok then
    if type(reply) == 'table' then
      reply = reply.err
    end
    reply = 'failed,' .. string.sub(tostring(reply), 1, 100)
  end
  steps[#steps + 1] = reply
end

-- Shards last: what the steps above have written shows in them.
local function state_of(shard)
  local till = doubt(shard)
  local epoch = redis.call('GET', shard.epoch)
  if not epoch then
    writes(shard)
    epoch = ARGV[1]
    redis.call('SET', shard.epoch, epoch)
  end
  local seq = shard.raised or redis.call('GET', shard.seq) or 0
  return epoch .. ',' .. num(seq) .. ',' .. (history_of_server() and num(till) or '-')
end

local out = { 'idempo1,' .. ARGV[1] .. ',' .. num(now) }
for _, shard in ipairs(shards) do
  local ok, state = pcall(state_of, shard)
  out[#out + 1] = ok and state or '-,0,0'
end
for _, reply in ipairs(steps) do
  out[#out + 1] = reply
end
return out
